"""Who runs when: turns, bounds, failures, deaths, parts and endings. Threads meet at events; nothing guesses a time."""

import queue
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from itertools import chain, zip_longest
from types import SimpleNamespace
from typing import Any, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from service.errors import EngineError, InputError, OverloadedError, RequestError, UnavailableError
from service.metrics import Metrics
from service.scheduler import CALM_SECONDS, REST_SECONDS, Run, Scheduler, Share, Split, Task, Ticket

GUARD = 60.0
"""Seconds after which a wait is a failure. No test that passes ever waits so long."""

Start: TypeAlias = Callable[..., Scheduler]


class Gate:
    """A task that says when it has begun, and ends when it is let go."""

    def __init__(self, outcome: Any = None) -> None:
        self.outcome = outcome
        self.begun = threading.Event()
        self.let_go = threading.Event()

    def __call__(self) -> Any:
        self.begun.set()
        assert self.let_go.wait(GUARD)
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome


class Journal:
    """Tasks that write down their names as they run."""

    def __init__(self) -> None:
        self.lines: list[Any] = []

    def __call__(self, name: Any, outcome: Any = None) -> Callable[..., Any]:
        def task(*_parts: Any) -> Any:
            self.lines.append(name)
            return name if outcome is None else outcome

        return task


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def start(metrics: Metrics, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Make started schedulers. Each is stopped after the test, and has to leave no thread and no count behind."""
    hook = threading.excepthook  # pytest's: it warns of a SystemExit, which Python itself lets pass
    monkeypatch.setattr(threading, "excepthook", lambda args: args.exc_type is SystemExit or hook(args))
    before = set(threading.enumerate())
    made: list[Scheduler] = []

    def start(workers: int = 1, capacity: int = 1000, at_rest: Callable[[], object] | None = None) -> Scheduler:
        scheduler = Scheduler(workers, capacity, metrics, at_rest=at_rest)
        scheduler.start()
        made.append(scheduler)
        return scheduler

    yield start
    for scheduler in made:
        scheduler.stop(GUARD)
    for thread in set(threading.enumerate()) - before:
        thread.join(GUARD)
    assert not set(threading.enumerate()) - before
    if made:
        assert (read(metrics, "queue_depth"), read(metrics, "running_texts"), read(metrics, "workers_alive")) == (
            0,
            0,
            0,
        )


def read(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"sentiment_{name}", labels)


def hold(scheduler: Scheduler) -> tuple[Gate, Ticket[list[Any]]]:
    """Keep one worker busy until the gate is let go."""
    gate = Gate("held")
    future = scheduler.submit([gate])
    assert gate.begun.wait(GUARD)
    return gate, future


def fail(error: BaseException) -> Task:
    def task() -> None:
        raise error

    return task


def dying(threads: list[threading.Thread], *meetings: threading.Barrier) -> Task:
    """A task that ends the thread it runs on."""

    def task() -> None:
        threads.append(threading.current_thread())
        for meeting in meetings:
            meeting.wait(GUARD)
        raise SystemExit

    return task


# Outcomes


def test_outcomes_come_in_the_order_of_the_tasks(start: Start) -> None:
    scheduler = start(workers=4)
    gates = [Gate(index) for index in range(4)]
    future = scheduler.submit(gates)
    for gate in reversed(gates):  # they end in the opposite order
        assert gate.begun.wait(GUARD)
        gate.let_go.set()
    assert future.result(GUARD) == [0, 1, 2, 3]


def test_as_many_tasks_run_at_once_as_there_are_workers(start: Start) -> None:
    scheduler = start(workers=3)
    meeting = threading.Barrier(3)
    assert sorted(scheduler.submit([lambda: meeting.wait(GUARD)] * 3).result(GUARD)) == [0, 1, 2]


def test_a_request_without_tasks_is_a_mistake(start: Start) -> None:
    scheduler = start()
    with pytest.raises(ValueError, match="at least one"):
        scheduler.submit([])
    assert scheduler.submit([lambda: 1]).result(GUARD) == [1]


def test_the_gauges_tell_what_waits_and_what_runs(start: Start, metrics: Metrics) -> None:
    scheduler = start(workers=2)
    gate, _ = hold(scheduler)
    other, _ = hold(scheduler)
    scheduler.submit([lambda: None] * 3)
    assert read(metrics, "queue_depth") == 3
    assert read(metrics, "running_texts") == 2
    assert read(metrics, "workers_alive") == scheduler.alive == scheduler.size == 2
    gate.let_go.set()
    other.let_go.set()
    assert scheduler.stop(GUARD)
    assert read(metrics, "queue_seconds_count") == 5


# Turns


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_a_single_text_runs_after_at_most_one_task_a_worker_of_a_big_list(start: Start, workers: int) -> None:
    scheduler = start(workers)
    gates = [hold(scheduler)[0] for _ in range(workers)]
    journal = Journal()
    bulk = scheduler.submit([journal("bulk") for _ in range(500)])
    single = scheduler.submit([journal("single")])
    for gate in gates:
        gate.let_go.set()
    assert single.result(GUARD) == ["single"]
    assert bulk.result(GUARD) == ["bulk"] * 500
    assert journal.lines.index("single") <= workers


@settings(max_examples=25)
@given(sizes=st.lists(st.integers(1, 8), min_size=1, max_size=6))
def test_requests_take_turns_whatever_their_sizes(sizes: list[int]) -> None:
    scheduler = Scheduler(1, 100, Metrics())
    scheduler.start()
    gate, _ = hold(scheduler)
    journal = Journal()
    requests = [[(name, index) for index in range(size)] for name, size in enumerate(sizes)]
    futures = [scheduler.submit([journal(task) for task in request]) for request in requests]
    gate.let_go.set()
    assert [future.result(GUARD) for future in futures] == requests
    assert journal.lines == [task for task in chain.from_iterable(zip_longest(*requests)) if task]
    assert scheduler.stop(GUARD)


# Admission


def test_what_does_not_fit_is_refused_at_once_and_whole(start: Start, metrics: Metrics) -> None:
    scheduler = start(capacity=3)
    gate, held = hold(scheduler)
    journal = Journal()
    admitted = scheduler.submit([journal("a"), journal("b")])
    with pytest.raises(OverloadedError, match="2 runs are waiting and 3 may: 2 more do not fit") as refusal:
        scheduler.submit([journal("c"), journal("d")])
    assert refusal.value.retry_after >= 1
    assert refusal.value.code == "overloaded"
    assert read(metrics, "queue_depth") == 2
    assert read(metrics, "rejected_requests_total", reason="overloaded") == 1
    fitting = scheduler.submit([journal("e")])
    gate.let_go.set()
    assert (held.result(GUARD), admitted.result(GUARD), fitting.result(GUARD)) == (["held"], ["a", "b"], ["e"])
    assert sorted(journal.lines) == ["a", "b", "e"]
    assert scheduler.submit([journal("f")] * 3).result(GUARD) == ["f"] * 3


def test_the_time_to_come_back_follows_from_how_long_tasks_take(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("service.scheduler.time", SimpleNamespace(monotonic=lambda: now[0]))
    scheduler = start(capacity=10)
    gate, held = hold(scheduler)
    now[0] += 100.0  # a moving average with a weight of 1/20: 5 seconds a task
    gate.let_go.set()
    assert held.result(GUARD)
    gate, _ = hold(scheduler)
    scheduler.submit([lambda: None] * 10)
    with pytest.raises(OverloadedError) as refusal:
        scheduler.submit([lambda: None] * 4)
    gate.let_go.set()
    assert refusal.value.retry_after == 4 * 5


def test_a_task_is_calm_that_met_no_other_for_a_while(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("service.scheduler.time", SimpleNamespace(monotonic=lambda: now[0]))
    scheduler = start(workers=2)
    assert not scheduler.calm  # nothing runs
    first, _ = hold(scheduler)
    assert scheduler.calm
    second, met = hold(scheduler)
    assert not scheduler.calm
    second.let_go.set()
    assert met.result(GUARD)
    while scheduler._running > 1:
        time.sleep(0.001)
    assert not scheduler.calm  # alone again, for how long nobody knows
    now[0] += CALM_SECONDS + 0.01
    assert scheduler.calm
    first.let_go.set()


def test_a_task_is_not_calm_while_others_wait(start: Start) -> None:
    scheduler = start(workers=1)
    gate, _ = hold(scheduler)
    assert scheduler.calm
    scheduler.submit([lambda: 1])
    assert not scheduler.calm
    gate.let_go.set()


def test_what_would_be_done_too_late_is_refused_at_once(
    start: Start, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr("service.scheduler.time", SimpleNamespace(monotonic=lambda: now[0]))
    scheduler = start(capacity=100)
    scheduler.patience = 30.0
    gate, held = hold(scheduler)
    now[0] += 100.0  # as above, 5 seconds a task: three at most are done within 30, were each kept waiting for another
    gate.let_go.set()
    assert held.result(GUARD)
    gate, _ = hold(scheduler)
    waits = scheduler.submit([lambda: 1] * 2)
    with pytest.raises(OverloadedError, match="would take about 40 seconds and may take 30") as refusal:
        scheduler.submit([lambda: None] * 2)
    assert refusal.value.retry_after == 10
    assert waits.cancel()
    alone = scheduler.submit([lambda: 1] * 50)  # with nothing else to wait for, it has its chance
    single = scheduler.submit([lambda: 2])  # its turn comes before the others of the list
    gate.let_go.set()
    assert alone.result(GUARD) == [1] * 50
    assert single.result(GUARD) == [2]


def test_nothing_is_taken_before_the_start(metrics: Metrics) -> None:
    scheduler = Scheduler(1, 10, metrics)
    assert not scheduler.accepting
    assert scheduler.alive == 0
    with pytest.raises(UnavailableError):
        scheduler.submit([lambda: None])
    assert read(metrics, "rejected_requests_total", reason="unavailable") == 1
    assert scheduler.stop(0.0)


# Cancelling


def test_cancelling_drops_what_has_not_run(start: Start, metrics: Metrics) -> None:
    scheduler = start()
    gate, held = hold(scheduler)
    journal = Journal()
    left = scheduler.submit([journal("left") for _ in range(5)])
    stays = scheduler.submit([journal("stays") for _ in range(2)])
    assert left.cancel()
    assert read(metrics, "queue_depth") == 2
    assert read(metrics, "dropped_texts_total", reason="other") == 5
    gate.let_go.set()
    assert held.result(GUARD) == ["held"]
    assert stays.result(GUARD) == ["stays"] * 2
    assert journal.lines == ["stays"] * 2
    with pytest.raises(CancelledError):
        left.result(GUARD)


def test_cancelling_makes_room(start: Start) -> None:
    scheduler = start(capacity=2)
    gate, _ = hold(scheduler)
    full = scheduler.submit([lambda: None] * 2)
    with pytest.raises(OverloadedError):
        scheduler.submit([lambda: None])
    full.cancel()
    roomy = scheduler.submit([lambda: "in"])
    gate.let_go.set()
    assert roomy.result(GUARD) == ["in"]


def test_cancelling_while_a_task_runs_drops_the_others_and_hurts_no_worker(start: Start, metrics: Metrics) -> None:
    scheduler = start()
    gate, journal = Gate(), Journal()
    future = scheduler.submit([gate, journal("second"), journal("third")])
    assert gate.begun.wait(GUARD)
    assert future.cancel()
    gate.let_go.set()
    assert scheduler.submit([lambda: "alive"]).result(GUARD) == ["alive"]
    assert journal.lines == []
    assert read(metrics, "dropped_texts_total", reason="other") == 2


def test_cancelling_when_only_the_last_task_still_runs_drops_nothing(start: Start, metrics: Metrics) -> None:
    scheduler = start()
    gate, future = hold(scheduler)
    assert future.cancel()
    gate.let_go.set()
    assert scheduler.stop(GUARD)
    assert read(metrics, "dropped_texts_total", reason="other") == 0


# Failing


def test_a_failing_task_fails_alone(start: Start) -> None:
    scheduler = start()
    invalid = InputError("the text is empty", code="empty_text")
    with capture_logs() as logs:
        outcomes = scheduler.submit(
            [lambda: 0, fail(ValueError("I love my secret")), lambda: 2, fail(invalid), lambda: 4]
        ).result(GUARD)
    assert outcomes[::2] == [0, 2, 4]
    assert isinstance(outcomes[1], EngineError)
    assert outcomes[3] is invalid
    assert scheduler.alive == 1
    (line,) = logs
    assert line["event"] == "task failed"
    assert line["error"].startswith("ValueError at test_scheduler.py:")
    assert "secret" not in str(line) + outcomes[1].message


def test_a_callback_that_fails_hurts_no_worker(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    scheduler = start()
    gate, future = hold(scheduler)
    future.add_done_callback(lambda _: 1 / 0)
    gate.let_go.set()
    assert scheduler.submit([lambda: "alive"]).result(GUARD) == ["alive"]
    assert "exception calling callback" in caplog.text


def test_a_task_that_ends_its_thread_is_answered_and_the_others_go_on(start: Start) -> None:
    scheduler = start(workers=2)
    threads: list[threading.Thread] = []
    with capture_logs() as logs:
        (outcome, other) = scheduler.submit([dying(threads), lambda: "fine"]).result(GUARD)
        threads[0].join(GUARD)
    assert isinstance(outcome, EngineError)
    assert other == "fine"
    assert scheduler.alive == 1
    assert scheduler.accepting
    assert [line["event"] for line in logs] == ["worker died"]
    assert scheduler.submit([lambda: 1] * 10).result(GUARD) == [1] * 10


def test_the_last_death_fails_what_waits_and_closes_admission(start: Start, metrics: Metrics) -> None:
    scheduler = start()
    last = Gate(SystemExit())
    killer = scheduler.submit([last, lambda: "never"])
    assert last.begun.wait(GUARD)
    waiting = [scheduler.submit([lambda: "never"] * 3) for _ in range(3)]
    with capture_logs():
        last.let_go.set()
        for future in [killer, *waiting]:
            assert isinstance(future.exception(GUARD), UnavailableError)
    assert not scheduler.accepting
    assert scheduler.alive == 0
    assert read(metrics, "queue_depth") == 0
    with pytest.raises(UnavailableError):
        scheduler.submit([lambda: None])
    assert scheduler.stop(0.0)


@pytest.mark.parametrize("attempt", range(10))
def test_workers_that_die_at_the_same_moment_leave_nobody_waiting(start: Start, attempt: int) -> None:
    scheduler = start(workers=4)
    threads: list[threading.Thread] = []
    arrive, leave = threading.Barrier(5), threading.Barrier(5)
    with capture_logs() as logs:
        killers = scheduler.submit([dying(threads, arrive, leave)] * 4)
        arrive.wait(GUARD)
        waiting = scheduler.submit([lambda: "never"])
        leave.wait(GUARD)
        assert isinstance(waiting.exception(GUARD), UnavailableError)
        assert all(isinstance(outcome, EngineError) for outcome in killers.result(GUARD))
        for thread in threads:
            thread.join(GUARD)
    assert len(logs) == 4


# Parts


def add(outcomes: Sequence[Any]) -> Any:
    return "+".join(outcomes)


def test_parts_are_joined_in_their_order(start: Start) -> None:
    scheduler = start(workers=3)
    parts = [Gate(name) for name in "abc"]
    future = scheduler.submit([lambda: "before", lambda: Split(parts, add), lambda: "after"])
    for part in reversed(parts):
        assert part.begun.wait(GUARD)
        part.let_go.set()
    assert future.result(GUARD) == ["before", "a+b+c", "after"]


def test_parts_run_before_the_tasks_behind_them_and_take_turns_with_other_requests(start: Start) -> None:
    scheduler = start()
    gate, _ = hold(scheduler)
    journal = Journal()
    split = Split([journal("part 1"), journal("part 2")], add)
    long = scheduler.submit([journal("long", split), journal("behind")])
    other = scheduler.submit([journal(f"other {i}") for i in range(3)])
    gate.let_go.set()
    assert long.result(GUARD) == ["part 1+part 2", "behind"]
    assert other.result(GUARD) == ["other 0", "other 1", "other 2"]
    assert journal.lines == ["long", "other 0", "part 1", "other 1", "part 2", "other 2", "behind"]


def test_parts_do_not_pile_up(start: Start) -> None:
    scheduler = start(capacity=20)
    depths: list[float | None] = []

    def part() -> str:
        depths.append(read(scheduler._metrics, "queue_depth"))
        return "part"

    future = scheduler.submit([lambda: Split([part] * 10, len)] * 20)
    assert future.result(GUARD) == [10] * 20
    assert max(depth or 0 for depth in depths) <= 20 + 10


def test_a_part_waits_from_when_its_text_was_split(
    start: Start, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr("service.scheduler.time", SimpleNamespace(monotonic=lambda: now[0]))

    def read_for_long() -> Split:
        now[0] += 60.0
        return Split([lambda: "a", lambda: "b"], add)

    assert start().submit([read_for_long]).result(GUARD) == ["a+b"]
    assert read(metrics, "queue_seconds_count") == 3
    assert read(metrics, "queue_seconds_sum") == 0


def test_a_failing_part_fails_its_text_alone(start: Start) -> None:
    scheduler = start()
    joined = Journal()
    error = InputError("bad part")
    parts = [lambda: "a", fail(error), fail(RuntimeError("worse"))]
    with capture_logs():
        outcomes = scheduler.submit([lambda: Split(parts, joined("joined")), lambda: "other"]).result(GUARD)
    assert outcomes == [error, "other"]
    assert joined.lines == []


def test_what_waits_of_a_text_with_a_failing_part_is_not_run(start: Start, metrics: Metrics) -> None:
    scheduler = start()
    gate, journal = Gate(), Journal()
    error = InputError("bad part")
    nested = Split([fail(error), journal("nested")], add)
    texts: list[Task] = [lambda: Split([lambda: nested, *[journal("part")] * 50], add), gate, journal("other")]
    future = scheduler.submit(texts)
    assert gate.begun.wait(GUARD)
    assert read(metrics, "queue_depth") == 1
    gate.let_go.set()
    assert future.result(GUARD) == [error, None, "other"]
    assert journal.lines == ["other"]
    assert read(metrics, "dropped_texts_total", reason="other") == 0


def test_a_part_that_runs_while_another_fails_is_waited_for(start: Start) -> None:
    scheduler = start(workers=2)
    slow, error = Gate("slow"), InputError("bad part")

    def fails() -> None:
        assert slow.begun.wait(GUARD)
        raise error

    future = scheduler.submit([lambda: Split([slow, fails, fail(RuntimeError("never"))], add)])
    assert scheduler.submit([lambda: "meanwhile"]).result(GUARD) == ["meanwhile"]
    assert slow.begun.wait(GUARD)
    assert not future.done()
    slow.let_go.set()
    assert future.result(GUARD) == [error]


@pytest.mark.parametrize(("raised", "expected"), [(KeyError("text"), EngineError), (InputError("no"), InputError)])
def test_a_failing_join_fails_its_text_alone(start: Start, raised: Exception, expected: type[Exception]) -> None:
    def join(_outcomes: list[Any]) -> None:
        raise raised

    scheduler = start()
    with capture_logs():
        failed, other = scheduler.submit([lambda: Split([lambda: 1], join), lambda: 2]).result(GUARD)
    assert isinstance(failed, expected)
    assert other == 2


def test_a_join_that_ends_its_thread_is_answered(start: Start) -> None:
    def join(_outcomes: list[Any]) -> None:
        raise SystemExit

    scheduler = start(workers=2)
    with capture_logs():
        failed, other = scheduler.submit([lambda: Split([lambda: 1], join), lambda: 2]).result(GUARD)
        assert isinstance(failed, EngineError)
        assert other == 2
        assert scheduler.stop(GUARD)


def test_a_part_may_split_and_a_join_too(start: Start) -> None:
    scheduler = start(workers=2)
    inner = Split([lambda: "b", lambda: "c"], add)
    outer = Split(
        [lambda: "a", lambda: inner, lambda: "d"], lambda parts: Split([lambda: "again", lambda: add(parts)], add)
    )
    assert scheduler.submit([lambda: outer, lambda: "e"]).result(GUARD) == ["again+a+b+c+d", "e"]


def test_splitting_into_nothing_fails_the_text(start: Start) -> None:
    scheduler = start()
    with capture_logs():
        failed, other = scheduler.submit([lambda: Split([], add), lambda: 2]).result(GUARD)
    assert isinstance(failed, EngineError)
    assert other == 2


def test_cancelling_between_parts_drops_the_rest(start: Start, metrics: Metrics) -> None:
    scheduler = start()
    first, journal = Gate(), Journal()
    split = Split([first, journal("second"), journal("third")], journal("joined"))
    future = scheduler.submit([lambda: split, journal("behind")])
    assert first.begun.wait(GUARD)
    assert future.cancel()
    assert read(metrics, "dropped_texts_total", reason="other") == 2  # the text with parts left, and the one behind
    first.let_go.set()
    assert scheduler.submit([lambda: "next"]).result(GUARD) == ["next"]
    assert journal.lines == []


def test_a_task_whose_caller_left_meanwhile_does_not_split(start: Start, metrics: Metrics) -> None:
    scheduler = start()
    journal = Journal()
    gate = Gate(Split([journal("part")], add))
    future = scheduler.submit([gate])
    assert gate.begun.wait(GUARD)
    future.cancel()
    gate.let_go.set()
    assert scheduler.stop(GUARD)
    assert journal.lines == []
    assert read(metrics, "dropped_texts_total", reason="other") == 1


# Shared runs


def in_capitals(items: list[Any]) -> list[Any]:
    return [item.upper() for item in items]


class Runs:
    """Runs of up to three items, of sizes that make up ten, that write down what they were given."""

    def __init__(self, run: Callable[[list[Any]], Sequence[Any]] = in_capitals) -> None:
        self.lines: list[str] = []
        self._run = run
        self.of_three = Run(self, most=3, room=10)

    def __call__(self, items: list[Any]) -> Sequence[Any]:
        self.lines.append("".join(items))
        return self._run(items)

    def share(self, item: str, size: int = 1) -> Task:
        """A task that wishes to share a run."""
        return lambda: Share(self.of_three, item, size, then=lambda result: (item, result))


def test_tasks_that_wait_share_runs_and_each_gets_its_own(start: Start, metrics: Metrics) -> None:
    scheduler = start()
    gate, _ = hold(scheduler)
    runs = Runs()
    bulk = scheduler.submit([runs.share(item) for item in "abcd"])
    single = scheduler.submit([runs.share("x")])
    gate.let_go.set()
    assert bulk.result(GUARD) == [("a", "A"), ("b", "B"), ("c", "C"), ("d", "D")]
    assert single.result(GUARD) == [("x", "X")]
    assert runs.lines == ["axb", "cd"]  # in turns, whosoever they are
    assert read(metrics, "queue_seconds_count") == 6


def test_what_does_not_fit_runs_alone(start: Start) -> None:
    scheduler = start()
    gate, _ = hold(scheduler)
    runs, others = Runs(), Runs()
    tasks = [runs.share("a", 6), runs.share("b", 5), runs.share("c", 5), runs.share("d", 5), others.share("e")]
    future = scheduler.submit([*tasks, lambda: "plain", runs.share("f"), runs.share("g", 99), runs.share("h")])
    gate.let_go.set()
    outcomes = future.result(GUARD)
    assert [outcome[0] for outcome in outcomes] == ["a", "b", "c", "d", "e", "p", "f", "g", "h"]
    assert runs.lines == ["a", "b", "cd", "f", "g", "h"]
    assert others.lines == ["e"]


def test_a_worker_leaves_the_others_their_part(start: Start) -> None:
    scheduler = start(workers=2)
    gates = [hold(scheduler)[0] for _ in range(2)]
    runs = Runs()
    future = scheduler.submit([runs.share(item) for item in "abcd"])
    gates[0].let_go.set()
    while len(runs.lines) < 2:  # one worker alone gets to both halves in the end
        time.sleep(0.001)
    assert runs.lines[0] == "ab"
    gates[1].let_go.set()
    assert [outcome[0] for outcome in future.result(GUARD)] == list("abcd")


def test_an_idle_service_keeps_nobody_waiting_for_company(start: Start) -> None:
    scheduler = start(workers=2)
    runs = Runs()
    assert scheduler.submit([runs.share("a")]).result(GUARD) == [("a", "A")]
    assert runs.lines == ["a"]


def test_parts_share_runs_too(start: Start) -> None:
    runs = Runs()
    parts = [runs.share(item) for item in "abcd"]
    assert start().submit([lambda: Split(parts, join=list)]).result(GUARD) == [
        [("a", "A"), ("b", "B"), ("c", "C"), ("d", "D")]
    ]
    assert runs.lines == ["abc", "d"]


def test_an_item_that_fails_fails_its_own_text(start: Start) -> None:
    def run(items: list[Any]) -> list[Any]:
        return [InputError("no") if item == "b" else item for item in items]

    scheduler = start()
    gate, _ = hold(scheduler)
    runs = Runs(run)
    future = scheduler.submit([runs.share(item) for item in "abc"])
    gate.let_go.set()
    first, second, third = future.result(GUARD)
    assert (first, third) == (("a", "a"), ("c", "c"))
    assert isinstance(second, InputError)


def test_a_shared_run_that_fails_fails_all_its_texts_and_no_worker(start: Start) -> None:
    def run(items: list[Any]) -> list[Any]:
        raise RuntimeError(f"broken by {items}")

    scheduler = start()
    gate, _ = hold(scheduler)
    runs = Runs(run)
    future = scheduler.submit([*map(runs.share, "ab"), lambda: "plain"])
    gate.let_go.set()
    with capture_logs() as logs:
        first, second, plain = future.result(GUARD)
    assert [type(first), type(second), plain] == [EngineError, EngineError, "plain"]
    assert [line["event"] for line in logs] == ["task failed"]
    assert scheduler.alive == 1


def test_what_becomes_of_a_result_may_fail_too(start: Start) -> None:
    runs = Runs()

    def then(_result: Any) -> Any:
        raise InputError("not this one")

    scheduler = start()
    gate, _ = hold(scheduler)
    future = scheduler.submit([lambda: Share(runs.of_three, "a", 1, then), runs.share("b")])
    gate.let_go.set()
    first, second = future.result(GUARD)
    assert isinstance(first, InputError)
    assert second == ("b", "B")


def test_a_thread_that_ends_while_tasks_share_answers_them_first(start: Start) -> None:
    scheduler = start(workers=2)
    gate, _ = hold(scheduler)
    other, _ = hold(scheduler)
    threads: list[threading.Thread] = []
    runs = Runs()
    future = scheduler.submit([runs.share("a"), dying(threads), *map(runs.share, "bcdefg")])
    gate.let_go.set()
    while not threads:
        time.sleep(0.001)
    other.let_go.set()
    outcomes = future.result(GUARD)
    assert outcomes[0] == ("a", "A")
    assert isinstance(outcomes[1], EngineError)
    assert [outcome[1] for outcome in outcomes[2:]] == list("BCDEFG")
    assert runs.lines[0] == "a"
    assert scheduler.alive == 1


def test_a_run_that_ends_its_thread_is_answered(start: Start) -> None:
    def run(_items: list[Any]) -> list[Any]:
        raise SystemExit

    scheduler = start(workers=2)
    gates = [hold(scheduler)[0] for _ in range(2)]
    runs = Runs(run)
    future = scheduler.submit([*map(runs.share, "abcd"), *[lambda: "plain"] * 2])
    gates[0].let_go.set()
    while not runs.lines:
        time.sleep(0.001)
    gates[1].let_go.set()
    outcomes = future.result(GUARD)
    assert [type(outcome) for outcome in outcomes[:4]] == [EngineError] * 4
    assert outcomes[4:] == ["plain", "plain"]  # they ran while their worker gathered


# Endings


def test_draining_answers_what_was_admitted_and_refuses_the_rest(start: Start) -> None:
    scheduler = start()
    gate, held = hold(scheduler)
    part = Gate("part")
    admitted = scheduler.submit([lambda: Split([part, lambda: "part"], add), lambda: 2])
    scheduler.drain()
    assert not scheduler.accepting
    assert scheduler.alive == 1
    with pytest.raises(UnavailableError):
        scheduler.submit([lambda: None])
    gate.let_go.set()
    part.let_go.set()
    assert held.result(GUARD) == ["held"]
    assert admitted.result(GUARD) == ["part+part", 2]


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="needs a POSIX signal")
def test_a_signal_that_drains_may_interrupt_a_submission(start: Start) -> None:
    """The handler runs on the thread it interrupts, which may hold the scheduler's lock."""
    scheduler = start()

    class Interrupted(list[Task]):
        def __len__(self) -> int:
            signal.raise_signal(signal.SIGUSR1)
            return super().__len__()

    before = signal.signal(signal.SIGUSR1, lambda *_: scheduler.drain())
    try:
        with pytest.raises(UnavailableError):
            scheduler.submit(Interrupted([lambda: 1]))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert not scheduler.accepting


def test_stopping_waits_for_what_was_admitted(start: Start) -> None:
    scheduler = start(workers=2)
    gate, held = hold(scheduler)
    queued = scheduler.submit([lambda: Split([gate, lambda: 1], len)] * 3)
    ended: Future[bool] = Future()
    stopper = threading.Thread(target=lambda: ended.set_result(scheduler.stop(GUARD)))
    stopper.start()
    gate.let_go.set()
    assert ended.result(GUARD)
    stopper.join(GUARD)
    assert held.result(0) == ["held"]
    assert queued.result(0) == [2, 2, 2]
    assert scheduler.alive == 0
    assert not [thread for thread in scheduler._threads if thread.is_alive()]


def test_stopping_gives_up_on_a_task_that_hangs(start: Start, metrics: Metrics) -> None:
    scheduler = start()
    gate, held = hold(scheduler)
    begun = Gate()
    waiting = scheduler.submit([begun, lambda: "never"])
    assert not scheduler.stop(timeout=0.0)
    assert not scheduler.accepting
    assert isinstance(waiting.exception(GUARD), UnavailableError)
    assert read(metrics, "queue_depth") == 0
    assert not waiting.cancel()
    gate.let_go.set()
    assert held.result(GUARD) == ["held"]
    for thread in scheduler._threads:
        thread.join(GUARD)
    assert scheduler.alive == 0
    assert not begun.begun.is_set()


def test_a_task_that_splits_after_the_stop_is_told_so(start: Start, metrics: Metrics) -> None:
    scheduler = start()
    journal = Journal()
    gate = Gate(Split([journal("part")], add))
    future = scheduler.submit([gate])
    assert gate.begun.wait(GUARD)
    assert not scheduler.stop(timeout=0.0)
    gate.let_go.set()
    assert isinstance(future.exception(GUARD), UnavailableError)
    assert journal.lines == []
    assert read(metrics, "queue_depth") == 0


def test_a_caller_that_leaves_while_the_service_gives_up_breaks_nothing(start: Start, metrics: Metrics) -> None:
    """One request's failure makes the caller cancel another that is about to be failed too."""
    scheduler = start()
    gate, _ = hold(scheduler)
    first = scheduler.submit([lambda: "never"] * 2)
    second = scheduler.submit([lambda: "never"] * 2)
    first.add_done_callback(lambda _: second.cancel())
    assert not scheduler.stop(timeout=0.0)
    assert isinstance(first.exception(GUARD), UnavailableError)
    assert second.cancelled()
    assert read(metrics, "queue_depth") == 0
    gate.let_go.set()


@pytest.mark.parametrize(("reason", "answered"), [("other", False), ("disconnect", True), ("deadline", True)])
def test_what_the_server_gives_up_after_draining_was_not_answered(start: Start, reason: Any, answered: bool) -> None:
    scheduler = start()
    gate, held = hold(scheduler)
    scheduler.drain()
    held.give_up(reason)
    gate.let_go.set()
    assert scheduler.stop(GUARD) is answered


def test_stopping_twice_is_harmless(start: Start) -> None:
    scheduler = start()
    assert scheduler.stop(GUARD)
    assert scheduler.stop(GUARD)


@pytest.mark.parametrize("at_rest", [None, lambda: None])
def test_workers_sleep_until_there_is_work(
    start: Start, monkeypatch: pytest.MonkeyPatch, at_rest: Callable[[], None] | None
) -> None:
    """No worker waits for a time, which would be polling, but until a rest; and each task wakes one of them at most."""
    waits: list[float | None] = []
    wait = threading.Condition.wait

    def spy(condition: threading.Condition, timeout: float | None = None) -> bool:
        if threading.current_thread().name.startswith("worker-"):
            waits.append(timeout)
        return wait(condition, timeout)

    monkeypatch.setattr(threading.Condition, "wait", spy)
    scheduler = start(workers=4, at_rest=at_rest)
    for _ in range(50):
        assert scheduler.submit([lambda: "ran"]).result(GUARD) == ["ran"]
    assert scheduler.stop(GUARD)
    timed = {timeout for timeout in waits if timeout is not None}
    assert all(timeout > REST_SECONDS / 2 for timeout in timed)
    assert bool(timed) == bool(at_rest)
    assert len(waits) <= 50 + 4


# Rest


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> float:
    """The seconds after which workers rest, made few."""
    monkeypatch.setattr("service.scheduler.REST_SECONDS", seconds := 0.02)
    return seconds


@pytest.mark.parametrize("workers", [1, 4])
def test_after_each_time_of_work_workers_rest_once(start: Start, soon: float, workers: int) -> None:
    rests: queue.Queue[str] = queue.Queue()
    scheduler = start(workers, at_rest=lambda: rests.put(threading.current_thread().name))
    assert rests.get(timeout=GUARD).startswith("worker-")  # after the start, which is work too
    for _ in range(3):
        futures = [scheduler.submit([lambda: "ran"]) for _ in range(2 * workers)]
        assert [future.result(GUARD) for future in futures] == [["ran"]] * 2 * workers
        rests.get(timeout=GUARD)
        time.sleep(5 * soon)
        assert rests.empty()


def test_nobody_rests_while_a_task_runs(start: Start, soon: float) -> None:
    rested = threading.Event()
    scheduler = start(workers=2, at_rest=rested.set)
    assert rested.wait(GUARD)
    rested.clear()
    gate, future = hold(scheduler)
    assert scheduler.submit([lambda: "ran"]).result(GUARD) == ["ran"]
    assert not rested.wait(5 * soon)
    gate.let_go.set()
    assert future.result(GUARD)
    assert rested.wait(GUARD)


def test_a_rest_that_fails_hurts_no_worker(start: Start, soon: float) -> None:
    failed = threading.Event()

    def rest() -> None:
        failed.set()
        raise EngineError("no rest")

    with capture_logs() as lines:
        scheduler = start(at_rest=rest)
        for _ in range(2):
            assert failed.wait(GUARD)
            failed.clear()
            assert scheduler.submit([lambda: "ran"]).result(GUARD) == ["ran"]
    assert scheduler.alive == 1
    assert "rest failed" in [line["event"] for line in lines]


# All of it at once


class Crowd:
    """Callers that submit lists of tasks of mixed kinds, check each outcome, and now and then leave before it comes."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.admitted: list[int] = []
        self.ran: list[int] = []
        self.left: list[int] = []
        self.wrong: list[Any] = []

    def task(self, kind: str, number: int) -> Task:
        def task() -> Any:
            self.ran.append(number)
            if kind == "invalid":
                raise InputError(str(number))
            return Split([lambda: number, lambda: 1], sum) if kind == "split" else number

        return task

    def call(self, seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(150):
            leaves = rng.random() < 0.1
            kinds = ["plain"] if leaves else ["plain", "plain", "plain", "invalid", "split"]
            asked = [(rng.choice(kinds), rng.randrange(10**6)) for _ in range(rng.randint(1, 9))]
            future = self.admit([self.task(*one) for one in asked])
            if leaves and future.cancel():
                self.left.append(len(asked))
                continue
            outcomes = future.result(GUARD)
            self.wrong += [one for one, outcome in zip(asked, outcomes, strict=True) if not self.right(*one, outcome)]

    def admit(self, tasks: list[Task]) -> Future[list[Any]]:
        while True:
            try:
                future = self.scheduler.submit(tasks)
            except OverloadedError:
                time.sleep(0.001)
            else:
                self.admitted.append(len(tasks))
                return future

    def right(self, kind: str, number: int, outcome: Any) -> bool:
        if kind == "invalid":
            return isinstance(outcome, InputError) and outcome.message == str(number)
        return bool(outcome == number + (kind == "split"))


def test_many_threads_of_callers_get_every_outcome_in_its_place(start: Start, metrics: Metrics) -> None:
    scheduler = start(workers=4, capacity=64)
    crowd = Crowd(scheduler)
    callers = [threading.Thread(target=crowd.call, args=(seed,)) for seed in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(GUARD)
    assert scheduler.stop(GUARD)
    assert crowd.wrong == []
    assert crowd.left
    assert sum(crowd.admitted) > 4000
    assert len(crowd.ran) + (read(metrics, "dropped_texts_total", reason="other") or 0) == sum(crowd.admitted)


def test_a_task_holds_the_runs_it_is_thought_to_take_until_it_is_taken(start: Start) -> None:
    scheduler = start(workers=1, capacity=10)
    gate, _ = hold(scheduler)
    long = scheduler.submit([lambda: Split([lambda: 1] * 8, sum)], units=[8])
    with pytest.raises(OverloadedError, match="8 runs are waiting and 10 may: 3 more do not fit"):
        scheduler.submit([lambda: None] * 3)
    short = scheduler.submit([lambda: 2], units=[2])
    gate.let_go.set()
    assert (long.result(GUARD), short.result(GUARD)) == ([8], [2])


def test_a_request_that_would_never_fit_says_so(start: Start) -> None:
    scheduler = start(workers=1, capacity=10)
    with pytest.raises(RequestError, match="about 11 runs and the queue holds 10"):
        scheduler.submit([lambda: None], units=[11])
