"""Whether a caller with long lists keeps others waiting: `python -m bench.fairness`, about a minute.

One client asks for single texts alone; then again while another sends lists of 1,000 texts without a pause.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Annotated

import typer

from bench.client import Client, percentile, post, texts
from bench.figures import Write, publish
from bench.overload import Asked, ask, singles
from bench.processes import Server
from bench.service import Model, serving
from service.cpu import usable_cores

LIST = 1000


def main(
    model: Model = None,
    seconds: Annotated[float, typer.Option(help="How long each of the two is measured.")] = 30.0,
    write: Write = False,
) -> None:
    """Print the latency of single texts alone and beside the lists. Ends with 1 if it grew past what was promised."""
    with serving(model) as server:
        idle, beside, lists = asyncio.run(fairness(server, seconds))
    service = 1000 * usable_cores() * sum(one.seconds for one in lists) / (LIST * len(lists))
    alone = percentile([one.seconds for one in idle], 99)
    found = percentile([one.seconds for one in beside], 99)
    promised = 3 * alone + service
    refused = sum(one.answer.status != 200 for one in (*idle, *beside, *lists))
    figures = {
        "single texts alone, p50 and p99": f"{percentile([one.seconds for one in idle], 50):.1f} and {alone:.1f} ms",
        "beside the lists, p50 and p99": f"{percentile([one.seconds for one in beside], 50):.1f} and {found:.1f} ms",
        "promised: three times the first p99, and one text's time": f"{promised:.1f} ms",
        "a text's time on a worker, of the lists": f"{service:.1f} ms",
        f"lists of {LIST:,} answered, mean": f"{len(lists)}, {sum(one.seconds for one in lists) / len(lists):.2f} s",
        "single texts asked, alone and beside": f"{len(idle):,} and {len(beside):,}",
        "requests not answered with 200": refused,
    }
    publish("fairness", figures, write=write)
    raise typer.Exit(int(found > promised or refused > 0))


async def fairness(server: Server, seconds: float) -> tuple[list[Asked], list[Asked], list[Asked]]:
    """Single texts alone, single texts beside lists, and the lists: how each request went."""
    async with Client(server.port) as client:
        idle = await repeated(client, seconds)
        ended = asyncio.Event()
        lists = asyncio.ensure_future(bulk(client, ended))
        await asyncio.sleep(1.0)
        beside = await repeated(client, seconds)
        ended.set()
        return idle, beside, await lists


async def repeated(client: Client, seconds: float) -> list[Asked]:
    """Single texts, one after the other."""
    until = time.perf_counter() + seconds
    bodies = itertools.cycle(singles(500))
    found = []
    while time.perf_counter() < until:
        found.append(await ask(client, 1, next(bodies)))
    return found


async def bulk(client: Client, ended: asyncio.Event) -> list[Asked]:
    """Lists, one after the other until it ends; at least one."""
    bodies = itertools.cycle([post("/classify", {"inputs": texts(LIST, 40, seed)}) for seed in range(5)])
    found = [await ask(client, LIST, next(bodies))]
    while not ended.is_set():
        found.append(await ask(client, LIST, next(bodies)))
    return found


if __name__ == "__main__":
    typer.run(main)
