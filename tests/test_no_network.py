"""Nothing is fetched, sent, unpickled or started while the service runs, and what it loads is data."""

from __future__ import annotations

import platform
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import guarded
from tests.service.api.test_server import GUARD, Process

ROOT = Path(__file__).parents[1]
PRELUDE = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from tests.guarded import *; "
BY_KERNEL = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in guarded.CONNECT,
    reason="system calls are watched on Linux alone",
)


class Guarded(Process):
    """A service that ends as soon as it reaches out."""

    program = f"{PRELUDE}main()"


def test_starting_answering_describing_and_stopping_reach_nothing_outside(tmp_path: Path) -> None:
    server = Guarded(tmp_path, log_level="debug")
    try:
        server.wait_until_listening()
        body = {"inputs": ["the film is good", "a long one " * 300]}
        for path in ("/classify?detail=sentences", "/embed?pool=mean", "/explain"):
            texts = body if path != "/explain" else {"inputs": "the film is good"}
            assert server.client.post(path, json=texts).status_code == 200
        description = server.client.get("/openapi.json").json()
        paths = [path for path, operations in description["paths"].items() if "get" in operations and "{" not in path]
        assert {"/info", "/metrics", "/readyz", "/tei/info", "/v1/models"} <= set(paths)
        for path in ("/", "/docs", *paths):
            assert server.client.get(path).status_code == 200, path
        server.popen.send_signal(signal.SIGTERM)
        assert server.popen.wait(GUARD) == 0, server.log.read_text()
        assert "forbidden" not in server.log.read_text()
    finally:
        server.client.close()
        server.popen.kill()
        server.popen.wait()


def ended(code: str) -> int:
    run = subprocess.run([sys.executable, "-c", PRELUDE + code], capture_output=True, text=True, timeout=GUARD)
    assert "survived" not in run.stdout
    return run.returncode


@BY_KERNEL
def test_the_guard_ends_whoever_connects() -> None:
    connects = "import socket; forbid_connections(); socket.socket().connect(('127.0.0.1', 9)); print('survived')"
    assert ended(connects) == -signal.SIGSYS


@pytest.mark.parametrize(
    "deed",
    [
        "import socket; socket.getaddrinfo('example.com', 443)",
        "import socket; socket.socket().connect(('127.0.0.1', 9))",
        "import pickle; pickle.loads(b'cbuiltins\\neval\\n.')",
        "import subprocess; subprocess.run(['true'])",
        "import os; os.system('true')",
        "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9')",
    ],
)
def test_the_guard_ends_whoever_does_what_is_forbidden(deed: str) -> None:
    assert ended(f"forbid_the_rest(); {deed}; print('survived')") == guarded.STATUS


@pytest.mark.parametrize(
    "folder", [ROOT / "models" / "sentiment-en", ROOT / "tests" / "tiny"], ids=lambda path: path.name
)
def test_a_model_is_data_in_formats_that_hold_no_code(folder: Path) -> None:
    assert {path.suffix for path in folder.iterdir()} <= {".onnx", ".bin", ".json", ".md"}


def test_no_module_of_the_service_can_unpickle_evaluate_or_load_code_at_run_time() -> None:
    words = r"\b(?:pickle|marshal|shelve|dill|joblib|trust_remote_code|register_custom_ops_library|exec|eval)\b(?!uate)"
    uses = re.compile(rf"(?:import|from) .*{words}|{words}\(|{words}\s*=", re.MULTILINE)
    modules = sorted((ROOT / "service").rglob("*.py"))
    assert modules
    assert not [(path.name, use[0]) for path in modules for use in uses.finditer(path.read_text("utf-8"))]
