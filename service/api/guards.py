"""How long an answer is waited for: until it is there, the deadline passes, or the caller leaves."""

from __future__ import annotations

import asyncio
import math
from concurrent.futures import Future
from typing import Annotated, TypeVar

from fastapi import Header, Request

from service.api.errors import CallerLeftError
from service.errors import DeadlineError, RequestError

T = TypeVar("T")


def deadline(
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


async def answer(request: Request, work: Future[T], seconds: float) -> T:
    """Wait for queued work. Whichever way waiting ends without an answer, what has not run is dropped.

    Raises DeadlineError when the time is up, CallerLeftError when the connection closes.
    """
    future = asyncio.wrap_future(work)
    watcher = asyncio.ensure_future(_disconnected(request))
    watcher.add_done_callback(lambda _: future.cancel())
    try:
        async with asyncio.timeout(seconds):
            return await future
    except TimeoutError:
        raise DeadlineError(f"the request took longer than {seconds:g} seconds") from None
    except asyncio.CancelledError:
        if watcher.done() and not watcher.cancelled():
            raise CallerLeftError from None
        raise
    finally:
        watcher.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
