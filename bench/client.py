"""A client that costs little: raw HTTP/1.1 on kept connections, so that a load on the same cores stays the server's."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from typing import NamedTuple, Self

import httptools
import numpy as np

WORDS = (
    "the",
    "film",
    "hotel",
    "battery",
    "was",
    "is",
    "not",
    "very",
    "good",
    "dull",
    "and",
    "but",
    "it",
    "works",
    ".",
)


class Answer(NamedTuple):
    """A status (0 if the connection broke), whether it said when to come back, and the body."""

    status: int
    retry_after: bool
    body: bytes


def get(path: str) -> bytes:
    """A GET as it goes over the wire."""
    return f"GET {path} HTTP/1.1\r\nhost: bench\r\n\r\n".encode()


def post(path: str, body: object) -> bytes:
    """A POST of JSON as it goes over the wire."""
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(content)}\r\n\r\n".encode() + content


def texts(count: int, words: int, seed: int) -> list[str]:
    """Texts of one to so many words, in any order that the seed gives."""
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(1, words))) for _ in range(count)]


def percentile(seconds: Sequence[float], percent: float) -> float:
    """Milliseconds that so many percent took at most; NaN of none."""
    return 1000 * float(np.percentile(seconds, percent)) if seconds else float("nan")


class Client:
    """As many connections as requests are under way, each used again. They are closed where its block ends."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._all: list[_Connection] = []
        self._free: list[_Connection] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for connection in self._all:
            connection.close()
        await asyncio.sleep(0)  # in which the event loop closes them

    async def ask(self, request: bytes) -> Answer:
        """Send a request and wait for its answer, however long it takes."""
        while self._free:
            if (connection := self._free.pop()).open:
                break
        else:
            loop = asyncio.get_running_loop()
            try:
                _, connection = await loop.create_connection(_Connection, "127.0.0.1", self._port)
            except OSError:
                return Answer(0, False, b"")
            self._all.append(connection)
        answer = await connection.ask(request)
        if connection.open:
            self._free.append(connection)
        return answer


class _Connection(asyncio.Protocol):
    open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._answer: asyncio.Future[Answer] | None = None
        self.open = True

    def ask(self, request: bytes) -> asyncio.Future[Answer]:
        self._answer = asyncio.get_running_loop().create_future()
        self._retry_after = False
        self._body: list[bytes] = []
        self._parser = httptools.HttpResponseParser(self)
        self._transport.write(request)
        return self._answer

    def close(self) -> None:
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, _error: Exception | None) -> None:
        self.open = False
        self._settle(Answer(0, False, b""))

    # What the parser calls.

    def on_header(self, name: bytes, value: bytes) -> None:
        self._retry_after |= name.lower() == b"retry-after"
        if name.lower() == b"connection" and value.lower() == b"close":
            self.open = False

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        self._settle(Answer(self._parser.get_status_code(), self._retry_after, b"".join(self._body)))

    def _settle(self, answer: Answer) -> None:
        if self._answer and not self._answer.done():
            self._answer.set_result(answer)
