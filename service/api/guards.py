"""How long an answer is waited for: until it is there, the deadline passes, or the caller leaves."""

from __future__ import annotations

import asyncio
import math
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
    future = asyncio.wrap_future(work)
    watcher: asyncio.Future[None] | None = None
    try:
        await asyncio.wait((future,), timeout=min(seconds, SOON))
        if not future.done() and seconds > SOON:
            watcher = asyncio.ensure_future(_disconnected(request))
            await asyncio.wait((future, watcher), timeout=seconds - SOON, return_when=asyncio.FIRST_COMPLETED)
        if future.done():
            return future.result()
        if watcher and watcher.done():
            work.give_up("disconnect")
            raise CallerLeftError
        work.give_up("deadline")
        raise DeadlineError(f"the request took longer than {seconds:g} seconds")
    except asyncio.CancelledError:
        if work.cancelled():
            raise  # not the server's stop
        raise UnavailableError("the service stopped before it could answer") from None
    finally:
        if watcher:
            watcher.cancel()
        future.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
