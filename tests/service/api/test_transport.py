"""An answer goes out in one write, in order, and nothing of it is lost or kept for long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from service.api.transport import MOST, Gathering


class Written(asyncio.Transport):
    """A transport that notes what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[object] = []

    def write(self, data: object) -> None:
        self.calls.append(data)

    def close(self) -> None:
        self.calls.append("close")

    def abort(self) -> None:
        self.calls.append("abort")

    def get_write_buffer_size(self) -> int:
        return 7

    def is_closing(self) -> bool:
        return True


Step = Callable[[Gathering], object]


def turn(_transport: Gathering) -> None:
    """The event loop's next turn."""


def calls(*steps: Step) -> list[object]:
    """What a transport is told when one that gathers is."""

    async def made() -> list[object]:
        written = Written()
        transport = Gathering(written, asyncio.get_running_loop())
        for step in steps:
            step(transport)
            if step is turn:
                await asyncio.sleep(0)
        return list(written.calls)

    return asyncio.run(made())


def write(data: bytes) -> Step:
    """A step that writes."""
    return lambda transport: transport.write(data)


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        ([write(b"head "), write(b"body")], []),
        ([write(b"head "), write(b"body"), Gathering.flush, turn], [b"head body"]),
        ([write(b"head "), write(b"body"), turn], [b"head body"]),
        ([write(b"head "), turn, write(b"late"), turn], [b"head ", b"late"]),
        ([write(b"head "), write(b"x" * MOST)], [b"head " + b"x" * MOST]),
        ([write(b"bye"), Gathering.close, turn], [b"bye", "close"]),
        ([write(b"never"), Gathering.abort, turn], ["abort"]),
    ],
    ids=["kept", "flushed", "next turn", "two turns", "much", "closed", "aborted"],
)
def test_what_is_written_in_one_turn_is_one_write(steps: list[Step], told: list[object]) -> None:
    assert calls(*steps) == told


def test_what_is_kept_counts_as_not_sent_and_the_rest_is_the_transports() -> None:
    sizes: list[object] = []
    calls(
        write(b"123"),
        lambda transport: sizes.append(transport.get_write_buffer_size()),
        Gathering.flush,
        lambda transport: sizes.append(transport.get_write_buffer_size()),
        lambda transport: sizes.append(transport.is_closing()),
    )
    assert sizes == [10, 7, True]
