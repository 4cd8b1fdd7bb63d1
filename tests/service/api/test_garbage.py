"""A request leaves nothing that only the garbage collector could free: it is told to look seldom."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import httpx2
import pytest
from fastapi import FastAPI

from service.errors import OverloadedError
from tests.service.serving import serving

TIMES = 100


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[httpx2.Client, FastAPI]]:
    """A client of the service over a real connection, and the application."""
    with serving() as (url, app), httpx2.Client(base_url=url) as client:
        yield client, app


def text(client: httpx2.Client) -> httpx2.Response:
    return client.post("/classify", json={"inputs": "a good film"})


def vectors(client: httpx2.Client) -> httpx2.Response:
    return client.post("/embed?pool=mean", json={"inputs": ["a good film", ""]})


def wrong(client: httpx2.Client) -> httpx2.Response:
    return client.post("/classify", json={"inputs": []})


def nowhere(client: httpx2.Client) -> httpx2.Response:
    return client.get("/nowhere")


def late(client: httpx2.Client) -> httpx2.Response:
    return client.post("/classify", json={"inputs": ["a b c"] * 50}, headers={"x-request-timeout": "0.00001"})


@pytest.mark.parametrize(("ask", "status"), [(text, 200), (vectors, 200), (wrong, 422), (nowhere, 404), (late, 504)])
def test_requests_leave_no_circles(
    ask: Callable[[httpx2.Client], httpx2.Response], status: int, served: tuple[httpx2.Client, FastAPI]
) -> None:
    assert left(lambda: ask(served[0]), status) < TIMES


def test_nor_do_refusals(served: tuple[httpx2.Client, FastAPI], monkeypatch: pytest.MonkeyPatch) -> None:
    client, app = served
    monkeypatch.setattr(app.state.service.scheduler, "_refusal", lambda _units: OverloadedError("full", retry_after=1))
    assert left(lambda: text(client), 429) < TIMES


def left(ask: Callable[[], httpx2.Response], status: int) -> int:
    """How many objects a number of requests leave for the collector, which does not run meanwhile."""
    assert ask().status_code == status
    gc.collect()
    gc.disable()
    try:
        for _ in range(TIMES):
            ask()
        return gc.collect()
    finally:
        gc.enable()
