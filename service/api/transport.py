"""An answer's head and body in one write: uvicorn writes each by itself, two system calls and two packets."""

from __future__ import annotations

import asyncio
from typing import Any

MOST = 65_536
"""Bytes from which nothing is kept: the transport is to know of them, and say when they are too many."""


class Gathering:
    """A transport that keeps what is written until `flush`, at the latest until the event loop's next turn."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._kept: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Keep some bytes; what follows before the next turn goes with them."""
        if not self._kept:
            self._loop.call_soon(self.flush)
        self._kept.append(data)
        if len(data) >= MOST:
            self.flush()

    def flush(self) -> None:
        """Write what is kept."""
        if self._kept:
            kept, self._kept = self._kept, []
            self._transport.write(b"".join(kept))

    def close(self) -> None:
        """Write what is kept, and close once it is sent."""
        self.flush()
        self._transport.close()

    def abort(self) -> None:
        """Close at once; nothing that is kept or not yet sent is."""
        self._kept.clear()
        self._transport.abort()

    def get_write_buffer_size(self) -> int:
        """Bytes that are written and not yet sent."""
        return sum(map(len, self._kept)) + self._transport.get_write_buffer_size()
