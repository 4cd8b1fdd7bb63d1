"""Routes called at once, and read without FastAPI's solver of dependencies: the dearest of a request but its texts."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from functools import cached_property
from typing import Annotated, Any, get_type_hints

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from service.api import schemas
from service.api.errors import HANDLED, failure
from service.api.guards import deadline
from service.api.state import chosen, state
from service.inference import Inference

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


async def _deadline(request: Request) -> float:
    return await deadline(request, request.headers.get("x-request-timeout"))


async def _chosen(request: Request) -> Inference:
    return await chosen(await state(request), _checked(_NAMED, _query(request), "query"))


_NAMED = TypeAdapter(schemas.Named)

KNOWN: dict[object, Callable[[Request], Awaitable[object]]] = {state: state, deadline: _deadline, chosen: _chosen}
"""The dependencies that can be called here, and how."""


class DirectRoute(APIRoute):
    """A route that takes the request, a model of its query, one of its JSON body, and dependencies known here, and
    writes its answer itself.

    It is declared, described and answered like any other; one that is anything else is left to FastAPI.
    """

    def get_route_handler(self) -> Handler:
        """The route's handler."""
        return self._reader if self.direct else super().get_route_handler()

    @property
    def direct(self) -> bool:
        """Whether it is such a route."""
        taken = self.dependant
        others = [*taken.path_params, *taken.header_params, *taken.cookie_params]
        others += [*taken.query_params[1:], *taken.body_params[1:]]
        written = get_type_hints(self.endpoint).get("return") is Response
        others += [one for one in taken.query_params if not hasattr(one.field_info.annotation, "model_fields")]
        known = all(one.call in KNOWN and one.name is not None for one in taken.dependencies)
        return known and written and not others

    @cached_property
    def _reader(self) -> Handler:
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
                values[query[0]] = _checked(query[1], _query(request), "query")
            if body:
                values[body[0]] = _checked(body[1], sent, "body")
            response: Response = await endpoint(**values)
            return response

        return handle


class Shortcut:
    """Calls direct routes of fixed paths at once: without the search among all routes, and without what Starlette and
    FastAPI put around each for the sake of dependencies that such a route does not have. Pure ASGI."""

    def __init__(self, app: ASGIApp, routes: Iterable[BaseRoute]) -> None:
        """`app` answers whatever else is asked."""
        self.app = app
        self.routes = {
            (method, route.path): (route, route.get_route_handler())
            for route in routes
            if isinstance(route, DirectRoute) and route.direct and "{" not in route.path
            for method in route.methods or ()
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = self.routes.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        if found is None or scope.get("root_path"):
            await self.app(scope, receive, send)
            return
        scope["route"], handle = found
        request = Request(scope, receive, send)
        try:
            response = await handle(request)
        except HANDLED as error:
            response = await failure(request, error)
            error.__traceback__ = None  # its frames hold it: both would wait for the garbage collector
        await response(scope, receive, send)


def _model(fields: Sequence[Any]) -> tuple[str, TypeAdapter[Any]] | None:
    """The name of a parameter and what checks it."""
    for field in fields:
        checked: Any = Annotated[field.field_info.annotation, field.field_info]
        return field.name, TypeAdapter(checked)
    return None


def _query(request: Request) -> dict[str, str]:
    return dict(request.query_params) if request.scope["query_string"] else {}


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
