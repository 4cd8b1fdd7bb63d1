"""The application over the tiny model, as a client sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from service.api.app import create_app
from service.settings import Settings

TINY = Path(__file__).parents[2] / "tiny"
Start = Callable[..., TestClient]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start applications with the settings a test asks for."""
    with ExitStack() as stack:

        def started(**settings: Any) -> TestClient:
            one = {} if "models" in settings else {"model": TINY}
            app = create_app(Settings(**{**one, "workers": 2, **settings}))
            return stack.enter_context(TestClient(app, raise_server_exceptions=False))

        yield started


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    """One application for all tests of a file that change nothing."""
    with TestClient(create_app(Settings(model=TINY, workers=2)), raise_server_exceptions=False) as started:
        yield started
