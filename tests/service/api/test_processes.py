"""Several processes on one port look like one: ready together, counted together, stopped together."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from service.api.app import create_app
from service.api.siblings import Place, Siblings
from service.metrics import Metrics
from service.settings import Settings
from tests.service.api.conftest import TINY
from tests.service.api.test_server import GUARD, Process, process


def samples(text: str) -> dict[tuple[str, tuple[str, ...]], float]:
    return {
        (one.name, tuple(one.labels.values())): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


def children(parent: int) -> list[int]:
    """The processes that serve, without the one that Python keeps for itself beside them."""
    found = Path(f"/proc/{parent}/task/{parent}/children").read_text(encoding="ascii").split()
    return [int(one) for one in found if b"spawn_main" in Path(f"/proc/{one}/cmdline").read_bytes()]


def until_ready(server: Process) -> None:
    """Asked on new connections, which reach one process or another."""
    end = time.monotonic() + GUARD
    while httpx2.get(f"{server.client.base_url}/readyz", timeout=GUARD).status_code != 200:
        assert time.monotonic() < end, server.log.read_text()
        time.sleep(0.05)


def test_metrics_are_those_of_all_processes() -> None:
    both = [Metrics(), Metrics()]
    both[0].texts.labels("tiny", "classify", "ok").inc(3)
    both[1].texts.labels("tiny", "classify", "ok").inc(4)
    both[1].texts.labels("tiny", "embed", "ok").inc(5)
    both[0].queue_seconds.observe(0.002)
    both[1].queue_seconds.observe(0.02)
    for metrics in both:
        metrics.model_loaded("tiny", "digest")
        metrics.ready.set(1)

    async def asked() -> tuple[str, str | None, str | None, str]:
        with TemporaryDirectory() as folder:
            siblings = [Siblings(Place(Path(folder), index, 2), own) for index, own in enumerate(both)]
            async with AsyncExitStack() as stack:
                for one in siblings:
                    await stack.enter_async_context(one.listening())
                whole, ready = (await siblings[0].render()).decode(), await siblings[0].not_ready()
                both[1].ready.set(0)
                one_not = await siblings[0].not_ready()
            return whole, ready, one_not, str(await siblings[0].not_ready())

    whole, ready, one_not, gone = asyncio.run(asked())
    found = samples(whole)
    assert found["sentiment_texts_total", ("tiny", "classify", "ok")] == 7
    assert found["sentiment_texts_total", ("tiny", "embed", "ok")] == 5
    assert found["sentiment_queue_seconds_count", ()] == 2
    assert found["sentiment_queue_seconds_bucket", ("0.0025",)] == 1
    assert found["sentiment_queue_seconds_sum", ()] == pytest.approx(0.022)
    assert found["sentiment_model_info", ("digest", "tiny")] == 1
    assert found["sentiment_ready", ()] == 1
    assert abs(found["process_start_time_seconds", ()] - time.time()) < 10 * GUARD
    assert "# TYPE sentiment_texts_total counter" in whole
    assert ready is None
    assert one_not == "process 2 of 2 is not ready"
    assert gone == "process 2 of 2 does not answer"


def test_a_process_that_dies_is_started_again_and_all_stop_with_one_signal(tmp_path: Path) -> None:
    with process(tmp_path, processes=2, workers=1) as server:
        until_ready(server)
        for _ in range(6):
            answer = httpx2.post(f"{server.client.base_url}/classify", json={"inputs": "good"}, timeout=GUARD)
            assert answer.status_code == 200
        found = samples(server.client.get("/metrics").text)
        assert found["sentiment_texts_total", ("tiny", "classify", "ok")] == 6
        assert found["sentiment_workers_alive", ()] == 2
        first = children(server.popen.pid)
        assert len(first) == 2
        os.kill(first[0], signal.SIGKILL)
        while '"event": "process died"' not in server.log.read_text():
            time.sleep(0.05)
        while len(children(server.popen.pid)) < 2:
            time.sleep(0.05)
        server.client.close()
        until_ready(server)
        assert first[0] not in children(server.popen.pid)
        last = children(server.popen.pid)
        server.popen.send_signal(signal.SIGTERM)
        assert server.popen.wait(GUARD) == 0
        assert not [one for one in last if Path(f"/proc/{one}").exists()]


def test_processes_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    with process(tmp_path, processes=2, workers=1) as server:
        until_ready(server)
        found = children(server.popen.pid)
        server.popen.kill()
        end = time.monotonic() + GUARD
        while any(Path(f"/proc/{one}").exists() for one in found):
            assert time.monotonic() < end
            time.sleep(0.05)


def test_a_port_in_use_is_said(tmp_path: Path) -> None:
    with process(tmp_path) as server:
        second = Process(tmp_path, server.client.base_url.port or 0, processes=2)
        assert second.popen.wait(GUARD) == 3
        assert "already in use" in second.log.read_text()


def test_the_cores_are_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.api.app.usable_cores", lambda: 6)
    for processes, workers in ((1, 6), (2, 3), (4, 1), (8, 1)):
        app = create_app(Settings(model=TINY, processes=processes))
        assert app.state.service.scheduler.size == workers


def test_administration_would_reach_one_process_alone() -> None:
    with pytest.raises(ValueError, match="administration would reach one of them alone"):
        Settings(processes=2, admin_keys="secret")
