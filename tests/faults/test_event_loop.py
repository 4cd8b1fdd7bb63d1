"""A refusal has to be cheap: nothing that a request needs before admission waits for a thread."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

from fastapi.dependencies.models import Dependant
from fastapi.routing import iter_route_contexts

from service.api.app import create_app
from service.settings import Settings
from tests.service.api.conftest import TINY


def called(dependant: Dependant) -> Iterator[Callable[..., Any]]:
    """The function of a route and all that it depends on."""
    if dependant.call:
        yield dependant.call
    for inner in dependant.dependencies:
        yield from called(inner)


def test_no_route_and_no_dependency_runs_on_a_thread_of_its_own() -> None:
    """FastAPI runs a plain function on one of 40 threads: at five times capacity requests waited there for seconds, not
    admitted and not refused, past their deadline."""
    routes = list(iter_route_contexts(create_app(Settings(model=TINY)).routes))
    dependants = {route.path: route.dependant for route in routes if getattr(route, "dependant", None)}
    assert len(dependants) > 20
    plain = {
        (path, call)
        for path, dependant in dependants.items()
        for call in called(dependant)
        if not (inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(getattr(call, "__call__", None)))  # noqa: B004
    }
    assert not plain
