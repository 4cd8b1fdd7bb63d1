"""Every failure in one shape, `{"error": {"code", "message", "param"?}}`, and its status: one table."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic_core import to_json
from starlette.exceptions import HTTPException

from service import errors
from service.api.schemas import ErrorBody, error_body


class BodyTooLargeError(errors.ServiceError):
    """A body over the limit."""

    code = "body_too_large"


class MalformedError(errors.RequestError):
    """A body that is not JSON."""

    code = "malformed_json"


class MediaTypeError(errors.ServiceError):
    """A body that does not say it is JSON, or is packed in a way this service does not unpack."""

    code = "unsupported_media_type"


class MalformedHTTPError(errors.ServiceError):
    """Bytes that are not HTTP/1.1, or not as this service takes it."""

    code = "malformed_http"


class HeadTooLargeError(errors.ServiceError):
    """A head, the request's line and its headers, over the limit."""

    code = "head_too_large"


class TooSlowError(errors.ServiceError):
    """A head or a body that did not come in time. The connection is closed, since the rest may still come."""

    code = "too_slow"


class UnauthorizedError(errors.ServiceError):
    """No key was sent, or none that fits."""

    code = "invalid_api_key"

    def __init__(self, message: str = "a key is needed, as Authorization: Bearer KEY or X-API-Key: KEY") -> None:
        super().__init__(message)


class ForbiddenError(errors.ServiceError):
    """What nobody may do here."""

    code = "forbidden"


class CallerLeftError(Exception):
    """The connection closed before the answer: nobody is there to read one."""


STATUS: dict[type[errors.ServiceError], HTTPStatus] = {
    errors.InputError: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.RequestError: HTTPStatus.UNPROCESSABLE_ENTITY,
    MalformedError: HTTPStatus.BAD_REQUEST,
    MalformedHTTPError: HTTPStatus.BAD_REQUEST,
    HeadTooLargeError: HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    TooSlowError: HTTPStatus.REQUEST_TIMEOUT,
    UnauthorizedError: HTTPStatus.UNAUTHORIZED,
    ForbiddenError: HTTPStatus.FORBIDDEN,
    BodyTooLargeError: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    MediaTypeError: HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    errors.OverloadedError: HTTPStatus.TOO_MANY_REQUESTS,
    errors.UnavailableError: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.DeadlineError: HTTPStatus.GATEWAY_TIMEOUT,
    errors.EngineError: HTTPStatus.INTERNAL_SERVER_ERROR,
    errors.ArtifactError: HTTPStatus.INTERNAL_SERVER_ERROR,
    errors.UnknownModelError: HTTPStatus.NOT_FOUND,
    errors.ConflictError: HTTPStatus.CONFLICT,
}

CLIENT_CLOSED_REQUEST = 499
"""What the log and the metrics say of a request whose caller left; no one receives it."""

_HEADERS: dict[type[errors.ServiceError], dict[str, str]] = {
    UnauthorizedError: {"www-authenticate": "Bearer"},
    TooSlowError: {"connection": "close"},
}

_HTTP_CODES = {404: "not_found", 405: "method_not_allowed"}


def error_response(error: errors.ServiceError) -> Response:
    """An error as a whole response."""
    return _response(STATUS[type(error)], error_body(error), error_headers(error))


def error_headers(error: errors.ServiceError) -> Mapping[str, str] | None:
    """What a failure says in headers: Retry-After where waiting helps, how a key is sent where one is needed."""
    if isinstance(error, errors.OverloadedError):
        return {"retry-after": str(error.retry_after)}
    return _HEADERS.get(type(error))


HANDLED = (errors.ServiceError, CallerLeftError, RequestValidationError, HTTPException)
"""What a route may raise. Anything else is a fault of the service's own."""


def install(app: FastAPI) -> None:
    """Make every failure of an app answer in the one shape."""
    for kind in HANDLED:
        app.add_exception_handler(kind, failure)


async def failure(request: Request, error: Exception) -> Response:
    """What is answered where a route raised one of `HANDLED`."""
    match error:
        case errors.ServiceError():
            return error_response(error)
        case CallerLeftError():
            return Response(status_code=CLIENT_CLOSED_REQUEST)
        case RequestValidationError():
            return error_response(_invalid(request, error.errors()[0]))
        case HTTPException(__cause__=errors.ServiceError() as cause):
            return error_response(cause)
        case HTTPException(status_code=HTTPStatus.BAD_REQUEST):
            return error_response(MalformedError("the body could not be read as JSON in UTF-8"))
        case HTTPException(status_code=status):
            message = f"{request.method} is not possible here" if status == 405 else "there is nothing here"
            return _response(status, _body(_HTTP_CODES.get(status, "http_error"), message), error.headers)
    raise error


def _invalid(request: Request, problem: dict[str, Any]) -> errors.RequestError:
    """What pydantic found, in our words: what was wrong, and what is allowed."""
    source, *place = (str(part) for part in problem["loc"])
    param = ".".join(place) or None
    kind = problem["type"]
    if kind == "json_invalid":
        return MalformedError(f"the body is not JSON: {problem['ctx']['error']}")
    if source == "body" and not place:
        return errors.RequestError("a JSON object is needed as the body", code="invalid_body")
    noun = "query_parameter" if source == "query" else "field"
    if kind == "extra_forbidden":
        allowed = ", ".join(_fields(request, source)) or "none"
        return errors.RequestError(f"{param} is unknown here; allowed: {allowed}", code=f"unknown_{noun}", param=param)
    if kind == "missing":
        return errors.RequestError(f"{param} is missing", code=f"missing_{noun}", param=param)
    reason = problem.get("ctx", {}).get("error") or problem["msg"]
    return errors.RequestError(f"{param}: {reason}", code=f"invalid_{noun}", param=param)


def _fields(request: Request, source: str) -> list[str]:
    """The names that the matched route reads from its query or its body."""
    dependant = request.scope["route"].dependant
    known = dependant.query_params if source == "query" else dependant.body_params
    return [name for field in known for name in field.field_info.annotation.model_fields]


def _body(code: str, message: str) -> ErrorBody:
    return {"error": {"code": code, "message": message}}


def _response(status: int, body: ErrorBody, headers: Mapping[str, str] | None = None) -> Response:
    return Response(to_json(body), int(status), headers, media_type="application/json")
