"""Server processes under measurement, on Linux: each in a session of its own, watched through /proc, always stopped."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TICKS = os.sysconf("SC_CLK_TCK")
STOP_SECONDS = 10.0
QUIET_SECONDS = 0.3


class ServerError(Exception):
    """A server that did not start, died, or answered wrongly."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running server: all processes of one session, counted together."""

    port: int
    process: subprocess.Popen[bytes]
    log: Path
    ready_s: float = 0.0

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def cpu_s(self) -> float:
        """CPU seconds used so far by its living processes, those of the kernel in their name included."""
        return sum(sum(int(field) for field in _stat(pid)[11:13]) for pid in self.pids()) / TICKS

    def memory_mb(self, field: str = "VmRSS") -> float:
        """Megabytes resident now, or with VmHWM at most so far; memory that its processes share counts for each."""
        return sum(_status(pid, field) for pid in self.pids()) / 1000

    def settle(self, seconds: float = 15.0) -> None:
        """Wait until it has given up or done what callers that left have asked for: until it uses next to no CPU."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            before = self.cpu_s()
            time.sleep(QUIET_SECONDS)
            if self.cpu_s() - before <= QUIET_SECONDS / 10:
                return

    def pids(self) -> list[int]:
        """Its processes: all of its session, and their descendants, which may have made a session of their own."""
        stats = {int(path.name): _stat(int(path.name)) for path in Path("/proc").iterdir() if path.name.isdecimal()}
        found = {pid for pid, stat in stats.items() if stat and int(stat[3]) == self.process.pid}
        while new := {pid for pid, stat in stats.items() if stat and int(stat[1]) in found} - found:
            found |= new
        return sorted(found)


@contextmanager
def running(
    command: Callable[[int], Sequence[str]],
    ready: Callable[[str], bool],
    log: Path,
    folder: Path | None = None,
    environ: Mapping[str, str] | None = None,
    seconds: float = 120.0,
) -> Iterator[Server]:
    """Start the command that a free port gives, wait until `ready` is true of its URL, and stop it at the end.

    Raises ServerError if it ends or is not ready in time.
    """
    port = free_port()
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        began = time.perf_counter()
        process = subprocess.Popen(
            list(command(port)),
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={**os.environ, **(environ or {})},
            start_new_session=True,
        )
        server = Server(port, process, log)
        try:
            while not ready(server.url):
                if process.poll() is not None:
                    raise ServerError(f"it ended with {process.returncode}: {last_line(log)}")
                if time.perf_counter() - began > seconds:
                    raise ServerError(f"it was not ready within {seconds:.0f} s: {last_line(log)}")
                time.sleep(0.005)
            yield Server(port, process, log, time.perf_counter() - began)
        finally:
            stop(server)


def stop(server: Server) -> None:
    """Ask all of a server's processes to end, and end those that do not."""
    found: set[int] = set()
    for number in (signal.SIGTERM, signal.SIGKILL):
        # Those found before too: they are nobody's descendants once their parents have ended.
        found |= set(server.pids())
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        until = time.monotonic() + STOP_SECONDS
        while time.monotonic() < until:
            found = {pid for pid in found | set(server.pids()) if _stat(pid)}
            if server.process.poll() is not None and not found:
                return
            time.sleep(0.02)


def post(url: str, body: object, seconds: float = 60.0) -> Any:
    """The JSON answer to a JSON request. Raises OSError if there is none, urllib's HTTPError among it."""
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=seconds) as answer:
        return json.load(answer)


def answers(url: str) -> bool:
    """Whether a GET is answered with 200."""
    with suppress(OSError), urllib.request.urlopen(url, timeout=10) as answer:
        return bool(answer.status == 200)
    return False


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def last_line(log: Path) -> str:
    """The last line of a log that says something, shortened."""
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1][-300:] if lines else "no output"


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat behind the name; none for a process that is gone or only waits to be reaped."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return fields if fields[0] != "Z" else []
    return []


def _status(pid: int, field: str) -> int:
    """A field of /proc/PID/status in kB; 0 if the process is gone."""
    with suppress(OSError, IndexError):
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
        return int(status.split(f"{field}:")[1].split()[0])
    return 0
