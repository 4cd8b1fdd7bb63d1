"""What a connection may take of the service: each limit is met by a client that goes past it, over a real socket."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI
from starlette.testclient import TestClient

from service.api import connections
from service.api.app import create_app
from service.api.connections import PIPELINED, Bounds, Config
from service.settings import Settings
from tests.service.api.conftest import TINY

GUARD = 60.0
"""Seconds after which a test fails that waits for something."""

LONG = 600.0
"""Seconds that do not pass while a test runs."""

GET = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"
HEAD = b"POST /classify HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
BODY = b'{"inputs": "good"}'
POST = HEAD + b"content-length: %d\r\n\r\n" % len(BODY) + BODY


class Service:
    """A service that listens with bounds, and the sockets opened to it."""

    def __init__(self, app: FastAPI, server: uvicorn.Server, stack: ExitStack) -> None:
        self.app = app
        self.server = server
        self.listener = server.servers[0].sockets[0]
        self.address: tuple[str, int] = self.listener.getsockname()
        self.stack = stack

    def connect(self, data: bytes = b"") -> Caller:
        caller = Caller(self.stack.enter_context(socket.create_connection(self.address, timeout=GUARD)))
        self.stack.callback(caller.file.close)
        caller.socket.sendall(data)
        return caller

    def read(self, name: str, **labels: str) -> float:
        return self.app.state.service.metrics.registry.get_sample_value(f"sentiment_{name}", labels) or 0.0

    def until(self, name: str, value: float, **labels: str) -> None:
        wait_until(lambda: self.read(name, **labels) == value)


class Caller:
    """One connection, read answer by answer."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.file = connection.makefile("rb")

    def answer(self) -> tuple[int, dict[str, str], bytes]:
        status = int(self.file.readline().split()[1])
        headers: dict[str, str] = {}
        while line := self.file.readline().strip():
            name, _, value = line.decode().partition(": ")
            assert name not in headers
            headers[name] = value
        return status, headers, self.file.read(int(headers["content-length"]))

    def refused(self, status: int, code: str) -> None:
        """It is told why in the one shape, and the connection ends."""
        found, headers, body = self.answer()
        assert (found, json.loads(body)["error"]["code"], headers["connection"]) == (status, code, "close")
        assert headers["content-type"] == "application/json"
        self.ended()

    def ended(self) -> None:
        with suppress(ConnectionError):
            assert self.file.read(1) == b""

    def trickle(self, data: bytes, seconds: float = 0.02) -> None:
        """Send byte by byte until the other side has had enough."""
        until = time.monotonic() + GUARD
        try:
            for byte in data:
                assert time.monotonic() < until
                self.socket.sendall(bytes([byte]))
                time.sleep(seconds)
        except ConnectionError:
            pass


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + GUARD
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)


@contextmanager
def bounded(
    connections: int = 100, head_bytes: int = 32768, seconds: float = LONG, keep_alive: int = 600, **settings: Any
) -> Iterator[Service]:
    app = create_app(Settings(**{"model": TINY, "workers": 1, "transfer_timeout": seconds, **settings}))
    config = Config(app, Bounds(connections, head_bytes, seconds, keep_alive), port=0, log_config=None)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    with ExitStack() as stack:
        try:
            while not server.started:
                assert thread.is_alive()
                time.sleep(0.01)
            yield Service(app, server, stack)
        finally:
            stack.close()
            server.should_exit = True
            thread.join()


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with bounded(head_bytes=4096) as started:
        yield started


@pytest.fixture(scope="module")
def hasty() -> Iterator[Service]:
    """Gives nobody more than 0.3 seconds."""
    with bounded(seconds=0.3) as started:
        yield started


def test_a_connection_carries_one_request_after_the_other(service: Service) -> None:
    caller = service.connect()
    for request, length in ((GET, None), (POST, None), (GET, None)):
        caller.socket.sendall(request)
        assert caller.answer()[0] == 200, length


@pytest.mark.parametrize(
    "head",
    [
        b"GET /" + b"a" * 5000,
        b"GET /healthz?" + b"a" * 5000,
        b"GET /healthz HTTP/1.1\r\nx: " + b"a" * 5000,
        b"GET /healthz HTTP/1.1\r\n" + b"a" * 5000 + b": b",
        b"GET /healthz HTTP/1.1\r\n" + b"a: b\r\n" * 800,
    ],
    ids=["path", "query", "value", "name", "count"],
)
@pytest.mark.parametrize("whole", [True, False])
def test_a_head_over_the_limit_is_431_whether_or_not_it_ends(service: Service, head: bytes, whole: bool) -> None:
    caller = service.connect(head)
    if whole:
        caller.socket.sendall(b"\r\n\r\n" if b"HTTP" in head else b" HTTP/1.1\r\nhost: x\r\n\r\n")
    caller.refused(431, "head_too_large")


def test_a_head_up_to_the_limit_is_taken(service: Service) -> None:
    caller = service.connect(b"GET /healthz HTTP/1.1\r\nhost: x\r\nx: " + b"a" * 4000 + b"\r\n\r\n")
    assert caller.answer()[0] == 200


@pytest.mark.parametrize(
    "request_",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /healthz HTTP/9.9\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nbad header: x\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nx: a\0b\r\n\r\n",
        HEAD + b"content-length: 18\r\ncontent-length: 19\r\n\r\n" + BODY,
        HEAD + b"content-length: 18\r\ntransfer-encoding: chunked\r\n\r\n" + BODY,
        HEAD + b"transfer-encoding: chunked, identity\r\n\r\n" + BODY,
        HEAD + b"transfer-encoding: chunked\r\n\r\nzz\r\n",
        HEAD + b"content-length: -1\r\n\r\n",
    ],
    ids=["TLS", "version", "path", "name", "NUL", "lengths", "both", "coding", "chunk", "negative"],
)
def test_what_is_no_http_or_can_be_read_in_two_ways_is_400(service: Service, request_: bytes) -> None:
    service.connect(request_).refused(400, "malformed_http")


def test_requests_sent_behind_each_other_are_answered_in_their_order(service: Service) -> None:
    caller = service.connect(POST + GET + POST)
    for key in ("results", "status", "results"):
        status, _, body = caller.answer()
        assert status == 200
        assert key in json.loads(body)


def test_more_of_them_than_anyone_sends_end_the_connection_once_they_are_answered(service: Service) -> None:
    caller = service.connect(GET * 1000)
    for _ in range(PIPELINED + 1):
        assert caller.answer()[0] == 200
    caller.ended()


def test_what_is_no_http_behind_a_request_does_not_spoil_its_answer(service: Service) -> None:
    caller = service.connect(POST + b"nonsense\r\n\r\n")
    assert caller.answer()[0] == 200
    caller.ended()


def test_a_caller_that_leaves_with_requests_behind_each_other_frees_its_texts() -> None:
    with bounded() as service:
        go, begun = threading.Event(), threading.Event()

        def task() -> None:
            begun.set()
            assert go.wait(GUARD)

        service.app.state.service.scheduler.submit([task])
        assert begun.wait(GUARD)
        caller = service.connect(POST)
        service.until("queue_depth", 1)
        caller.socket.sendall(GET)
        caller.file.close()
        caller.socket.close()
        service.until("queue_depth", 0)
        assert service.read("dropped_texts_total", reason="disconnect") == 1
        go.set()


@pytest.mark.parametrize("request_", [GET, POST], ids=["GET", "POST"])
def test_a_head_a_byte_at_a_time_is_cut_off(hasty: Service, request_: bytes) -> None:
    caller = hasty.connect()
    caller.trickle(request_)
    caller.refused(408, "too_slow")


def test_so_is_one_behind_an_answered_request(hasty: Service) -> None:
    caller = hasty.connect(GET)
    assert caller.answer()[0] == 200
    caller.trickle(POST)
    caller.refused(408, "too_slow")


@pytest.mark.parametrize("data", [b"", b"\r\n" * 200], ids=["nothing", "empty lines"])
def test_a_connection_that_asks_nothing_is_closed(hasty: Service, data: bytes) -> None:
    caller = hasty.connect()
    caller.trickle(data)
    caller.ended()


@pytest.mark.parametrize("path", [b"/classify", b"/tei/embed"])
@pytest.mark.parametrize("coding", [b"content-length: 1000", b"transfer-encoding: chunked"])
def test_a_body_a_byte_at_a_time_is_cut_off(hasty: Service, coding: bytes, path: bytes) -> None:
    before = hasty.read("requests_total", method="POST", route=path.decode(), status="408")
    caller = hasty.connect(HEAD.replace(b"/classify", path) + coding + b"\r\n\r\n")
    caller.trickle(b'{"inputs": "' + b"a" * 500 if b"length" in coding else b"1\r\n{\r\n" * 100)
    status, headers, body = caller.answer()
    assert (status, headers["connection"]) == (408, "close")
    assert "did not come within 0.3 seconds" in body.decode()
    assert ("error_type" in json.loads(body)) is (path == b"/tei/embed")
    caller.ended()
    hasty.until("requests_total", before + 1, method="POST", route=path.decode(), status="408")


def test_what_is_left_of_a_body_after_its_answer_is_not_waited_for(hasty: Service) -> None:
    caller = hasty.connect(HEAD.replace(b"application/json", b"text/plain") + b"content-length: 100000\r\n\r\n")
    assert caller.answer()[0] == 415
    caller.trickle(b"a" * 500)
    caller.ended()


def test_a_long_answer_is_no_slow_request(hasty: Service) -> None:
    """The time a text waits and is worked on counts for neither side of the transfer."""
    go = threading.Event()
    hasty.app.state.service.scheduler.submit([lambda: go.wait(GUARD)])
    caller = hasty.connect(POST)
    time.sleep(0.6)
    go.set()
    assert caller.answer()[0] == 200


def test_an_answer_that_is_not_taken_is_dropped() -> None:
    with bounded(seconds=0.5) as service, socket.socket() as connection:
        # Hardly anything fits between the two sides: what the caller does not read, the service has to hold.
        service.listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(GUARD)
        connection.connect(service.address)
        body = json.dumps({"inputs": ["good"] * 500}).encode()
        connection.sendall(HEAD + b"content-length: %d\r\n\r\n" % len(body) + body)
        service.until("requests_total", 1, method="POST", route="/classify", status="200")
        wait_until(lambda: not service.server.server_state.connections)
        read = 0
        with suppress(ConnectionError):
            while part := connection.recv(65536):
                read += len(part)
        assert read < 50_000


def test_an_idle_connection_is_closed_after_its_time() -> None:
    with bounded(keep_alive=1) as service:
        caller = service.connect(GET)
        assert caller.answer()[0] == 200
        caller.ended()


def test_beyond_the_limit_an_idle_connection_makes_room() -> None:
    with bounded(connections=2) as service:
        first, second = service.connect(GET), service.connect()
        assert first.answer()[0] == 200
        second.socket.sendall(GET)
        assert second.answer()[0] == 200
        third = service.connect(GET)
        assert third.answer()[0] == 200
        first.ended()
        second.socket.sendall(GET)
        assert second.answer()[0] == 200


def test_when_none_is_idle_only_health_is_answered_and_after_it_all_is_well() -> None:
    with bounded(connections=2, workers=1) as service:
        go = threading.Event()
        service.app.state.service.scheduler.submit([lambda: go.wait(GUARD)])
        busy = [service.connect(POST), service.connect(POST)]
        service.until("queue_depth", 2)
        service.connect(POST).refused(503, "too_many_connections")
        assert service.read("requests_total", method="POST", route="unmatched", status="503") == 1
        for path in (b"/healthz", b"/readyz"):
            health = service.connect(GET.replace(b"/healthz", path))
            status, headers, _ = health.answer()
            assert (status, headers["connection"]) == (200, "close")
            health.ended()
        silent = service.connect()
        silent.ended()  # after a second: who connects now and says nothing is in the way of health
        go.set()
        for caller in busy:
            assert caller.answer()[0] == 200
        assert service.connect(POST).answer()[0] == 200


def test_a_flood_of_connections_beyond_that_is_not_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "SPARE", 1)
    with bounded(connections=1, workers=1) as service:
        go = threading.Event()
        service.app.state.service.scheduler.submit([lambda: go.wait(GUARD)])
        busy = service.connect(POST)
        service.until("queue_depth", 1)
        spare = service.connect(b"G")
        service.connect(b"G").ended()
        spare.socket.sendall(GET[1:])
        assert spare.answer()[0] == 200
        go.set()
        assert busy.answer()[0] == 200


def test_a_caller_that_leaves_within_its_body_is_no_failure(service: Service) -> None:
    before, failed = (
        service.read("requests_total", method="POST", route="/classify", status=status) for status in ("499", "500")
    )
    caller = service.connect(HEAD + b"content-length: 100\r\n\r\n{")
    service.until("requests_in_flight", 1)
    caller.file.close()
    caller.socket.close()
    service.until("requests_total", before + 1, method="POST", route="/classify", status="499")
    assert service.read("requests_total", method="POST", route="/classify", status="500") == failed


def test_an_unforeseen_failure_leaves_the_connection_open(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(service.app.state.service.models.get(), "classify", fail)
    caller = service.connect()
    for request, expected in ((POST, 500), (GET, 200)):
        caller.socket.sendall(request)
        status, headers, _ = caller.answer()
        assert (status, headers.get("connection")) == (expected, None)


@pytest.mark.parametrize(
    ("path", "keys"),
    [
        ("/classify", {"error"}),
        ("/hf/text-classification", {"error"}),
        ("/tei/predict", {"error", "error_type"}),
        ("/v1/embeddings", {"error"}),
        ("/v2/models/tiny/infer", {"error"}),
    ],
)
def test_a_body_too_large_or_no_json_is_refused_in_its_route_s_shape(path: str, keys: set[str]) -> None:
    app = create_app(Settings(model=TINY, workers=1, max_body_bytes=100))
    nested = path in {"/classify", "/v1/embeddings"}
    with TestClient(app) as client:
        for sent in ({"json": {"inputs": "a" * 100}}, {"content": b"{}", "headers": {"content-type": "text/plain"}}):
            answer = client.post(path, **sent)
            assert answer.status_code in {400, 413, 415}
            assert answer.json().keys() == keys
            assert isinstance(answer.json()["error"], dict) is nested
        # Not declared, and over the limit only as it is read.
        answer = client.post(path, content=iter([b" " * 60] * 2), headers={"content-type": "application/json"})
        assert (answer.status_code, answer.json().keys()) == (413, keys)


def test_an_upgrade_is_not_made(service: Service) -> None:
    head = b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: %b\r\n\r\n"
    for protocol in (b"websocket", b"h2c"):
        assert service.connect(head % protocol).answer()[0] == 200
