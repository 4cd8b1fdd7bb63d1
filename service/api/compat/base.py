"""What the drop-ins share: peers answer a request as a whole or not at all, and say why not in their own shape."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from http import HTTPStatus
from typing import Any, ClassVar, TypeVar

import numpy as np
from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from numpy.typing import NDArray
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from typing_extensions import TypedDict

from service.api.direct import DirectRoute
from service.api.errors import STATUS, MalformedError, error_headers
from service.errors import RequestError, ServiceError
from service.inference import Classification, Embedding

Numbers = NDArray[np.float32] | NDArray[np.float64]
Answer = TypeVar("Answer", Classification, Embedding)


class Failure(TypedDict):
    """What went wrong, in a sentence."""

    error: str


class PeerRoute(DirectRoute):
    """A route whose failures have a peer's status and body; a subclass says which."""

    statuses: ClassVar[dict[type[ServiceError], HTTPStatus]] = STATUS

    @classmethod
    def status(cls, error: ServiceError) -> HTTPStatus:
        """The peer's status for a failure."""
        return cls.statuses[type(error)]

    @classmethod
    def body(cls, error: ServiceError) -> Mapping[str, object]:
        """The peer's body for a failure."""
        return Failure(error=error.message)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The route's handler, its failures answered by `status` and `body`."""
        handle = super().get_route_handler()

        async def handled(request: Request) -> Response:
            try:
                return await handle(request)
            except (ServiceError, RequestValidationError, HTTPException) as error:
                return self.failure(_understood(error))

        return handled

    @classmethod
    def failure(cls, error: ServiceError) -> Response:
        """A failure as a whole response."""
        return reply(cls.body(error), cls.status(error), error_headers(error))


class Prediction(TypedDict):
    """A label and its score."""

    label: str
    score: float


def failures(body: type) -> dict[int | str, dict[str, Any]]:
    """The shape of every failure of a router, for its documentation."""
    return {status: {"model": body, "description": "What went wrong."} for status in ("4XX", "5XX")}


def reply(content: object, status: int = HTTPStatus.OK, headers: Mapping[str, str] | None = None) -> Response:
    """Content as JSON."""
    return Response(to_json(content), int(status), headers, media_type="application/json")


def whole(request: Request, answers: list[Answer | ServiceError]) -> list[Answer]:
    """All answers, counted for the log. Raises the first error among them, which says whose it is."""
    read: list[Answer] = []
    for index, one in enumerate(answers):
        if isinstance(one, ServiceError):
            if len(answers) > 1:
                one.message = f"text {index + 1} of {len(answers)}: {one.message}"
            one.param = "inputs"
            raise one
        read.append(one)
    request.state.counts = {"texts": len(read), "tokens": sum(one.tokens for one in read)}
    return read


def vectors(answers: Sequence[Embedding]) -> NDArray[np.float32]:
    """Vectors as the rows of one array, float32 [texts, dimensions]."""
    return np.stack([one.vector for one in answers])


def rows(values: Numbers, decimals: int) -> list[list[float]]:
    """An array [n, m] as it goes over the wire."""
    found: list[list[float]] = values.astype(float).round(decimals).tolist()
    return found


def ranked(labels: Sequence[str], scores: Numbers, top_k: int | None = None) -> list[list[Prediction]]:
    """The labels of each row of scores [texts, labels], best first, six decimals each."""
    best = np.argsort(-scores, axis=1, kind="stable")[:, :top_k]
    kept = np.take_along_axis(scores.astype(np.float64), best, axis=1)
    return [
        [{"label": labels[index], "score": score} for index, score in zip(order, row, strict=True)]
        for order, row in zip(best.tolist(), rows(kept, 6), strict=True)
    ]


def _understood(error: ServiceError | RequestValidationError | HTTPException) -> ServiceError:
    """What went wrong, as one of the service's own errors; FastAPI raises HTTPException for a body it cannot read."""
    if isinstance(error, ServiceError):
        return error
    if isinstance(error, HTTPException):
        cause = error.__cause__
        return cause if isinstance(cause, ServiceError) else MalformedError("the body is not JSON in UTF-8")
    problem = error.errors()[0]
    if problem["type"] == "json_invalid":
        return MalformedError(f"the body is not JSON: {problem['ctx']['error']}")
    param = ".".join(str(part) for part in problem["loc"][1:])
    reason = problem.get("ctx", {}).get("error") or problem["msg"]
    return RequestError(f"{param or 'body'}: {reason}", param=param or None)
