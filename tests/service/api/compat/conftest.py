"""One running service for all tests of a file."""

from __future__ import annotations

from collections.abc import Iterator

import httpx2
import pytest
from fastapi import FastAPI

from tests.service.serving import serving


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[str, FastAPI]]:
    """The address of the service, and its application."""
    with serving(max_texts=8) as found:
        yield found


@pytest.fixture(scope="module")
def url(served: tuple[str, FastAPI]) -> str:
    """The address of the service."""
    return served[0]


@pytest.fixture(scope="module")
def plain(served: tuple[str, FastAPI]) -> Iterator[httpx2.Client]:
    """A client that knows nothing of a peer."""
    with httpx2.Client(base_url=served[0]) as made:
        yield made


@pytest.fixture
def app(served: tuple[str, FastAPI]) -> FastAPI:
    """The application that listens there."""
    return served[1]


@pytest.fixture
def model(app: FastAPI) -> str:
    """The name of the model that is served."""
    name: str = app.state.service.models.get().name
    return name


@pytest.fixture
def unloaded(app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service has no model yet."""
    monkeypatch.setattr(app.state.service.models, "_models", {})
    monkeypatch.setattr(app.state.service.models, "_started", False)
