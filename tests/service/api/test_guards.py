"""Waiting ends with the answer, the deadline or the caller's leaving; what had not run by then never runs."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from tests.service.serving import serving

GUARD = 60.0


class Held:
    """A service of one worker that is kept busy until it is let go."""

    def __init__(self, url: str, app: FastAPI) -> None:
        self.url = url
        self.metrics = app.state.service.metrics
        self.scheduler = app.state.service.scheduler
        self.let_go = threading.Event()
        begun = threading.Event()

        def task() -> None:
            begun.set()
            assert self.let_go.wait(GUARD)

        self.scheduler.submit([task])
        assert begun.wait(GUARD)

    def read(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"sentiment_{name}", labels) or 0.0

    def until(self, name: str, value: float, **labels: str) -> None:
        end = time.monotonic() + GUARD
        while self.read(name, **labels) != value:
            assert time.monotonic() < end, f"{name} is {self.read(name, **labels)}"
            time.sleep(0.005)


@pytest.fixture
def held() -> Iterator[Held]:
    with serving(workers=1) as (url, app):
        service = Held(url, app)
        yield service
        service.let_go.set()


def test_past_the_deadline_the_caller_is_told_and_nothing_is_run(held: Held) -> None:
    body: dict[str, Any] = {"inputs": ["good"] * 7}
    answer = httpx2.post(f"{held.url}/classify", json=body, headers={"x-request-timeout": "0.05"}, timeout=GUARD)
    assert answer.status_code == 504
    assert answer.json()["error"]["code"] == "deadline_exceeded"
    assert "0.05 seconds" in answer.json()["error"]["message"]
    assert held.read("dropped_texts_total", reason="deadline") == 7
    assert held.read("queue_depth") == 0
    held.let_go.set()
    held.until("running_texts", 0)
    assert held.read("texts_total", operation="classify", outcome="ok") == 0


def test_a_caller_that_leaves_frees_its_queued_texts(held: Held) -> None:
    body = json.dumps({"inputs": ["good"] * 9}).encode()
    host, port = held.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as caller:
        head = (
            f"POST /embed HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        caller.sendall(head.encode() + body)
        held.until("queue_depth", 9)
    held.until("queue_depth", 0)
    assert held.read("dropped_texts_total", reason="disconnect") == 9
    held.until("requests_total", 1, method="POST", route="/embed", status="499")


def test_health_is_answered_while_every_worker_is_busy(held: Held) -> None:
    for route in ("/healthz", "/readyz", "/metrics", "/info"):
        assert httpx2.get(held.url + route, timeout=GUARD).status_code == 200


def test_a_worker_that_dies_turns_readiness_red_and_its_caller_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)

    def dies() -> None:
        raise SystemExit

    with serving(workers=2) as (url, app):
        workers = set(threading.enumerate())
        outcome = app.state.service.scheduler.submit([dies]).result(GUARD)
        end = time.monotonic() + GUARD
        while workers <= set(threading.enumerate()):
            assert time.monotonic() < end, "no worker died"
            time.sleep(0.005)
        assert outcome[0].code == "inference_failed"
        ready = httpx2.get(f"{url}/readyz", timeout=GUARD)
        assert ready.status_code == 503
        assert ready.json()["error"] == {"code": "not_ready", "message": "1 of 2 workers died"}
        assert httpx2.get(f"{url}/healthz", timeout=GUARD).status_code == 200
        answer = httpx2.post(f"{url}/classify", json={"inputs": "good"}, timeout=GUARD)
        assert answer.status_code == 200


def test_a_service_that_drains_is_not_ready_and_admits_nothing() -> None:
    with serving(workers=1) as (url, app):
        app.state.service.scheduler.drain()
        assert httpx2.get(f"{url}/readyz", timeout=GUARD).json()["error"]["message"] == "the service is stopping"
        answer = httpx2.post(f"{url}/classify", json={"inputs": "good"}, timeout=GUARD)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unavailable")
