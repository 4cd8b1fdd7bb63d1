"""Routes on every text's way are read without FastAPI's solver; any other route is left to it."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI, Query, Response
from pydantic import BaseModel
from starlette.testclient import TestClient

from service.api.direct import DirectRoute


class Some(BaseModel):
    number: int = 1


def unknown() -> int:
    return 5


async def by_value(number: int) -> Response:
    return Response(str(number))


async def with_a_dependency(query: Annotated[Some, Query()], more: Annotated[int, Depends(unknown)]) -> Response:
    return Response(str(query.number + more))


async def unwritten(query: Annotated[Some, Query()]) -> int:
    return query.number


async def direct(query: Annotated[Some, Query()]) -> Response:
    return Response(str(query.number))


@pytest.fixture
def solved(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Has an entry for each request that FastAPI's solver read."""
    from fastapi import routing

    found: list[bool] = []
    solve: Any = routing.solve_dependencies  # type: ignore[attr-defined]

    async def noted(**given: Any) -> Any:
        found.append(True)
        return await solve(**given)

    monkeypatch.setattr(routing, "solve_dependencies", noted)
    return found


@pytest.mark.parametrize(
    ("endpoint", "left", "answer"),
    [(by_value, True, "3"), (with_a_dependency, True, "8"), (unwritten, True, "3"), (direct, False, "3")],
)
def test_what_it_cannot_read_is_left_to_fastapi(solved: list[bool], endpoint: Any, left: bool, answer: str) -> None:
    app = FastAPI()
    app.router.route_class = DirectRoute
    app.get("/")(endpoint)
    assert TestClient(app).get("/?number=3").text == answer
    assert bool(solved) is left


@pytest.mark.parametrize("route", ["/classify", "/embed", "/explain"])
def test_the_routes_of_texts_are_read_directly(client: TestClient, solved: list[bool], route: str) -> None:
    assert client.post(route, json={"inputs": "good"}, headers={"x-request-timeout": "9"}).status_code == 200
    assert not solved
