"""Servers that listen, for clients that ask over a real connection."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI

from service.api.app import create_app
from service.settings import Settings
from tests.service.api.conftest import TINY


@contextmanager
def listening(app: Any) -> Iterator[str]:
    """The address of an ASGI application that listens on a free port of the loopback interface."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        time.sleep(0.01)
    try:
        host, port = server.servers[0].sockets[0].getsockname()
        yield f"http://{host}:{port}"
    finally:
        server.should_exit = True
        thread.join()


@contextmanager
def serving(**settings: Any) -> Iterator[tuple[str, FastAPI]]:
    """The service over the tiny model: its address and the application."""
    one = {} if "models" in settings else {"model": TINY}
    app = create_app(Settings(**{**one, "workers": 2, **settings}))
    with listening(app) as url:
        yield url, app


@contextmanager
def overloaded(app: FastAPI) -> Iterator[None]:
    """The queue of a running service looks full."""
    scheduler = app.state.service.scheduler
    scheduler._waiting += scheduler.capacity
    try:
        yield
    finally:
        scheduler._waiting -= scheduler.capacity
