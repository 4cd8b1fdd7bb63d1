"""Whose turn it is: all in turn; in a press, half for who waits longest and half for who just came."""

from hypothesis import given
from hypothesis import strategies as st

from service.turns import PRESSED, Turns

LATE = 2 * PRESSED


def turns(*requests: str) -> Turns[str]:
    made: Turns[str] = Turns()
    for request in requests:
        made.add(request, 0.0)
    return made


def test_each_has_its_turn_in_the_order_they_came() -> None:
    waiting = turns("a", "b", "c")
    assert [waiting.take(0.0) for _ in range(7)] == list("abcabca")


def test_who_is_done_has_no_more_turns() -> None:
    waiting = turns("a", "b", "c")
    assert waiting.take(0.0) == "a"
    waiting.remove("a")
    waiting.remove("c")
    assert [waiting.take(0.0) for _ in range(2)] == ["b", "b"]
    assert len(waiting) == 1


def test_when_the_oldest_waits_too_long_it_has_every_other_turn_and_who_came_last_the_next() -> None:
    waiting = turns("a", "b", "c", "d")
    assert [waiting.take(LATE) for _ in range(6)] == ["a", "d", "a", "c", "a", "b"]
    # All have had a turn: those between are in turn again.
    assert [waiting.take(LATE) for _ in range(8)] == ["a", "d", "a", "c", "a", "b", "a", "d"]


def test_who_comes_to_a_full_queue_is_next_but_one() -> None:
    waiting = turns(*map(str, range(1000)))
    for _ in range(10):
        waiting.take(LATE)
    waiting.add("new", LATE)
    assert "new" in {waiting.take(LATE), waiting.take(LATE)}


def test_who_comes_back_with_parts_is_not_new() -> None:
    waiting = turns("a", "b")
    waiting.take(0.0)
    waiting.remove("a")
    waiting.add("a", 0.0, begun=True)
    assert [waiting.take(LATE) for _ in range(2)] == ["b", "a"]


def test_the_rest_is_given_up_at_once() -> None:
    waiting = turns("a", "b")
    assert waiting.clear() == ["a", "b"]
    assert not waiting


@given(sizes=st.lists(st.integers(1, 30), min_size=1, max_size=20), arriving=st.lists(st.integers(1, 30), min_size=1))
def test_however_many_come_a_request_is_done_within_twice_what_came_before_it(
    sizes: list[int], arriving: list[int]
) -> None:
    """Past `PRESSED`, with a request that comes at each turn. This bound is what admission counts on."""
    waiting: Turns[int] = Turns()
    left = dict(enumerate(sizes))
    for request in left:
        waiting.add(request, 0.0)
    last = len(sizes) - 1
    for turn in range(2 * sum(sizes)):
        request = waiting.take(LATE)
        left[request] -= 1
        if not left[request]:
            waiting.remove(request)
        number = len(left)
        left[number] = arriving[turn % len(arriving)]
        waiting.add(number, 0.0)
    assert not left[last]
