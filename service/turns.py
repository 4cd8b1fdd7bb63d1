"""Whose turn it is among the requests that wait."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

Waiting = TypeVar("Waiting")

PRESSED = 0.5
"""Seconds that the oldest request may wait before the order changes."""


class Turns(Generic[Waiting]):
    """Requests that wait, each with its next turn.

    They take turns in the order they came, so that none with many texts keeps others waiting. When the oldest has
    waited for `PRESSED` seconds there is more work than can be done, and taking turns would finish everything late:
    from then on every other turn is the oldest one's, which is done within twice the time of all that came before it,
    and the turns between are those of the newest that had none yet, so that who comes once the load is over is
    answered at once.
    """

    def __init__(self) -> None:
        self._next: OrderedDict[Waiting, None] = OrderedDict()
        self._came: OrderedDict[Waiting, float] = OrderedDict()
        self._untouched: OrderedDict[Waiting, None] = OrderedDict()
        self._oldest_next = True

    def __len__(self) -> int:
        return len(self._next)

    def add(self, request: Waiting, now: float, *, begun: bool = False) -> None:
        """A request has come, at a time in seconds of a clock that never goes back, or has come back once begun."""
        self._next[request] = None
        self._came[request] = now
        if not begun:
            self._untouched[request] = None

    def take(self, now: float) -> Waiting:
        """The request whose turn it is; it stays until it is removed. Raises StopIteration if none waits."""
        oldest = next(iter(self._came))
        if now - self._came[oldest] < PRESSED:
            request = next(iter(self._next))
        elif self._oldest_next:
            request, self._oldest_next = oldest, False
        else:
            request = next(reversed(self._untouched)) if self._untouched else next(iter(self._next))
            self._oldest_next = True
        self._untouched.pop(request, None)
        self._next.move_to_end(request)
        return request

    def remove(self, request: Waiting) -> None:
        """A request waits no longer."""
        del self._next[request], self._came[request]
        self._untouched.pop(request, None)

    def clear(self) -> list[Waiting]:
        """All that wait, who wait no longer."""
        requests = list(self._next)
        for request in requests:
            self.remove(request)
        return requests
