"""A run that goes wrong fails its own caller, says so, and leaves the service as it was.

A worker's death is in tests/service/api/test_guards.py (one of two) and tests/service/test_scheduler.py (the last).
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx2
import numpy as np
import onnxruntime
import pytest
from fastapi import FastAPI

from service.inference import Inference
from service.settings import DEFAULT_MODEL
from tests.service.serving import serving

GUARD = 60.0
ALLOCATION = "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : bfc_arena.cc: Failed to allocate memory for requested buffer"


@pytest.fixture
def service() -> Iterator[tuple[str, Inference]]:
    with serving(workers=2) as (url, app):
        for thread in threading.enumerate():
            if thread.name == "hasten":
                thread.join(GUARD)
        yield url, model_of(app)


def model_of(app: FastAPI) -> Inference:
    found: Inference = app.state.service.models.get(None)
    return found


class Failing:
    """A session that fails for texts of one length."""

    def __init__(self, session: Any, tokens: int, error: BaseException) -> None:
        self.session, self.tokens, self.error = session, tokens, error

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session, name)

    def run(self, outputs: list[str], feed: dict[str, Any], *options: Any) -> Any:
        if self.tokens in feed.get("lengths", [feed["input_ids"].shape[1]]):
            raise self.error
        return self.session.run(outputs, feed, *options)


def post(url: str, inputs: object) -> httpx2.Response:
    return httpx2.post(f"{url}/classify", json={"inputs": inputs}, timeout=GUARD)


@pytest.mark.parametrize(
    "error",
    [
        onnxruntime.capi.onnxruntime_pybind11_state.RuntimeException(ALLOCATION),
        MemoryError("std::bad_alloc"),
        RuntimeError("anything"),
    ],
    ids=["memory refused in the arena", "memory refused outside", "any other"],
)
def test_a_run_that_fails_is_its_own_callers_500(
    service: tuple[str, Inference], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    url, model = service
    before = post(url, "good film").json()["results"]
    # The length of the failing text alone: [CLS] good good good [SEP].
    tokens = post(url, "good good good").json()["usage"]["tokens"]
    other = post(url, "good").json()["usage"]["tokens"]
    assert tokens != other
    engine = model._engine
    assert engine._packed
    for graph in (engine._classify, engine._packed):
        monkeypatch.setattr(graph, "_session", Failing(graph._session, tokens, error))
    failed = post(url, "good good good")
    assert failed.status_code == 500
    assert failed.json()["error"]["code"] == "inference_failed"
    assert "good" not in failed.json()["error"]["message"]
    mixed = post(url, ["good", "good good good", "good"])
    assert mixed.status_code == 200
    assert ["error" in one for one in mixed.json()["results"]] == [False, True, False]
    assert httpx2.get(f"{url}/readyz", timeout=GUARD).status_code == 200
    monkeypatch.undo()
    assert post(url, "good film").json()["results"] == before


def test_a_failing_window_fails_its_text_and_no_other(
    service: tuple[str, Inference], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, model = service
    text = "the film is good . " * 40
    windows = post(url, text).json()["results"][0]["windows"]
    assert windows > 2
    runs: list[int] = []

    class First(Failing):
        def run(self, outputs: list[str], feed: dict[str, Any], *options: Any) -> Any:
            runs.append(feed["input_ids"].shape[1])
            if len(runs) == 1:
                raise self.error
            return self.session.run(outputs, feed, *options)

    graph = model._engine._classify
    monkeypatch.setattr(graph, "_session", First(graph._session, 0, RuntimeError()))
    assert post(url, text).status_code == 500
    assert len(runs) < windows
    assert post(url, ["good", text]).status_code == 200


def test_memory_that_the_system_refuses_fails_the_run_and_no_later_one() -> None:
    """The same with a real refusal, of what 512 tokens take, in a child whose address space is bounded."""
    pytest.importorskip("resource")
    done = subprocess.run([sys.executable, "-c", BOUNDED, str(DEFAULT_MODEL)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    refused, later = done.stdout.splitlines()
    assert refused.startswith("the run failed: ")  # which kind of error depends on the node that asked first
    assert later == "True"


BOUNDED = """
import resource, sys
from pathlib import Path
import numpy as np
from service.artifact import Artifact
from service.engine import Engine
from service.errors import EngineError

engine = Engine(Artifact.open(Path(sys.argv[1])))
ids = np.arange(2000, 2512)
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used, resource.RLIM_INFINITY))
try:
    engine.classify(ids)
except EngineError as error:
    refused = error
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(refused.message)
print(np.isfinite(engine.classify(ids).logits).all())
"""


def test_a_service_without_workers_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readiness turns red with the first worker's death; with the last one nothing is admitted any more."""
    monkeypatch.setattr(threading, "excepthook", lambda _: None)

    def dies() -> None:
        raise SystemExit

    with serving(workers=1) as (url, app):
        app.state.service.scheduler.submit([dies])
        until = time.monotonic() + GUARD
        while app.state.service.scheduler.alive:
            assert time.monotonic() < until
            time.sleep(0.005)
        ready = httpx2.get(f"{url}/readyz", timeout=GUARD)
        answer = post(url, "good")
        assert (ready.status_code, answer.status_code) == (503, 503)
        assert answer.json()["error"]["code"] == "unavailable"
        assert httpx2.get(f"{url}/healthz", timeout=GUARD).status_code == 200


def test_ids_that_the_graph_does_not_know_are_a_failed_run(service: tuple[str, Inference]) -> None:
    """What onnxruntime raises of itself, not what a test says it would."""
    _, model = service
    with pytest.raises(Exception, match="the run failed"):
        model._engine.classify(np.array([1, 10**6, 2]))


def test_a_process_that_ends_while_its_sessions_are_made_ends_well() -> None:
    code = (
        "from fastapi.testclient import TestClient\n"
        "from service.api.app import create_app\n"
        "from service.settings import Settings\n"
        f"with TestClient(create_app(Settings(model={str(DEFAULT_MODEL)!r}))): pass"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=GUARD, check=False)
    assert (done.returncode, done.stderr) == (0, "")
