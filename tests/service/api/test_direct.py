"""Routes on every text's way are read without FastAPI's solver; any other route is left to it."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI, Query, Response
from pydantic import BaseModel
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

from service.api.app import create_app
from service.api.direct import DirectRoute, Shortcut
from service.settings import Settings
from tests.service.api.conftest import TINY


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


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Has the path of each request that went on to the search among all routes."""
    found: list[str] = []
    handle = ExceptionMiddleware.__call__

    async def noted(self: ExceptionMiddleware, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            found.append(scope["path"])
        await handle(self, scope, receive, send)

    monkeypatch.setattr(ExceptionMiddleware, "__call__", noted)
    return found


OWN = ("x-request-id", "server-timing")
"""Headers that differ from answer to answer."""

TEXTS = {"inputs": ["good", "bad"]}
REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("/classify", {"json": TEXTS}),
    ("/classify?detail=sentences", {"json": TEXTS}),
    ("/embed?pool=mean", {"json": TEXTS}),
    ("/explain", {"json": TEXTS}),
    ("/v1/embeddings", {"json": {"input": "good", "model": "sentiment-en"}}),
    ("/tei/predict", {"json": TEXTS}),
    ("/tei/embed?anything=1", {"json": TEXTS}),
    ("/hf/text-classification", {"json": TEXTS}),
    ("/hf/feature-extraction", {"json": TEXTS}),
    ("/tei/predict?model=nobody", {"json": TEXTS}),
    (f"/tei/predict?model={'n' * 257}", {"json": TEXTS}),
    ("/tei/predict", {"json": {"inputs": 1}}),
    ("/classify", {"json": {"inputs": []}}),
    ("/classify", {"json": {"inputs": "", "wrong": 1}}),
    ("/classify?wrong=1", {"json": TEXTS}),
    ("/classify?model=nobody", {"json": TEXTS}),
    ("/classify", {"content": "{", "headers": {"content-type": "application/json"}}),
    ("/classify", {"content": b"\xff", "headers": {"content-type": "application/json"}}),
    ("/classify", {"content": "a", "headers": {"content-type": "text/plain"}}),
    ("/v1/embeddings", {"json": {"input": 1, "model": "sentiment-en"}}),
    ("/classify", {"json": TEXTS, "headers": {"x-request-timeout": "soon"}}),
]


@pytest.mark.parametrize(("url", "sent"), REQUESTS)
def test_the_short_way_and_the_long_way_answer_alike(
    client: TestClient,
    searched: list[str],
    monkeypatch: pytest.MonkeyPatch,
    url: str,
    sent: dict[str, Any],
) -> None:
    def answered() -> tuple[int, bytes, dict[str, str]]:
        answer = client.post(url, **sent)
        headers = dict(answer.headers)
        return answer.status_code, answer.content, {k: v for k, v in headers.items() if k not in OWN}

    short = answered()
    assert not searched

    async def closed(self: Shortcut, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)

    monkeypatch.setattr(Shortcut, "__call__", closed)
    assert answered() == short
    assert bool(searched) is (short[0] != 415)


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/classify", 405), ("GET", "/info", 200), ("POST", "/nowhere", 404)]
)
def test_what_is_no_direct_route_is_searched(
    client: TestClient, searched: list[str], method: str, path: str, status: int
) -> None:
    assert client.request(method, path, json={}).status_code == status
    assert searched == [path]


def test_below_a_prefix_a_route_is_searched(searched: list[str]) -> None:
    app = create_app(Settings(model=TINY, workers=1))
    with TestClient(app, root_path="/under") as client:
        assert client.post("/under/classify", json=TEXTS).status_code == 200
    assert searched == ["/under/classify"]
