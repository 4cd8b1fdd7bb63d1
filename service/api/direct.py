"""Routes read without FastAPI's solver of dependencies, the dearest thing that is done for a request but its texts."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Annotated, Any, get_type_hints

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError
from starlette.exceptions import HTTPException

from service.api.guards import deadline
from service.api.state import state

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


async def _deadline(request: Request) -> float:
    return await deadline(request, request.headers.get("x-request-timeout"))


KNOWN: dict[object, Callable[[Request], Awaitable[object]]] = {state: state, deadline: _deadline}
"""The dependencies that can be called here, and how."""


class DirectRoute(APIRoute):
    """A route that takes the request, a model of its query, one of its JSON body, and dependencies known here, and
    writes its answer itself.

    It is declared, described and answered like any other; one that is anything else is left to FastAPI.
    """

    def get_route_handler(self) -> Handler:
        """The route's handler."""
        taken = self.dependant
        others = [*taken.path_params, *taken.header_params, *taken.cookie_params]
        others += [*taken.query_params[1:], *taken.body_params[1:]]
        written = get_type_hints(self.endpoint).get("return") is Response
        others += [one for one in taken.query_params if not hasattr(one.field_info.annotation, "model_fields")]
        if others or not written or any(one.call not in KNOWN or one.name is None for one in taken.dependencies):
            return super().get_route_handler()
        return self._direct()

    def _direct(self) -> Handler:
        endpoint, taken = self.endpoint, self.dependant
        called = {str(one.name): KNOWN[one.call] for one in taken.dependencies}
        query, body = _model(taken.query_params), _model(taken.body_params)

        async def handle(request: Request) -> Response:
            values: dict[str, Any] = {}
            if taken.request_param_name:
                values[taken.request_param_name] = request
            sent = await _json(request) if body else None
            for name, call in called.items():
                values[name] = await call(request)
            if query:
                values[query[0]] = _checked(query[1], dict(request.query_params), "query")
            if body:
                values[body[0]] = _checked(body[1], sent, "body")
            response: Response = await endpoint(**values)
            return response

        return handle


def _model(fields: Sequence[Any]) -> tuple[str, TypeAdapter[Any]] | None:
    """The name of a parameter and what checks it."""
    for field in fields:
        checked: Any = Annotated[field.field_info.annotation, field.field_info]
        return field.name, TypeAdapter(checked)
    return None


async def _json(request: Request) -> Any:
    """A body, read as FastAPI does. Raises RequestValidationError, or HTTPException where it is not even text."""
    sent = await request.body()
    if not sent:
        raise RequestValidationError([{"type": "missing", "loc": ("body",), "msg": "Field required", "input": None}])
    try:
        # Not pydantic's parser: lone surrogates, which it refuses with the whole body, are one text's error here.
        return json.loads(sent)
    except json.JSONDecodeError as error:
        problem = {"type": "json_invalid", "loc": ("body", error.pos), "msg": "JSON decode error", "input": {}}
        raise RequestValidationError([problem | {"ctx": {"error": error.msg}}]) from error
    except (ValueError, RecursionError) as error:
        raise HTTPException(400) from error


def _checked(adapter: TypeAdapter[Any], sent: object, source: str) -> Any:
    try:
        return adapter.validate_python(sent)
    except ValidationError as error:
        problems = error.errors(include_url=False)
        raise RequestValidationError([{**one, "loc": (source, *one["loc"])} for one in problems]) from error
