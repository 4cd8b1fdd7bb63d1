"""Our own client, with and without asyncio, against running servers."""

from __future__ import annotations

import asyncio
import inspect
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from service import client as module
from service.client import (
    AsyncSentimentClient,
    DeadlineError,
    InvalidRequestError,
    OverloadedError,
    SentimentClient,
    SentimentError,
    UnauthorizedError,
    UnavailableError,
)
from tests.service.serving import listening, overloaded, serving

TEXT = "the film is good"
Ask = Callable[..., Any]
"""Calls a method of a client: of the one kind or the other."""


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[str, FastAPI]]:
    with serving() as found:
        yield found


@pytest.fixture
def url(served: tuple[str, FastAPI]) -> str:
    return served[0]


@pytest.fixture(params=["sync", "async"])
def ask(request: pytest.FixtureRequest, url: str) -> Ask:
    """Ask the service, or the server at another `url`, through a client of one kind."""

    def waiting(method: str, *args: Any, to: str, options: dict[str, Any], **asked: Any) -> Any:
        with SentimentClient(to, **options) as client:
            return getattr(client, method)(*args, **asked)

    async def with_asyncio(method: str, *args: Any, to: str, options: dict[str, Any], **asked: Any) -> Any:
        async with AsyncSentimentClient(to, **options) as client:
            return await getattr(client, method)(*args, **asked)

    def asked(method: str, *args: Any, to: str = url, options: dict[str, Any] | None = None, **more: Any) -> Any:
        # Certificates take long to load and are of no use here.
        options = {"verify": False, **(options or {})}
        if request.param == "sync":
            return waiting(method, *args, to=to, options=options, **more)
        return asyncio.run(with_asyncio(method, *args, to=to, options=options, **more))

    return asked


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE", 0.01)


class Script:
    """A server that answers each request with the next of its responses, the last one for ever."""

    def __init__(self, *responses: Response) -> None:
        self.responses = list(responses)
        self.seen: list[Request] = []
        self.app = Starlette(routes=[Route("/{path:path}", self.answer, methods=["GET", "POST"])])

    async def answer(self, request: Request) -> Response:
        self.seen.append(request)
        await request.body()
        return self.responses.pop(0) if len(self.responses) > 1 else self.responses[0]


def response(status: int, body: str = "{}", **headers: str) -> Response:
    return Response(body, status, {name.replace("_", "-"): value for name, value in headers.items()})


OK = response(200, '{"results": []}')


def test_classify(ask: Ask) -> None:
    answer = ask("classify", [TEXT, "", "\ud800"], top_k=1, raw_scores=True, min_score=0.999, detail="sentences")
    first, *failed = answer["results"]
    assert first["abstained"]
    assert len(first["scores"]) == len(first["logits"]) == len(first["sentences"]) == 1
    assert [result["error"]["code"] for result in failed] == ["empty_text", "lone_surrogate"]
    assert answer["usage"]["texts"] == 1


def test_embed(ask: Ask) -> None:
    answer = ask("embed", (TEXT,), pool="mean", normalize=True, dimensions=4, long_text="error")
    assert (answer["pool"], answer["dimensions"], len(answer["embeddings"][0])) == ("mean", 4, 4)
    assert sum(value**2 for value in answer["embeddings"][0]) == pytest.approx(1, abs=1e-5)


def test_explain_info_and_ready(ask: Ask) -> None:
    (result,) = ask("explain", TEXT)["results"]
    assert [word["word"] for word in result["words"]] == TEXT.split()
    assert ask("info")["labels"] == ["negative", "neutral", "positive"]
    assert ask("ready") is True


def test_a_model_is_asked_by_its_name(ask: Ask) -> None:
    assert [(one["name"], one["default"]) for one in ask("models")["models"]] == [("tiny", True)]
    for call in ("classify", "embed", "explain"):
        assert ask(call, TEXT, model="tiny")["model"] == "tiny"
    assert ask("info", model="tiny")["model"] == "tiny"
    for call, texts in (("classify", [TEXT]), ("embed", [TEXT]), ("explain", [TEXT]), ("info", [])):
        with pytest.raises(InvalidRequestError, match="there is tiny") as raised:
            ask(call, *texts, model="none")
        assert (raised.value.code, raised.value.status) == ("unknown_model", 404)


def test_a_wrong_request_says_what_is_wrong_at_once(ask: Ask) -> None:
    with pytest.raises(InvalidRequestError, match="top_k") as raised:
        ask("classify", TEXT, top_k=0)
    assert (raised.value.code, raised.value.param, raised.value.status) == ("invalid_field", "top_k", 422)
    with pytest.raises(InvalidRequestError) as raised:
        ask("classify", "")
    assert (raised.value.code, raised.value.param) == ("empty_text", "inputs")


def test_a_key_is_sent_and_one_that_does_not_fit_is_an_error(ask: Ask) -> None:
    with serving(api_keys="the-key") as (url, _):
        options: dict[str, Any] = {"api_key": "the-key", "headers": {"x-other": "kept"}}
        assert ask("classify", TEXT, to=url, options=options)["usage"]["texts"] == 1
        for wrong in ({}, {"api_key": "another"}):
            with pytest.raises(UnauthorizedError) as error:
                ask("classify", TEXT, to=url, options=wrong)
            assert (error.value.status, error.value.code, error.value.temporary) == (401, "invalid_api_key", False)
        assert ask("ready", to=url)
    script = Script(OK)
    with listening(script.app) as url:
        ask("info", to=url, options=options)
    assert (script.seen[0].headers["authorization"], script.seen[0].headers["x-other"]) == ("Bearer the-key", "kept")
    assert "the-key" not in repr(vars(SentimentClient("http://127.0.0.1:1", api_key="the-key", verify=False)))


def test_a_full_queue_that_empties(ask: Ask, served: tuple[str, FastAPI]) -> None:
    with overloaded(served[1]), pytest.raises(OverloadedError) as raised:
        ask("classify", TEXT, options={"retries": 0})
    assert (raised.value.code, raised.value.status) == ("overloaded", 429)
    assert raised.value.retry_after >= 1


def test_retry_after_is_waited_for(ask: Ask) -> None:
    script = Script(response(429, retry_after="1"), OK)
    with listening(script.app) as url:
        began = time.monotonic()
        assert ask("classify", TEXT, to=url) == {"results": []}
    assert 1 <= time.monotonic() - began < 3
    assert len(script.seen) == 2


def test_a_retry_after_beyond_the_deadline_is_not_waited_for(ask: Ask) -> None:
    script = Script(response(503, retry_after="60"))
    with listening(script.app) as url:
        began = time.monotonic()
        with pytest.raises(UnavailableError):
            ask("classify", TEXT, to=url, options={"timeout": 5})
    assert time.monotonic() - began < 3
    assert len(script.seen) == 1


@pytest.mark.parametrize(
    ("status", "error", "sent"),
    [
        (429, OverloadedError, 3),
        (502, UnavailableError, 3),
        (503, UnavailableError, 3),
        (504, DeadlineError, 1),
        (500, SentimentError, 1),
        (404, InvalidRequestError, 1),
    ],
)
def test_what_may_pass_is_asked_again(ask: Ask, status: int, error: type[SentimentError], sent: int) -> None:
    script = Script(PlainTextResponse("a proxy's own words", status))
    with listening(script.app) as url, pytest.raises(error) as raised:
        ask("classify", TEXT, to=url, options={"retries": 2})
    assert (raised.value.code, raised.value.status, type(raised.value)) == ("http_error", status, error)
    assert len(script.seen) == sent


def test_an_answer_that_is_not_json_is_an_error(ask: Ask) -> None:
    with listening(Script(PlainTextResponse("hello")).app) as url, pytest.raises(SentimentError, match="200 OK"):
        ask("info", to=url)


def test_not_ready(ask: Ask) -> None:
    with listening(Script(response(503)).app) as url:
        assert ask("ready", to=url) is False
    assert ask("ready", to=url) is False


def test_the_service_is_told_how_long_it_has(ask: Ask) -> None:
    script = Script(OK)
    with listening(script.app) as url:
        ask("classify", TEXT, to=url, options={"timeout": 7, "headers": {"authorization": "Bearer one"}})
    assert 6 < float(script.seen[0].headers["x-request-timeout"]) <= 7
    assert script.seen[0].headers["authorization"] == "Bearer one"


@contextmanager
def raw_server(serve: Callable[[socket.socket], None]) -> Iterator[tuple[str, list[int]]]:
    """A server below HTTP: `serve` gets each connection. Its address, and a list that grows with each."""
    connections: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                connections.append(len(connections))
                with connection:
                    serve(connection)

        thread = threading.Thread(target=accept)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", connections
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


def test_a_dropped_connection_is_tried_again(ask: Ask) -> None:
    answers = [b"", b"HTTP/1.1 200 OK\r\ncontent-le", b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"]

    def serve(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(answers.pop(0))

    with raw_server(serve) as (url, connections):
        assert ask("info", to=url) == {}
    assert len(connections) == 3


def test_a_service_that_cannot_be_reached(ask: Ask) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with pytest.raises(UnavailableError, match="cannot be reached") as raised:
        ask("info", to=f"http://127.0.0.1:{port}", options={"retries": 1})
    assert (raised.value.code, raised.value.status) == ("unreachable", None)


def test_the_deadline_ends_the_wait_for_a_server_that_is_silent(ask: Ask) -> None:
    silent = threading.Event()

    def serve(_: socket.socket) -> None:
        silent.wait()

    with raw_server(serve) as (url, connections):
        began = time.monotonic()
        with pytest.raises(DeadlineError) as raised:
            ask("info", to=url, options={"timeout": 0.3})
        assert 0.3 <= time.monotonic() - began < 2
        silent.set()
    assert raised.value.code == "deadline_exceeded"
    assert len(connections) == 1


def test_the_service_heeds_the_deadline(ask: Ask) -> None:
    with pytest.raises(DeadlineError):
        ask("classify", ["good " * 1000] * 200, options={"timeout": 0.05})


def test_connections_are_kept() -> None:
    script = Script(OK)
    with listening(script.app) as url, SentimentClient(url) as client:
        for _ in range(3):
            client.info()
    assert len({request.client for request in script.seen}) == 1


def test_both_kinds_have_the_same_calls() -> None:
    for name in ("classify", "embed", "explain", "info", "models", "ready"):
        kinds = [inspect.signature(getattr(kind, name)) for kind in (SentimentClient, AsyncSentimentClient)]
        assert kinds[0] == kinds[1]


def test_it_needs_nothing_of_the_service() -> None:
    loaded = "import sys, service.client; print(*(n for n in sys.modules if n.split('.')[0] in sys.argv[1:]))"
    names = ["service", "fastapi", "starlette", "pydantic", "numpy", "onnxruntime"]
    found = subprocess.run([sys.executable, "-c", loaded, *names], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["service", "service.client"]
