"""Every failure in one shape, `{"error": {"code", "message", "param"?}}`, and its status: one table."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic_core import to_json
from starlette.exceptions import HTTPException

from service import errors
from service.api.schemas import ErrorBody
from service.logs import describe, get

log = get(__name__)


class BodyTooLargeError(errors.ServiceError):
    """A body over the limit."""

    code = "body_too_large"


class MediaTypeError(errors.ServiceError):
    """A body that does not say it is JSON, or is packed in a way this service does not unpack."""

    code = "unsupported_media_type"


class CallerLeftError(Exception):
    """The connection closed before the answer: nobody is there to read one."""


STATUS: dict[type[errors.ServiceError], HTTPStatus] = {
    errors.InputError: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.RequestError: HTTPStatus.UNPROCESSABLE_ENTITY,
    BodyTooLargeError: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    MediaTypeError: HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    errors.OverloadedError: HTTPStatus.TOO_MANY_REQUESTS,
    errors.UnavailableError: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.DeadlineError: HTTPStatus.GATEWAY_TIMEOUT,
    errors.EngineError: HTTPStatus.INTERNAL_SERVER_ERROR,
    errors.ArtifactError: HTTPStatus.INTERNAL_SERVER_ERROR,
}

CLIENT_CLOSED_REQUEST = 499
"""What the log and the metrics say of a request whose caller left; no one receives it."""

_HTTP_CODES = {404: "not_found", 405: "method_not_allowed"}


def error_body(error: errors.ServiceError) -> ErrorBody:
    """An error as it goes over the wire."""
    return _body(error.code, error.message, error.param)


def error_response(error: errors.ServiceError) -> Response:
    """An error as a whole response, with Retry-After where waiting helps."""
    headers = {"retry-after": str(error.retry_after)} if isinstance(error, errors.OverloadedError) else None
    return _response(STATUS[type(error)], error_body(error), headers)


def install(app: FastAPI) -> None:
    """Make every failure of an app answer in the one shape."""

    @app.exception_handler(errors.ServiceError)
    async def service_error(_request: Request, error: errors.ServiceError) -> Response:
        return error_response(error)

    @app.exception_handler(CallerLeftError)
    async def caller_left(_request: Request, _error: CallerLeftError) -> Response:
        return Response(status_code=CLIENT_CLOSED_REQUEST)

    @app.exception_handler(RequestValidationError)
    async def validation_error(_request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        place = [str(part) for part in first["loc"]]
        if first["type"] == "json_invalid":
            return _response(HTTPStatus.BAD_REQUEST, _body("malformed_json", f"the body is not JSON: {_reason(first)}"))
        if first["type"] == "missing" and place == ["body"]:
            return _response(HTTPStatus.UNPROCESSABLE_ENTITY, _body("missing_body", "a JSON body is needed"))
        param = ".".join(place[1:]) or place[0]
        kind = "unknown" if first["type"] == "extra_forbidden" else "invalid"
        code = f"{kind}_{'query_parameter' if place[0] == 'query' else 'field'}"
        return _response(HTTPStatus.UNPROCESSABLE_ENTITY, _body(code, f"{param}: {_reason(first)}", param))

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> Response:
        if isinstance(error.__cause__, errors.ServiceError):
            return error_response(error.__cause__)
        if error.status_code == HTTPStatus.BAD_REQUEST:
            return _response(error.status_code, _body("malformed_body", "the body could not be read as JSON"))
        message = f"{request.method} is not possible here" if error.status_code == 405 else "there is nothing here"
        code = _HTTP_CODES.get(error.status_code, "http_error")
        return _response(error.status_code, _body(code, message), error.headers)

    @app.exception_handler(Exception)
    async def unexpected(_request: Request, error: Exception) -> Response:
        log.error("unexpected failure", error=describe(error))
        return _response(HTTPStatus.INTERNAL_SERVER_ERROR, _body("internal_error", "the service failed; it was logged"))


def _reason(error: dict[str, object]) -> str:
    context = error.get("ctx")
    detail = context.get("error") if isinstance(context, dict) else None
    return str(detail or error["msg"])


def _body(code: str, message: str, param: str | None = None) -> ErrorBody:
    body: ErrorBody = {"error": {"code": code, "message": message}}
    if param is not None:
        body["error"]["param"] = param
    return body


def _response(status: int, body: ErrorBody, headers: Mapping[str, str] | None = None) -> Response:
    return Response(to_json(body), status, headers, media_type="application/json")
