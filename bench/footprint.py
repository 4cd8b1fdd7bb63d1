"""What serving costs before anyone asks, and after: time from exec to ready, resident memory, texts a second.

`python -m bench.footprint` starts the service on a free port, asks it one text a request, and prints the figures.
"""

from __future__ import annotations

import json
import os
import random
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

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


def main(
    model: Annotated[Path | None, typer.Option(help="Folder of the model; unset: the default one.")] = None,
    requests: Annotated[int, typer.Option(help="Requests of one text each.")] = 1000,
    callers: Annotated[int, typer.Option(help="Requests at a time.")] = 16,
    words: Annotated[int, typer.Option(help="Words of the longest text; the shortest has one.")] = 40,
) -> None:
    """Print time to ready, memory and rate of one service process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "SENTIMENT_PORT": str(port), "SENTIMENT_LOG_LEVEL": "warning"}
    if model:
        environment["SENTIMENT_MODEL"] = str(model.resolve())
    url = f"http://127.0.0.1:{port}"
    began = time.perf_counter()
    server = subprocess.Popen([str(Path(sys.executable).with_name("sentiment")), "serve"], env=environment)
    try:
        while not _ready(url):
            time.sleep(0.005)
        typer.echo(f"ready after            {time.perf_counter() - began:8.2f} s")
        typer.echo(f"resident when ready    {_resident(server.pid):8.0f} MB")
        texts = _texts(requests, words)
        began = time.perf_counter()
        with ThreadPoolExecutor(callers) as pool:
            taken = list(pool.map(lambda text: _ask(url, text), texts))
        typer.echo(f"resident after {requests:7,} {_resident(server.pid):8.0f} MB")
        typer.echo(f"texts a second         {requests / (time.perf_counter() - began):8.0f}")
        typer.echo(f"median milliseconds    {1000 * statistics.median(taken):8.1f}")
    finally:
        server.terminate()
        server.wait()


def _texts(count: int, words: int) -> list[str]:
    rng = random.Random(0)
    return [" ".join(rng.choices(WORDS, k=rng.randint(1, words))) for _ in range(count)]


def _ready(url: str) -> bool:
    with suppress(OSError), urllib.request.urlopen(f"{url}/readyz") as answer:
        return bool(answer.status == 200)
    return False


def _ask(url: str, text: str) -> float:
    began = time.perf_counter()
    body = json.dumps({"inputs": text}).encode()
    request = urllib.request.Request(f"{url}/classify", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        answer.read()
    return time.perf_counter() - began


def _resident(pid: int) -> float:
    """Megabytes of memory that a process holds, from its /proc entry."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1000


if __name__ == "__main__":
    typer.run(main)
