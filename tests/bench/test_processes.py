import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.processes import ServerError, answers, running

SERVER = """
import http.server, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), http.server.SimpleHTTPRequestHandler).serve_forever()
"""


def command(port: int) -> Sequence[str]:
    return [sys.executable, "-c", SERVER, str(port)]


def alive(pid: int) -> bool:
    """Whether a process runs: one that ended may wait to be reaped by whoever inherited it."""
    status = Path(f"/proc/{pid}/status")
    return status.exists() and "State:\tZ" not in status.read_text("utf-8")


def test_a_server_is_counted_with_its_children_and_stopped_with_them(tmp_path: Path) -> None:
    with running(command, answers, tmp_path / "log", folder=tmp_path) as server:
        pids = server.pids()
        assert len(pids) == 2
        assert server.ready_s > 0
        resident = server.memory_mb()
        assert resident > 5
        assert server.memory_mb("VmHWM") > 0.9 * resident
        assert server.cpu_s() >= 0
    assert not any(alive(pid) for pid in pids)


def test_a_server_that_ends_is_an_error_with_its_last_words(tmp_path: Path) -> None:
    ends = [sys.executable, "-c", "print('no such model'); raise SystemExit(3)"]
    with (
        pytest.raises(ServerError, match="ended with 3: no such model"),
        running(lambda _: ends, answers, tmp_path / "log"),
    ):
        pass


def test_a_server_that_is_never_ready_is_an_error_and_is_stopped(tmp_path: Path) -> None:
    sleeps = [sys.executable, "-c", "import time; time.sleep(600)"]
    seen: list[str] = []

    def never(url: str) -> bool:
        seen.append(url)
        return False

    with pytest.raises(ServerError, match="not ready"), running(lambda _: sleeps, never, tmp_path / "log", seconds=0.2):
        pass
    assert seen
