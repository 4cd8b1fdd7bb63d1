"""The command that serves: it answers what it admitted, stops with the right status, and logs no text."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from structlog.testing import capture_logs

from service.api.app import create_app
from service.api.server import allow_files
from service.settings import Settings
from tests.service.api.conftest import TINY

MARKER = "zanzibarquux"
"""A word no log line has reason to hold."""

GUARD = 120.0


class Process:
    """A running `sentiment serve`, on a free port unless told which; all it writes is kept."""

    program = "from service.cli import main; main()"

    def __init__(self, folder: Path, port: int = 0, **settings: Any) -> None:
        if not port:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
        self.log = folder / "log"
        variables = {f"SENTIMENT_{name.upper()}": str(value) for name, value in settings.items()}
        environment = {**os.environ, "SENTIMENT_MODEL": str(TINY), "SENTIMENT_PORT": str(port), **variables}
        with self.log.open("wb") as log:
            command = [sys.executable, "-c", self.program, "serve"]
            self.popen = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=folder)
        self.client = httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=GUARD)

    def wait_until_listening(self) -> None:
        """Return once it answers; fail if it ends before."""
        until = time.monotonic() + GUARD
        while time.monotonic() < until:
            assert self.popen.poll() is None, self.log.read_text()
            try:
                self.client.get("/healthz")
            except httpx2.TransportError:
                time.sleep(0.05)
            else:
                return
        pytest.fail("the service did not start")


@contextmanager
def process(folder: Path, **settings: Any) -> Iterator[Process]:
    started = Process(folder, **settings)
    try:
        started.wait_until_listening()
        yield started
    finally:
        started.client.close()
        started.popen.kill()
        started.popen.wait()


def waiting(server: Process) -> float:
    lines = server.client.get("/metrics").text.splitlines()
    return float(next(line for line in lines if line.startswith("sentiment_queue_depth ")).split()[1])


def long_list(texts: int) -> dict[str, list[str]]:
    return {"inputs": [f"{MARKER} the film is good {number} " * 12 for number in range(texts)]}


def test_on_sigterm_what_was_admitted_is_answered_and_the_status_is_0(tmp_path: Path) -> None:
    with process(tmp_path, workers=1, max_texts=2000) as server:
        answers: list[httpx2.Response] = []
        caller = threading.Thread(target=lambda: answers.append(server.client.post("/classify", json=long_list(2000))))
        caller.start()
        while not waiting(server):
            assert caller.is_alive(), "the list was answered before anything of it was seen to wait"
        server.popen.send_signal(signal.SIGTERM)
        caller.join(GUARD)
        assert answers[0].status_code == 200
        assert answers[0].json()["usage"]["texts"] == 2000
        assert server.popen.wait(GUARD) == 0


@pytest.mark.parametrize(
    ("soft", "hard", "after"), [(1024, 4096, 3000), (1024, -1, 3000), (4096, 4096, 4096), (512, 2000, 2000)]
)
def test_a_process_may_open_as_many_files_as_it_takes_connections(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, after: int
) -> None:
    resource = pytest.importorskip("resource")
    limits = [(soft, hard)]
    monkeypatch.setattr(resource, "getrlimit", lambda _which: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _which, pair: limits.append(pair))
    with capture_logs() as logs:
        allow_files(3000)
    assert limits[-1] == (after, hard)
    assert bool(logs) is (after < 3000)


def test_a_second_signal_ends_it_without_waiting(tmp_path: Path) -> None:
    with process(tmp_path, workers=1, max_texts=2000, request_timeout=600) as server:
        body = {"inputs": ["the film is good . " * 1000] * 100}
        caller = threading.Thread(target=lambda: _ignore_errors(server, body))
        caller.start()
        while not waiting(server):
            assert caller.is_alive()
        server.popen.send_signal(signal.SIGTERM)
        while "Shutting down" not in server.log.read_text():
            time.sleep(0.01)
        server.popen.send_signal(signal.SIGTERM)
        assert server.popen.wait(GUARD) == 1
        caller.join(GUARD)


def _ignore_errors(server: Process, body: dict[str, list[str]]) -> None:
    try:
        server.client.post("/classify", json=body)
    except httpx2.TransportError:
        return


def test_a_port_in_use_is_said_with_a_status_of_its_own(tmp_path: Path) -> None:
    with process(tmp_path) as server:
        port = str(server.client.base_url.port)
        command = [sys.executable, "-c", "from service.cli import main; main()", "serve", "--port", port]
        second = subprocess.run(
            command, env={**os.environ, "SENTIMENT_MODEL": str(TINY)}, capture_output=True, text=True, timeout=GUARD
        )
    assert second.returncode == 3  # what uvicorn ends with when it cannot start
    assert "address already in use" in second.stderr


def test_workers_follow_the_cores_that_may_be_used_unless_a_setting_says_how_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("service.api.app.usable_cores", lambda: 3)
    assert create_app(Settings(model=TINY)).state.service.scheduler.size == 3
    assert create_app(Settings(model=TINY, workers=5)).state.service.scheduler.size == 5
