"""What one connection may take of the server: how large a head, how long for it, how many behind each other."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import Enum, auto
from http import HTTPStatus
from typing import Any, cast

import uvicorn
from fastapi import FastAPI
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from service.api.access import HEALTH
from service.api.compat import refusal
from service.api.errors import HeadTooLargeError, MalformedHTTPError, TooSlowError, error_response
from service.api.middleware import Observe
from service.api.transport import Gathering
from service.errors import ServiceError, UnavailableError
from service.metrics import Metrics

PIPELINED = 8
"""Requests that may wait on a connection for the one before them; nothing that pipelines sends more."""

SPARE = 64
"""Connections beyond the limit that are still heard, so that health can be asked."""

SPARE_SECONDS = 1.0
"""What one of these has for its request's head."""


@dataclass(frozen=True)
class Bounds:
    """Connections at once; bytes of a request's head; seconds for a head to come or an answer to go; seconds idle."""

    connections: int
    head_bytes: int
    seconds: float
    keep_alive: int


class Config(uvicorn.Config):
    """uvicorn's settings for an application whose connections are bounded."""

    def __init__(self, app: FastAPI, bounds: Bounds, **settings: Any) -> None:
        super().__init__(app, http=Connection, ws="none", timeout_keep_alive=bounds.keep_alive, **settings)
        self.bounds = bounds
        self.crowded = Crowded(app, app.state.service.metrics)


class Crowded:
    """Answers on connections beyond the limit: nothing but health."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app = app
        self.refuse = Observe(_too_many, metrics, quiet=())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self.app if scope["path"] in HEALTH else self.refuse)(scope, receive, send)


async def _too_many(scope: Scope, receive: Receive, send: Send) -> None:
    error = UnavailableError("there are as many connections as this service takes", code="too_many_connections")
    await refusal(scope["path"], error)(scope, receive, send)


class Phase(Enum):
    """Where in a request the bytes that come are."""

    BETWEEN = auto()
    HEAD = auto()
    BODY = auto()


class Connection(HttpToolsProtocol):
    """uvicorn's connection, which by itself waits for a head of any size for any time and queues what is pipelined."""

    config: Config

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.bounds = self.config.bounds
        self.phase = Phase.BETWEEN
        self.head_bytes = 0
        self.idle_since = self.loop.time()
        self.spare = False
        self.refused: ServiceError | None = None
        self.running: RequestResponseCycle | None = None
        self.timer: asyncio.TimerHandle | None = None

    @property
    def idle(self) -> bool:
        """Nothing is being asked and nothing answered."""
        return self.phase is Phase.BETWEEN and not self._busy

    @property
    def _busy(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Make room: for one more than there may be, the one that was idle longest goes, if any is."""
        self.gathering = Gathering(transport, self.loop)
        super().connection_made(cast("asyncio.Transport", self.gathering))
        beyond = len(self.connections) - self.bounds.connections
        if beyond > 0:
            others = (one for one in self.connections if isinstance(one, Connection) and one is not self and one.idle)
            longest = min(others, key=lambda one: one.idle_since, default=None)
            if longest:
                longest.transport.abort()
            elif beyond > SPARE:
                self.transport.abort()
                return
            else:
                self.spare = True
                self.app = self.config.crowded
        self._allow(SPARE_SECONDS if self.spare else self.bounds.seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the running request too: uvicorn tells the last one that came, which may still wait behind it."""
        self._stop_timer()
        if self.running is not None and not self.running.response_complete:
            self.running.disconnected = True
            self.running.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse, and bound what the parser holds of a head that is not yet whole."""
        if self.refused:
            return
        before = self.phase
        super().data_received(data)
        if self.phase is Phase.HEAD:
            self.head_bytes += len(data) if before is not Phase.BODY else 0
            if self.head_bytes > self.bounds.head_bytes:
                self._refuse(self._head_too_large())
        elif self.phase is Phase.BODY or before is not Phase.BETWEEN or self._busy:
            return
        # A head that is not whole, or bytes between requests: a byte now and then would go on for ever.
        if self.timer is None and not self.transport.is_closing():
            self._allow(self.bounds.seconds)

    def on_message_begin(self) -> None:
        """The first byte of a head."""
        if len(self.pipeline) >= PIPELINED:
            self.refused = MalformedHTTPError("too many requests were sent without waiting for an answer")
            raise self.refused
        self.phase = Phase.HEAD
        self.head_bytes = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The head is there: start its request."""
        self._stop_timer()
        if len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers) > self.bounds.head_bytes:
            self.refused = self._head_too_large()
            raise self.refused
        super().on_headers_complete()
        self.phase = Phase.BODY
        # uvicorn stops reading while a request waits for the one before it, and would not see the caller leave.
        self.flow.resume_reading()
        if self.spare:
            self.cycle.keep_alive = False

    def on_message_complete(self) -> None:
        """The last byte of a body, or of the head where there is none."""
        self._stop_timer()
        self.phase = Phase.BETWEEN
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """The answer is written: the rest of the request's body has to come, and the answer to be taken, in time."""
        self.idle_since = self.loop.time()
        super().on_response_complete()
        self.gathering.flush()
        if self.phase is Phase.BODY and not self.transport.is_closing():
            self._allow(self.bounds.seconds)
        if self.transport.get_write_buffer_size():
            self.loop.call_later(self.bounds.seconds, self._drop_unread)

    def send_400_response(self, msg: str) -> None:
        """Where uvicorn answers what cannot be parsed."""
        self._refuse(self.refused or MalformedHTTPError("the request is not HTTP/1.1"))

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self.running = cycle
        super()._start_asgi_task(cycle, app)

    def _refuse(self, error: ServiceError) -> None:
        """Answer an error and close; if requests that came before are still being answered, close after them."""
        self.refused = error
        in_body = self.phase is Phase.BODY
        if self._busy and not (in_body and self.running is self.cycle and not self.cycle.response_started):
            self.cycle.keep_alive = False
            return
        # A body that goes wrong after its request was answered gets no second answer.
        if self._busy or not in_body:
            self._write(error_response(error))
        self.transport.close()

    def _write(self, response: Response) -> None:
        response.headers["connection"] = "close"
        status = HTTPStatus(response.status_code)
        head = [b"HTTP/1.1 %d %b" % (status, status.phrase.encode())]
        head += [b"%b: %b" % header for header in response.raw_headers]
        self.transport.write(b"\r\n".join([*head, b"", bytes(response.body)]))

    def _head_too_large(self) -> HeadTooLargeError:
        return HeadTooLargeError(f"the request's head is larger than the {self.bounds.head_bytes} bytes allowed")

    def _allow(self, seconds: float) -> None:
        self._stop_timer()
        self.timer = self.loop.call_later(seconds, self._too_slow)

    def _stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def _too_slow(self) -> None:
        """The time is up for what has to come next."""
        self.timer = None
        if self.phase is Phase.HEAD:
            self._refuse(TooSlowError("the request's head did not come in time"))
        elif not self._busy:
            self.transport.close()

    def _drop_unread(self) -> None:
        if self.transport.get_write_buffer_size():
            self.transport.abort()
