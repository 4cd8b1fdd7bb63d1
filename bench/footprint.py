"""What serving costs before anyone asks, and after: time from exec to ready, resident memory, texts a second.

`python -m bench.footprint` starts the service on a free port, asks it one text a request, and prints the figures.
"""

from __future__ import annotations

import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated

import typer

from bench.client import texts
from bench.processes import post
from bench.service import Model, serving


def main(
    model: Model = None,
    requests: Annotated[int, typer.Option(help="Requests of one text each.")] = 1000,
    callers: Annotated[int, typer.Option(help="Requests at a time.")] = 16,
    words: Annotated[int, typer.Option(help="Words of the longest text; the shortest has one.")] = 40,
) -> None:
    """Print time to ready, memory and rate of one service process."""
    with serving(model) as server:
        typer.echo(f"ready after            {server.ready_s:8.2f} s")
        typer.echo(f"resident when ready    {server.memory_mb():8.0f} MB")
        began = time.perf_counter()
        with ThreadPoolExecutor(callers) as pool:
            taken = list(pool.map(lambda text: _ask(server.url, text), texts(requests, words, seed=0)))
        rate = requests / (time.perf_counter() - began)
        typer.echo(f"resident after {requests:7,} {server.memory_mb():8.0f} MB")
        typer.echo(f"texts a second         {rate:8.0f}")
        typer.echo(f"median milliseconds    {1000 * statistics.median(taken):8.1f}")


def _ask(url: str, text: str) -> float:
    began = time.perf_counter()
    post(f"{url}/classify", {"inputs": text})
    return time.perf_counter() - began


if __name__ == "__main__":
    typer.run(main)
