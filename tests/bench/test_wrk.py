import json
import shutil
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from threading import Thread

import pytest

from bench import wrk

FIGURES = {"requests": 100, "seconds": 2.0, "mean_ms": 1, "p50_ms": 1, "p95_ms": 2, "p99_ms": 3, "largest_ms": 4}
NONE = {"status": 0, "timeout": 0, "connect": 0, "read": 0, "write": 0}


def test_figures_are_read() -> None:
    load = wrk.parse(json.dumps({**FIGURES, "errors": NONE}))
    assert (load.requests, load.seconds, load.p99_ms) == (100, 2.0, 3)


@pytest.mark.parametrize("kind", NONE)
def test_a_run_with_an_error_fails(kind: str) -> None:
    with pytest.raises(wrk.LoadError, match=kind):
        wrk.parse(json.dumps({**FIGURES, "errors": {**NONE, kind: 1}}))


def test_a_run_without_answers_fails() -> None:
    with pytest.raises(wrk.LoadError, match="no request"):
        wrk.parse(json.dumps({**FIGURES, "requests": 0, "errors": NONE}))


class Handler(BaseHTTPRequestHandler):
    """Answers `good` with 200, anything else with 500, and keeps what it was sent."""

    protocol_version = "HTTP/1.1"
    seen: list[bytes]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.seen.append(body)
        self.send_response(200 if b"good" in body else 500)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    Handler.seen = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = Thread(target=running.serve_forever)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


needs_wrk = pytest.mark.skipif(not shutil.which("wrk"), reason="wrk is not installed")


@needs_wrk
def test_bodies_are_sent_in_turn(server: ThreadingHTTPServer, tmp_path: Path) -> None:
    bodies = tmp_path / "bodies"
    bodies.write_text('{"a": "good"}\n{"b": "good"}\n', encoding="utf-8")
    load = wrk.run(f"http://127.0.0.1:{server.server_port}/", bodies, connections=1, seconds=1)
    assert load.requests > 1
    assert all(one != other for one, other in pairwise(Handler.seen))


@needs_wrk
def test_a_refusal_fails_the_run(server: ThreadingHTTPServer, tmp_path: Path) -> None:
    bodies = tmp_path / "bodies"
    bodies.write_text('{"a": "good"}\n{"b": "bad"}\n', encoding="utf-8")
    with pytest.raises(wrk.LoadError, match="status"):
        wrk.run(f"http://127.0.0.1:{server.server_port}/", bodies, connections=1, seconds=1)
