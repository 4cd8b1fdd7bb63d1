"""What callers notice while the model they ask is replaced, over and over: `python -m bench.upgrade`, about a minute.

As many callers as the service has workers ask one text at a time, half of the time in peace, and half of it while a
copy of the model takes over its name, then another, then the first.
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Annotated

import httpx2
import typer

from bench import machine
from bench.client import WORDS, percentile
from bench.figures import placed, tabled
from bench.processes import Server
from bench.service import serving
from service.settings import DEFAULT_MODEL

PAGE = Path(__file__).parents[1] / "docs" / "operations.md"
FIGURES = Path(__file__).parent / "results" / "upgrade.json"

KEY = "bench"
NAME = "served"
VERSIONS = ("one", "two")
HEALTH_EVERY = 0.01
"""Seconds between questions to /healthz: how long they take is how long the event loop was held up."""


@dataclass(slots=True)
class Seen:
    """What came back in one half of the time, and after how many seconds."""

    statuses: Counter[int] = field(default_factory=Counter)
    answers: list[float] = field(default_factory=list)
    health: list[float] = field(default_factory=list)
    loads: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)


def main(
    model: Annotated[Path, typer.Option(help="Folder of the model.")] = DEFAULT_MODEL,
    seconds: Annotated[float, typer.Option(help="How long each half lasts.")] = 30.0,
    callers: Annotated[int, typer.Option(help="Requests at a time.")] = 2,
    write: Annotated[
        bool, typer.Option("--write", help="Put the figures into docs/operations.md, and as JSON.")
    ] = False,
) -> None:
    """Print latencies with and without a model being loaded, requests lost, and memory."""
    with (
        versions(model) as folder,
        serving(
            None, models=f"{NAME}={folder / VERSIONS[0]}", models_dir=folder, admin_keys=KEY, max_models=1
        ) as server,
    ):
        peace, change = asyncio.run(measure(server, seconds, callers))
    publish(figures(peace, change), change, write=write)


@contextmanager
def versions(model: Path) -> Iterator[Path]:
    """A folder with copies of a model."""
    with tempfile.TemporaryDirectory() as folder:
        for name in VERSIONS:
            shutil.copytree(model, Path(folder, name))
        yield Path(folder)


async def measure(server: Server, seconds: float, callers: int) -> tuple[Seen, Seen]:
    """What was seen in peace, and while the model was replaced."""
    halves = (Seen(), Seen())
    async with httpx2.AsyncClient(base_url=server.url, timeout=120, verify=False) as client:
        await asyncio.gather(*(caller(client, Seen(), time.perf_counter() + 2) for _ in range(callers)))
        for half, replaced in zip(halves, (False, True), strict=True):
            until = time.perf_counter() + seconds
            half.memory.append(server.memory_mb())
            tasks = [caller(client, half, until) for _ in range(callers)]
            tasks.append(watch(client, half, until))
            if replaced:
                tasks.append(replace(client, server, half, until))
            await asyncio.gather(*tasks)
    return halves


async def caller(client: httpx2.AsyncClient, seen: Seen, until: float) -> None:
    """Ask one text after the other, of one to forty words."""
    rng = random.Random(1)
    while (began := time.perf_counter()) < until:
        text = " ".join(rng.choices(WORDS, k=rng.randint(1, 40)))
        answer = await client.post("/classify", params={"model": NAME}, json={"inputs": text})
        seen.statuses[answer.status_code] += 1
        seen.answers.append(time.perf_counter() - began)


async def watch(client: httpx2.AsyncClient, seen: Seen, until: float) -> None:
    """Ask for the service's health."""
    while (began := time.perf_counter()) < until:
        await client.get("/healthz")
        seen.health.append(time.perf_counter() - began)
        await asyncio.sleep(HEALTH_EVERY)


async def replace(client: httpx2.AsyncClient, server: Server, seen: Seen, until: float) -> None:
    """Load one version after the other. Raises RuntimeError if one is refused."""
    for version in cycle(reversed(VERSIONS)):
        if (began := time.perf_counter()) >= until:
            return
        answer = await client.put(f"/admin/models/{NAME}", json={"path": version}, headers={"x-api-key": KEY})
        if not answer.is_success:
            raise RuntimeError(f"a version was refused: {answer.text}")
        seen.loads.append(time.perf_counter() - began)
        seen.memory.append(round(server.memory_mb(), 1))


def figures(peace: Seen, change: Seen) -> dict[str, object]:
    """The figures of both halves."""
    rows: dict[str, object] = {
        "replacements": f"{len(change.loads)}, each {percentile(change.loads, 50) / 1000:.2f} s",
        "requests meanwhile": f"{sum(change.statuses.values()):,}",
        "of these not 200": sum(count for status, count in change.statuses.items() if status != 200),
    }
    for name, half in (("in peace", peace), ("meanwhile", change)):
        taken = [percentile(half.answers, percent) for percent in (50, 99, 100)]
        rows[f"a text {name}, p50, p99, at most"] = "{:.1f}, {:.1f}, {:.0f} ms".format(*taken)
    for name, half in (("in peace", peace), ("meanwhile", change)):
        rows[f"/healthz {name}, p99, at most"] = (
            f"{percentile(half.health, 99):.1f}, {percentile(half.health, 100):.0f} ms"
        )
    rows["resident before, largest, at the end"] = (
        f"{change.memory[0]:.0f}, {max(change.memory):.0f}, {change.memory[-1]:.0f} MB"
    )
    return rows


def publish(rows: Mapping[str, object], change: Seen, *, write: bool) -> None:
    """Print the figures as a table; with `write`, put it between its marks in the page, and all of it into a file."""
    table = tabled(rows)
    typer.echo(table)
    if not write:
        return
    facts = machine.facts()
    FIGURES.parent.mkdir(exist_ok=True)
    measured = {"facts": facts, "figures": rows, "megabytes": change.memory, "load_seconds": change.loads}
    FIGURES.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
    content = f"{table}\n\n{facts['cpu']}, {facts['cores']} cores, {facts['made']}."
    PAGE.write_text(placed(PAGE.read_text(encoding="utf-8"), "upgrade", content), encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
