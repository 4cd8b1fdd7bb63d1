"""What surrounds every request: its id, its log line and metrics, and the bound on its body. Pure ASGI."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Iterable, Mapping
from http import HTTPStatus

import structlog
from opentelemetry.trace import Tracer, format_trace_id, get_current_span
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.compat import refusal
from service.api.errors import CLIENT_CLOSED_REQUEST, BodyTooLargeError, MediaTypeError, TooSlowError
from service.api.tracing import stages
from service.errors import EngineError
from service.logs import describe, get
from service.metrics import Metrics
from service.timings import Timings

Header = tuple[bytes, bytes]

log = get("service.access")

SAFE = {
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"content-security-policy": b"frame-ancestors 'none'",
}
"""What every answer tells a browser, unless its route says otherwise."""

_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")


class Observe:
    """Gives a request its id, and writes its one log line and its metrics once it is answered."""

    def __init__(self, app: ASGIApp, metrics: Metrics, quiet: Iterable[str], tracer: Tracer | None = None) -> None:
        self.app = app
        self.metrics = metrics
        self.tracer = tracer
        self.quiet = frozenset(quiet)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = time.perf_counter()
        self.metrics.in_flight.inc()
        given = Headers(scope=scope).get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else os.urandom(16).hex()
        status = CLIENT_CLOSED_REQUEST
        spent: dict[str, float] = {}

        async def with_id(message: Message) -> None:
            nonlocal status, spent
            if message["type"] == "http.response.start":
                status, spent = message["status"], _milliseconds(scope)
                message["headers"] = _told(message["headers"], request_id, spent)
                if self.tracer and get_current_span().is_recording():
                    _trace(self.tracer, scope, request_id)
            await send(message)

        structlog.contextvars.bind_contextvars(request_id=request_id)
        try:
            await self.app(scope, receive, with_id)
        except ClientDisconnect:
            pass  # in the middle of its body: nobody is there to be told, and nothing failed
        except Exception as error:
            log.error("unexpected failure", error=describe(error))
            if status != CLIENT_CLOSED_REQUEST:
                raise
            # Told here and not raised: the server would end the connection, under the caller's next request perhaps.
            failure = EngineError("the service failed; it was logged", code="internal_error")
            await refusal(scope["path"], failure)(scope, receive, with_id)
        finally:
            self.metrics.in_flight.dec()
            self._record(scope, status, time.perf_counter() - began, spent)
            structlog.contextvars.unbind_contextvars("request_id", "trace_id")

    def _record(self, scope: Scope, status: int, seconds: float, spent: Mapping[str, float]) -> None:
        route = scope.get("route")
        template = getattr(route, "path", "unmatched")
        self.metrics.requests.labels(scope["method"], template, str(status)).inc()
        self.metrics.request_seconds.labels(template).observe(seconds)
        write = log.debug if template in self.quiet and status < 400 else log.info
        write(
            "request",
            method=scope["method"],
            route=template,
            status=status,
            milliseconds=round(seconds * 1000, 2),
            **{f"{name}_milliseconds": value for name, value in spent.items()},
            **scope.get("state", {}).get("counts", {}),
        )


def _told(headers: Iterable[Header], request_id: str, spent: Mapping[str, float]) -> list[Header]:
    """An answer's headers, and with them its request's id, what is safe unless its route said otherwise, and where
    the time went."""
    told = [*headers, (b"x-request-id", request_id.encode())]
    said = {name for name, _ in told}
    told += [header for header in SAFE.items() if header[0] not in said]
    if spent:
        told.append((b"server-timing", ", ".join(f"{name};dur={value}" for name, value in spent.items()).encode()))
    return told


def _trace(tracer: Tracer, scope: Scope, request_id: str) -> None:
    """Tell the span of a request what its log line does, and the other way round."""
    span, state = get_current_span(), scope.get("state", {})
    counts = {f"sentiment.{name}": count for name, count in state.get("counts", {}).items()}
    span.set_attributes({"sentiment.request_id": request_id, **counts})
    structlog.contextvars.bind_contextvars(trace_id=format_trace_id(span.get_span_context().trace_id))
    if "timings" in state:
        stages(tracer, state["timings"])


def _milliseconds(scope: Scope) -> dict[str, float]:
    """How long a request waited and was worked on, by stage, once it has been queued."""
    timings: Timings | None = scope.get("state", {}).get("timings")
    return {name: round(stage.seconds * 1000, 2) for name, stage in timings.stages().items()} if timings else {}


class BodyLimit:
    """Refuses a body that is declared or turns out to be over the limit, packed, not JSON, or not there in time."""

    def __init__(self, app: ASGIApp, max_bytes: int, seconds: float) -> None:
        self.app = app
        self.max_bytes = max_bytes
        self.seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in {"POST", "PUT", "PATCH"}:
            await self.app(scope, receive, send)
            return
        read = 0
        # Of the whole body: a client that sends a byte a second is always about to send the next one.
        until: float | None = asyncio.get_running_loop().time() + self.seconds

        async def counted() -> Message:
            nonlocal read, until
            try:
                async with asyncio.timeout_at(until):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(HTTPStatus.REQUEST_TIMEOUT) from TooSlowError(
                    f"the body did not come within {self.seconds:g} seconds"
                )
            if not message.get("more_body"):
                until = None
            read += len(message.get("body", b""))
            if read > self.max_bytes:
                # As an HTTPException: FastAPI, which reads the body, lets no other exception through.
                raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE) from self._too_large()
            return message

        try:
            self._check_headers(Headers(scope=scope))
        except (BodyTooLargeError, MediaTypeError) as error:
            await refusal(scope["path"], error)(scope, receive, send)
        else:
            await self.app(scope, counted, send)

    def _check_headers(self, headers: Headers) -> None:
        declared = headers.get("content-length", "")
        if declared.isdigit() and int(declared) > self.max_bytes:
            raise self._too_large()
        encoding = headers.get("content-encoding", "identity")
        if encoding.lower() != "identity":
            raise MediaTypeError(f"content-encoding {encoding!r} is not read; send the body as it is")
        kind, _, parameters = headers.get("content-type", "").partition(";")
        charset = dict(part.strip().lower().partition("=")[::2] for part in parameters.split(";")).get(
            "charset", "utf-8"
        )
        if kind.strip().lower() != "application/json" or charset.strip('"') not in {"utf-8", "utf8"}:
            raise MediaTypeError("the body must be application/json in UTF-8")

    def _too_large(self) -> BodyTooLargeError:
        return BodyTooLargeError(f"the body is larger than the {self.max_bytes} bytes allowed")
