"""No text, and no key, is logged at any level: one marker goes through every operation there is and every way to fail.

The operations are those of the service's own description, so that a new one fails here until it has a body.
"""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from tests.service.api.conftest import TINY
from tests.service.api.test_server import Process

MARKER = "zanzibarquux"
"""A word no log line has reason to hold."""

KEY, ADMIN = "keykeyquuxone", "keykeyquuxtwo"
GUARD = 120.0

BODIES: dict[tuple[str, str], Callable[[str], dict[str, Any]]] = {
    ("post", "/classify"): lambda text: {"inputs": [text]},
    ("post", "/embed"): lambda text: {"inputs": text},
    ("post", "/explain"): lambda text: {"inputs": text},
    ("post", "/hf/text-classification"): lambda text: {"inputs": text},
    ("post", "/hf/feature-extraction"): lambda text: {"inputs": text},
    ("post", "/tei/predict"): lambda text: {"inputs": text},
    ("post", "/tei/embed"): lambda text: {"inputs": text},
    ("post", "/v1/embeddings"): lambda text: {"model": "tiny", "input": [text]},
    ("post", "/v2/models/{model}/infer"): lambda text: {
        "inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": [text]}]
    },
    ("put", "/admin/default"): lambda text: {"model": text},
    ("put", "/admin/models/{name}"): lambda text: {"path": text},
}
"""What each operation that takes a body takes, for a text."""

TEXTS = [MARKER, f"{MARKER} " * 20, f"{MARKER} " * 300, f"{MARKER}\0", f"{MARKER}\ud800", f"fail {MARKER}"]
"""Read, in windows, too long, with what is refused, and one at which the engine fails."""

FAILING = """
import service.inference, service.tokenizer
from service.api import routes, schemas

read, explained = service.tokenizer.Tokenizer.read, schemas.explain_result

def failing(self, text):
    if text.startswith("fail"):
        raise ValueError(f"the engine failed at {text}")
    return read(self, text)

def unexpected(one, text, shown):
    if len(text) < 20:
        raise ValueError(f"nobody thought of {text}")
    return explained(one, text, shown)

service.tokenizer.Tokenizer.read = failing
routes.schemas.explain_result = unexpected
from service.cli import main
main()
"""
"""The service, but that it fails with errors that quote the text: in a worker, and where a request is answered."""


class Loud(Process):
    """That service at log level debug, what it writes to either stream kept."""

    program = FAILING


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loud]:
    started = Loud(
        tmp_path_factory.mktemp("log"),
        log_level="debug",
        max_characters=500,
        max_body_bytes=20_000,
        max_head_bytes=8192,
        transfer_timeout=30,
        api_keys=KEY,
        admin_keys=ADMIN,
        models_dir=TINY.parent,
    )
    try:
        started.wait_until_listening()
        started.client.headers["authorization"] = f"Bearer {ADMIN}"
        yield started
    finally:
        started.client.close()
        started.popen.kill()
        started.popen.wait()


def contents(body: dict[str, Any], make: Callable[[str], dict[str, Any]]) -> Iterator[bytes]:
    """Bodies that are right, wrong in each field, or no JSON, a marker in all of them."""
    yield from (json.dumps(make(text)).encode() for text in TEXTS)
    for field in body:
        for wrong in (MARKER, [MARKER, 5], {MARKER: MARKER}, [[MARKER]], 5):
            yield json.dumps({**body, field: wrong}).encode()
    yield json.dumps({**body, MARKER: MARKER, "top_k": MARKER, "parameters": {"top_k": MARKER}}).encode()
    yield json.dumps([MARKER]).encode()
    yield json.dumps(MARKER).encode()
    yield f'{{"inputs": "{MARKER}'.encode()
    yield f'{{"inputs": {MARKER}}}'.encode()
    yield b'{"inputs": "' + MARKER.encode() + b'\xff\xfe"}'
    yield json.dumps(make(MARKER * 3000)).encode()
    yield b"[" * 5000 + MARKER.encode()


def ask(server: Loud, method: str, path: str, content: bytes | None = None, **headers: str) -> int:
    kind = {"content-type": "application/json"} if content is not None else {}
    return server.client.request(method, path, content=content, headers={**kind, **headers}).status_code


def raw(server: Loud, data: bytes) -> None:
    address = (server.client.base_url.host, server.client.base_url.port or 0)
    with socket.create_connection(address, timeout=GUARD) as connection, suppress(ConnectionError):
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass


def everything(server: Loud) -> list[int]:
    """Ask everything in every way; the statuses of the answers."""
    paths = server.client.get("/openapi.json").json()["paths"]
    name = server.client.get("/info").json()["model"]
    statuses = []
    operations = [(method, path, one) for path, all_ in paths.items() for method, one in all_.items()]
    for method, path, operation in sorted(operations, key=lambda one: one[1].startswith("/admin")):
        there = path.replace("{model}", name).replace("{name}", "other")
        makes = BODIES.get((method, path))
        assert ("requestBody" in operation) is (makes is not None), f"{method} {path} needs a body here"
        bodies = list(contents(makes(MARKER), makes)) if makes else [None]
        statuses += [ask(server, method, there, body) for body in bodies]
        body = bodies[0]
        for query in (f"{MARKER}=1", f"model={MARKER}", f"long_text={MARKER}&pool={MARKER}&dimensions={MARKER}"):
            statuses.append(ask(server, method, f"{there}?{query}", body))
        for header in ("x-request-timeout", "content-type", "content-encoding", "user-agent", "accept", "cookie"):
            statuses.append(ask(server, method, there, body, **{header: MARKER}))
        statuses.append(ask(server, method, there, body, authorization=f"Bearer {MARKER}"))
        statuses.append(ask(server, method, there, body, authorization="", **{"x-api-key": MARKER}))
        statuses.append(ask(server, method, f"{there}/{MARKER}", body))
        statuses.append(ask(server, "patch", f"{there}?{MARKER}", body or MARKER.encode()))
        if "{" in path:
            statuses.append(ask(server, method, path.replace("{model}", MARKER).replace("{name}", "/"), body))
    return statuses


def test_a_marker_sent_through_everything_stands_nowhere_in_what_is_written(server: Loud) -> None:
    statuses = everything(server)
    assert {200, 400, 401, 404, 405, 413, 415, 422, 500} <= set(statuses)
    head = f"POST /classify HTTP/1.1\r\nhost: x\r\nx-api-key: {KEY}\r\ncontent-type: application/json\r\n".encode()
    mark = MARKER.encode()
    for data in (
        mark + b" / HTTP/1.1\r\n\r\n",
        b"GET /" + mark + b"\xff HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + mark + b" " + mark + b": x\r\n\r\n",
        b"GET / HTTP/1.1\r\nx: " + mark * 2000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: " + mark + b"\r\n\r\n" + mark,
        head + b"content-length: 500\r\n\r\n" + b'{"inputs": "' + mark,
        head + b"transfer-encoding: chunked\r\n\r\n" + mark,
        head + b"transfer-encoding: chunked\r\n\r\nc\r\n" + mark + b"\r\n" + mark,
    ):
        raw(server, data)
    server.popen.send_signal(signal.SIGTERM)
    assert server.popen.wait(GUARD) == 0
    written = server.log.read_text()
    lines = [json.loads(line) for line in written.splitlines()]
    assert sum(line["event"] == "request" for line in lines) >= len(statuses)
    assert {"task failed", "unexpected failure"} <= {line["event"] for line in lines}
    assert {line["level"] for line in lines} >= {"debug", "info", "warning", "error"}
    for secret in (MARKER, KEY, ADMIN):
        assert not [line for line in written.splitlines() if secret in line]
