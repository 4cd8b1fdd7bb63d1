"""Runs the application under uvicorn, and stops it in the right order."""

from __future__ import annotations

import signal
import socket
from types import FrameType

import uvicorn
from fastapi import FastAPI

from service.api.connections import SPARE, Bounds, Config
from service.api.state import State
from service.logs import get

log = get(__name__)


OTHER_FILES = 100
"""Files that are open besides connections."""


class Server(uvicorn.Server):
    """uvicorn, which tells the service of a signal at once: it is not ready from then on."""

    def __init__(self, config: uvicorn.Config, service: State) -> None:
        super().__init__(config)
        self.service = service

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """First signal: admit nothing more and answer what was admitted. A second one ends that too."""
        if self.should_exit:
            self.force_exit = True
        # The handler may interrupt this very thread inside the scheduler: its lock is re-entrant.
        self.service.scheduler.drain()
        super().handle_exit(sig, frame)


def run(
    app: FastAPI, host: str, port: int, grace_period: int, bounds: Bounds, listener: socket.socket | None = None
) -> int:
    """Serve until a signal comes, then for at most `grace_period` seconds answer what was admitted. Where there is a
    listener, it is that socket that is served.

    Returns the exit status: 0 if all of it had its answer.
    """
    config = Config(
        app,
        bounds,
        host=host,
        port=port,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=grace_period,
    )
    server = Server(config, app.state.service)
    allow_files(bounds.connections + SPARE + OTHER_FILES)
    # uvicorn raises the signal again once it has stopped, which would end the process by it and not with status 0.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    server.run([listener] if listener else None)
    return 0 if app.state.service.all_answered else 1


def allow_files(wanted: int) -> None:
    """Raise this process's own limit of open files to what is wanted, where the system's limit is not lower.

    Many systems start a process with 1,024, and each connection is a file.
    """
    try:
        import resource
    except ImportError:  # no such limit on Windows
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < wanted:
        log.warning("fewer files may be open than connections are allowed", allowed=allowed, wanted=wanted)
