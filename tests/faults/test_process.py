"""Signals to the real process: what was admitted is answered, a limit ends it, and its port is free at once.

A second SIGTERM, and that a list of 2,000 texts is answered after one, are in tests/service/api/test_server.py.
"""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2

from tests.service.api.test_server import GUARD, Process, process, waiting


@contextmanager
def callers(server: Process, bodies: list[dict[str, list[str]]]) -> Iterator[list[httpx2.Response | Exception]]:
    """Ask all at once; the answers, or what came instead, are there once the block ends."""
    found: list[httpx2.Response | Exception] = []

    def ask(body: dict[str, list[str]]) -> None:
        try:
            found.append(server.client.post("/classify", json=body))
        except httpx2.TransportError as error:
            found.append(error)

    threads = [threading.Thread(target=ask, args=(body,)) for body in bodies]
    for thread in threads:
        thread.start()
    yield found
    for thread in threads:
        thread.join(GUARD)


def wait_for(server: Process, texts: int) -> None:
    """Until so many texts wait."""
    until = time.monotonic() + GUARD
    while waiting(server) < texts:
        assert time.monotonic() < until, "the texts were not queued"


def test_sigterm_in_the_middle_of_2000_queued_texts_of_many_callers(tmp_path: Path) -> None:
    """Each caller has all of its answers; who comes later is turned away; the status is 0."""
    bodies = [{"inputs": ["the film is good . " * 50] * 200}] * 10
    with process(tmp_path, workers=1, queue=4000, request_timeout=600, grace_period=100) as server:
        with callers(server, bodies) as answers:
            wait_for(server, 1000)
            server.popen.send_signal(signal.SIGTERM)
        assert server.popen.wait(GUARD) == 0
    answered = [answer for answer in answers if isinstance(answer, httpx2.Response) and answer.status_code == 200]
    turned_away = [answer for answer in answers if answer not in answered]
    # A request that was read after the signal had not been admitted.
    assert all(not isinstance(one, httpx2.Response) or one.status_code == 503 for one in turned_away)
    assert len(answered) >= 5
    assert all(answer.json()["usage"]["texts"] == 200 for answer in answered)


def test_the_end_of_the_grace_period_stops_it(tmp_path: Path) -> None:
    """What is not answered by then is given up, and the status says so."""
    body = {"inputs": ["the film is good . " * 300] * 650}  # some 16,000 runs
    with process(tmp_path, workers=1, queue=100_000, request_timeout=600, grace_period=1) as server:
        with callers(server, [body]) as answers:
            wait_for(server, 1)
            began = time.monotonic()
            server.popen.send_signal(signal.SIGTERM)
            assert server.popen.wait(GUARD) == 1
        assert time.monotonic() - began < GUARD / 2
    (answer,) = answers
    assert isinstance(answer, httpx2.Response)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unavailable")


def test_after_sigkill_it_starts_again_on_the_same_port_and_answers_the_same(tmp_path: Path) -> None:
    with process(tmp_path, workers=2) as server:
        port = server.client.base_url.port
        before = server.client.post("/classify", json={"inputs": "good"}).json()
        with callers(server, [{"inputs": ["the film is good . " * 40] * 500}]) as answers:
            wait_for(server, 1)
            server.popen.send_signal(signal.SIGKILL)
        assert server.popen.wait(GUARD) == -signal.SIGKILL
        assert all(isinstance(answer, Exception) for answer in answers)  # the connection broke: nothing was made up
        with process(tmp_path, workers=2, port=port) as again:
            url = f"http://127.0.0.1:{port}/classify"
            assert httpx2.post(url, json={"inputs": "good"}, timeout=GUARD).json() == before
            assert again.popen.poll() is None


def test_a_signal_before_it_serves_ends_it(tmp_path: Path) -> None:
    """While it loads its model there is nothing to be answered."""
    started = Process(tmp_path)
    try:
        started.popen.send_signal(signal.SIGTERM)
        assert started.popen.wait(GUARD) in {0, 1, -signal.SIGTERM}
    finally:
        started.client.close()
        with_force(started.popen)


def with_force(popen: subprocess.Popen[bytes]) -> None:
    popen.kill()
    popen.wait()
