"""How long an answer is waited for: until it is there, the deadline passes, or the caller leaves."""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from typing import Annotated, TypeVar

from fastapi import Header, Request

from service.api.errors import CallerLeftError
from service.errors import DeadlineError, RequestError, UnavailableError
from service.scheduler import Ticket

T = TypeVar("T")

SOON = 0.025
"""Seconds in which most answers are there. Until then nobody looks whether the caller left: looking costs too much."""


async def deadline(
    request: Request,
    x_request_timeout: Annotated[
        str | None, Header(description="Seconds this request may take, at most the service's own limit.")
    ] = None,
) -> float:
    """Seconds a request may take: its X-Request-Timeout header, at most the service's own limit."""
    limit: float = request.app.state.request_timeout
    if x_request_timeout is None:
        return limit
    try:
        seconds = float(x_request_timeout)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise RequestError(
            "X-Request-Timeout must be a number of seconds above 0",
            code="invalid_header",
            param="X-Request-Timeout",
        )
    return min(seconds, limit)


async def answer(request: Request, work: Ticket[T], seconds: float) -> T:
    """Wait for queued work. Whichever way waiting ends without an answer, what has not run is dropped.

    Raises DeadlineError when the time is up, CallerLeftError when the connection closes, UnavailableError when the
    server ends its grace period and cancels what it still answers.
    """
    request.state.timings = work.timings
    watcher: asyncio.Future[None] | None = None
    try:
        await _until(work, min(seconds, SOON))
        if not work.done() and seconds > SOON:
            watcher = asyncio.ensure_future(_disconnected(request))
            await _until(work, seconds - SOON, watcher)
        if work.done():
            return work.result()
        if watcher and watcher.done():
            work.give_up("disconnect")
            raise CallerLeftError
        work.give_up("deadline")
        raise DeadlineError(f"the request took longer than {seconds:g} seconds")
    except asyncio.CancelledError:
        raise UnavailableError("the service stopped before it could answer") from None
    finally:
        if watcher:
            watcher.cancel()
        work.cancel()


async def _until(work: Ticket[T], seconds: float, watcher: asyncio.Future[None] | None = None) -> None:
    """Wait until the work or who watches is done, so many seconds at most.

    What asyncio has for this, `wrap_future` and `wait`, takes several times as long.
    """
    loop = asyncio.get_running_loop()
    woken = loop.create_future()

    def wake(*_done: object) -> None:
        if not woken.done():
            woken.set_result(None)

    def tell(_done: object) -> None:
        with suppress(RuntimeError):  # the loop was closed: nobody waits any more
            loop.call_soon_threadsafe(wake)

    work.add_done_callback(tell)
    if watcher:
        watcher.add_done_callback(wake)
    timer = loop.call_later(seconds, wake)
    try:
        await woken
    finally:
        timer.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
