"""A client for the service, with and without asyncio. It stands alone: of the service it takes the types, not the code.

with SentimentClient("http://127.0.0.1:8000") as client:
    client.classify(["What a lovely day!"], top_k=1)["results"]
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Generator, Mapping, Sequence
from http import HTTPStatus
from itertools import count
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict, TypeVar, Unpack

import httpx2

if TYPE_CHECKING:
    from service.api.schemas import ClassifyResponse, EmbedResponse, ExplainResponse, InfoResponse, Models

FIRST_PAUSE = 0.2
"""Seconds before the first retry, at most; twice as many before each one after it."""

LONGEST_PAUSE = 10.0
"""Seconds before any retry, at most, beyond what Retry-After asks for."""

T = TypeVar("T")
Texts = str | Sequence[str]
Outcome = httpx2.Response | httpx2.TransportError | None
Steps = Generator[httpx2.Request | float, Outcome, T]
"""A call as a coroutine without a loop: it yields a request to be sent or seconds to be waited, and is told of both."""


class SentimentError(Exception):
    """A call without an answer: a stable code, a sentence, the parameter at fault, and the status if there was one.

    `retry_after` are the seconds after which the service would be asked again; `temporary` errors are worth it.
    """

    temporary = False

    def __init__(
        self,
        code: str,
        message: str,
        param: str | None = None,
        status: int | None = None,
        retry_after: float = 0.0,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.param = param
        self.status = status
        self.retry_after = retry_after


class InvalidRequestError(SentimentError):
    """The request is wrong, or none of its texts can be read."""


class UnauthorizedError(SentimentError):
    """The service asks for a key, and none was given that fits."""


class OverloadedError(SentimentError):
    """The service has more to do than it takes on."""

    temporary = True


class UnavailableError(SentimentError):
    """The service takes no work, or cannot be reached."""

    temporary = True


class DeadlineError(SentimentError):
    """The time ran out before the answer was there."""


_KINDS: dict[int, type[SentimentError]] = {
    HTTPStatus.UNAUTHORIZED: UnauthorizedError,
    HTTPStatus.TOO_MANY_REQUESTS: OverloadedError,
    HTTPStatus.BAD_GATEWAY: UnavailableError,
    HTTPStatus.SERVICE_UNAVAILABLE: UnavailableError,
    HTTPStatus.GATEWAY_TIMEOUT: DeadlineError,
}


class ClassifyOptions(TypedDict, total=False):
    """What /classify can be asked for."""

    model: str
    top_k: int
    raw_scores: bool
    min_score: float
    long_text: Literal["window", "truncate", "error"]
    detail: Literal["windows", "sentences"]


class EmbedOptions(TypedDict, total=False):
    """What /embed can be asked for."""

    model: str
    pool: Literal["cls", "mean", "max", "cls,mean"]
    normalize: bool
    dimensions: int
    long_text: Literal["window", "truncate", "error"]


_IN_QUERY = {"long_text", "detail", *EmbedOptions.__annotations__}


class _Calls:
    """The calls, but for the sending and the waiting."""

    def __init__(self, http: httpx2.Client | httpx2.AsyncClient, timeout: float, retries: int) -> None:
        self._build = http.build_request
        self._timeout = timeout
        self._retries = retries

    def _classify(self, inputs: Texts, options: ClassifyOptions) -> Steps[ClassifyResponse]:
        return self._texts("/classify", inputs, options)

    def _embed(self, inputs: Texts, options: EmbedOptions) -> Steps[EmbedResponse]:
        return self._texts("/embed", inputs, options)

    def _explain(self, inputs: Texts, model: str | None) -> Steps[ExplainResponse]:
        return self._texts("/explain", inputs, _named(model))

    def _info(self, model: str | None) -> Steps[InfoResponse]:
        return self._call("GET", "/info", params=_named(model))

    def _models(self) -> Steps[Models]:
        return self._call("GET", "/models")

    def _ready(self) -> Steps[bool]:
        try:
            yield from self._call("GET", "/readyz", retries=0)
        except UnavailableError:
            return False
        return True

    def _texts(self, path: str, inputs: Texts, options: Mapping[str, Any]) -> Steps[Any]:
        query = {name: value for name, value in options.items() if name in _IN_QUERY}
        body = {name: value for name, value in options.items() if name not in _IN_QUERY}
        body["inputs"] = inputs if isinstance(inputs, str) else list(inputs)
        # All ASCII: a text that is not valid Unicode then fails alone, at the service, and not the whole call here.
        return self._call("POST", path, params=query, content=json.dumps(body))

    def _call(self, method: str, path: str, *, retries: int | None = None, **request: Any) -> Steps[Any]:
        """Send until there is an answer, an error that will not pass, or too little time. To ask twice is safe."""
        until = time.monotonic() + self._timeout
        for attempt in count():
            left = max(until - time.monotonic(), 0.001)
            headers = {"content-type": "application/json", "x-request-timeout": f"{left:.3f}"}
            answer = _understood((yield self._build(method, path, headers=headers, timeout=left, **request)))
            if not isinstance(answer, SentimentError):
                return answer
            pause = answer.retry_after + random.uniform(0, min(LONGEST_PAUSE, FIRST_PAUSE * 2**attempt))
            last = attempt == (self._retries if retries is None else retries)
            if last or not answer.temporary or time.monotonic() + pause >= until:
                raise answer
            yield pause


class SentimentClient(_Calls):
    """Asks the service, over connections that it keeps; any number of threads may share one.

    `api_key` is sent with every call. `timeout` are the seconds a call may take with its retries and pauses; the
    service is told and stops work by then. At most `retries` times a call is sent again: when the service has too much
    to do (Retry-After is heeded), takes no work, or the connection fails. Further arguments are those of httpx2.Client:
    headers, verify, proxy ...
    """

    def __init__(
        self, url: str, *, api_key: str | None = None, timeout: float = 30.0, retries: int = 3, **http: Any
    ) -> None:
        self._http = httpx2.Client(base_url=url, **_with_key(http, api_key))
        super().__init__(self._http, timeout, retries)

    def classify(self, inputs: Texts, **options: Unpack[ClassifyOptions]) -> ClassifyResponse:
        """Label texts. Raises SentimentError; a text that alone cannot be read has {"error": ...} in its place."""
        return self._run(self._classify(inputs, options))

    def embed(self, inputs: Texts, **options: Unpack[EmbedOptions]) -> EmbedResponse:
        """Turn texts into vectors; errors as in `classify`."""
        return self._run(self._embed(inputs, options))

    def explain(self, inputs: Texts, model: str | None = None) -> ExplainResponse:
        """Label texts and say which words carried the label; errors as in `classify`."""
        return self._run(self._explain(inputs, model))

    def info(self, model: str | None = None) -> InfoResponse:
        """The service's version, a model of it and its limits. Raises SentimentError."""
        return self._run(self._info(model))

    def models(self) -> Models:
        """Every model there is. Raises SentimentError."""
        return self._run(self._models())

    def ready(self) -> bool:
        """Whether the service can be reached and takes work; asked once."""
        return self._run(self._ready())

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, steps: Steps[T]) -> T:
        outcome: Outcome = None
        try:
            while True:
                outcome = self._do(steps.send(outcome))
        except StopIteration as end:
            answer: T = end.value
            return answer

    def _do(self, step: httpx2.Request | float) -> Outcome:
        if isinstance(step, float):
            time.sleep(step)
            return None
        try:
            return self._http.send(step)
        except httpx2.TransportError as error:
            return error


class AsyncSentimentClient(_Calls):
    """SentimentClient for asyncio."""

    def __init__(
        self, url: str, *, api_key: str | None = None, timeout: float = 30.0, retries: int = 3, **http: Any
    ) -> None:
        self._http = httpx2.AsyncClient(base_url=url, **_with_key(http, api_key))
        super().__init__(self._http, timeout, retries)

    async def classify(self, inputs: Texts, **options: Unpack[ClassifyOptions]) -> ClassifyResponse:
        """As in SentimentClient."""
        return await self._run(self._classify(inputs, options))

    async def embed(self, inputs: Texts, **options: Unpack[EmbedOptions]) -> EmbedResponse:
        """As in SentimentClient."""
        return await self._run(self._embed(inputs, options))

    async def explain(self, inputs: Texts, model: str | None = None) -> ExplainResponse:
        """As in SentimentClient."""
        return await self._run(self._explain(inputs, model))

    async def info(self, model: str | None = None) -> InfoResponse:
        """As in SentimentClient."""
        return await self._run(self._info(model))

    async def models(self) -> Models:
        """As in SentimentClient."""
        return await self._run(self._models())

    async def ready(self) -> bool:
        """As in SentimentClient."""
        return await self._run(self._ready())

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _run(self, steps: Steps[T]) -> T:
        outcome: Outcome = None
        try:
            while True:
                outcome = await self._do(steps.send(outcome))
        except StopIteration as end:
            answer: T = end.value
            return answer

    async def _do(self, step: httpx2.Request | float) -> Outcome:
        if isinstance(step, float):
            await asyncio.sleep(step)
            return None
        try:
            return await self._http.send(step)
        except httpx2.TransportError as error:
            return error


def _named(model: str | None) -> dict[str, str]:
    return {} if model is None else {"model": model}


def _with_key(http: dict[str, Any], api_key: str | None) -> dict[str, Any]:
    """A client's arguments, the key among the headers that it sends with every request."""
    if api_key is None:
        return http
    headers = httpx2.Headers(http.pop("headers", None))
    headers["authorization"] = f"Bearer {api_key}"
    return {**http, "headers": headers}


def _understood(outcome: Outcome) -> Any:
    """The answer in a response, or the SentimentError that there is instead."""
    if isinstance(outcome, httpx2.TimeoutException):
        return DeadlineError("deadline_exceeded", "there was no answer in time")
    if not isinstance(outcome, httpx2.Response):
        return UnavailableError("unreachable", f"the service cannot be reached: {outcome or type(outcome).__name__}")
    try:
        body = outcome.json()
    except ValueError:
        body = None
    if outcome.is_success and body is not None:
        return body
    # Another server between may answer in its own words.
    found = body.get("error") if isinstance(body, dict) else None
    error = found if isinstance(found, dict) else {}
    status = outcome.status_code
    kind = _KINDS.get(status, InvalidRequestError if outcome.is_client_error else SentimentError)
    after = outcome.headers.get("retry-after", "")
    return kind(
        error.get("code", "http_error"),
        error.get("message", f"the answer is {status} {outcome.reason_phrase}"),
        error.get("param"),
        status,
        float(after) if after.isdigit() else 0.0,
    )
