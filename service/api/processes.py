"""Several processes of the service on one listening socket, for machines with more cores than one interpreter can feed.

Each is started afresh and makes its sessions itself: forking a process that has threads and locks is no safe way.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType

from service.api.siblings import Place
from service.logs import get

log = get(__name__)

Serve = Callable[[Place, socket.socket], int]
"""What a process does: it serves on the socket and returns its exit status."""

PAUSE = 1.0
"""Seconds before a process that died is started again: one that dies at once must not keep a core busy with that."""

STOPPED = (0, -signal.SIGTERM)
"""How a process ends that was told to: in order, or before there was anything to end."""


class Processes:
    """The parent of `count` processes: starts them, starts again what dies, and stops all with one signal."""

    def __init__(self, serve: Serve, count: int, listener: socket.socket, folder: Path) -> None:
        self._serve = serve
        self._places = [Place(folder, index, count) for index in range(count)]
        self._listener = listener
        self._running: dict[int, SpawnProcess] = {}
        self._stopping = False

    def run(self) -> int:
        """Run until a signal comes. Returns the exit status: 0 if every process that was stopped then ended with 0."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._stop)
        for place in self._places:
            self._start(place)
        failed = False
        while self._running:
            wait([process.sentinel for process in self._running.values()])
            for index, process in list(self._running.items()):
                if not process.is_alive():
                    failed |= self._ended(index, process)
        return int(failed)

    def _ended(self, index: int, process: SpawnProcess) -> bool:
        """Start again what died, or say whether what was stopped failed to end in order."""
        del self._running[index]
        if not self._stopping:
            log.error("process died", process=index + 1, status=process.exitcode)
            time.sleep(PAUSE)
            self._start(self._places[index])
            return False
        return process.exitcode not in STOPPED

    def _start(self, place: Place) -> None:
        if self._stopping:
            return
        # Not a daemon: one is killed when its parent ends, where these are waited for.
        process = multiprocessing.get_context("spawn").Process(target=_child, args=(self._serve, place, self._listener))
        process.start()
        self._running[place.index] = process
        if self._stopping:  # the signal came meanwhile and did not find it
            process.terminate()

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        """Pass a signal on. A second one ends the processes without waiting, as it would a single one."""
        self._stopping = True
        for process in self._running.values():
            process.terminate()


def run(serve: Serve, count: int, host: str, port: int) -> int:
    """Serve with `count` processes on an address. Returns the exit status. Raises OSError if it cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family) as listener, TemporaryDirectory(prefix="sentiment-") as name:
        return Processes(serve, count, listener, Path(name)).run()


def _child(serve: Serve, place: Place, listener: socket.socket) -> None:
    os.setpgrp()  # what is typed at the terminal goes to the parent alone, which passes it on
    threading.Thread(target=_end_with_parent, daemon=True).start()
    raise SystemExit(serve(place, listener))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
