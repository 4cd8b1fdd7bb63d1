"""What the service does when asked for five times what it can: `python -m bench.overload`, about two minutes.

It is asked as fast as it answers first, which gives its capacity; then at a fixed rate, whatever it answers, single
texts and lists mixed; then one text at a time, until that is as quick as before.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated

import typer

from bench.client import Answer, Client, get, percentile, post, texts
from bench.figures import Write, publish
from bench.processes import Server
from bench.service import Model, serving

LIST = 16
LISTS = 0.2
"""One request in five is a list of so many texts."""

PROBES = {path: get(path) for path in ("/healthz", "/readyz")}
AFTER = 100
"""Requests after the load, one at a time."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, as it went: how many texts, when it was sent, what came back and after how many seconds."""

    texts: int
    sent: float
    seconds: float
    answer: Answer


@dataclass(slots=True)
class Seen:
    """What was seen while the load was on."""

    asked: list[Asked] = field(default_factory=list)
    probes: list[Asked] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)


def main(
    model: Model = None,
    seconds: Annotated[float, typer.Option(help="How long the load lasts.")] = 60.0,
    factor: Annotated[float, typer.Option(help="The load, in capacities.")] = 5.0,
    measure: Annotated[float, typer.Option(help="How long capacity is measured.")] = 15.0,
    write: Write = False,
) -> None:
    """Print what was answered and refused, how fast, and what the health checks took meanwhile."""
    with serving(model) as server:
        figures, memory = asyncio.run(overload(server, seconds, factor, measure))
    publish("overload", figures, write=write, data={"megabytes": memory})


async def overload(
    server: Server, seconds: float, factor: float, measure: float
) -> tuple[dict[str, object], list[float]]:
    """The figures of one server, and its memory in MB each second of the load."""
    async with Client(server.port) as client:
        return await measured(client, server, seconds, factor, measure)


async def measured(
    client: Client, server: Server, seconds: float, factor: float, measure: float
) -> tuple[dict[str, object], list[float]]:
    """The same, by one client."""
    mix = requests()
    idle = [(await ask(client, 1, single)).seconds for single in singles(AFTER)]
    capacity = await closed(client, mix, measure)
    ready = server.memory_mb()
    seen = Seen()
    watchers = [asyncio.ensure_future(probe(server, seen, path)) for path in PROBES]
    watchers.append(asyncio.ensure_future(watch(server, seen)))
    began = time.perf_counter()
    cpu = time.process_time()
    waiting = await opened(client, mix, seen, seconds, factor * capacity)
    cpu = (time.process_time() - cpu) / seconds
    ended = time.perf_counter()
    after = [await ask(client, 1, single) for single in singles(AFTER)]
    await asyncio.gather(*waiting)
    await stopped(watchers)
    normal = 2 * percentile(idle, 99) / 1000
    slow = [one.sent + one.seconds - ended for one in after if one.seconds > normal]
    return figures(seen, began, seconds, factor, capacity) | {
        "resident before, largest, at the end": f"{ready:.0f}, {max(seen.memory):.0f}, {seen.memory[-1]:.0f} MB",
        "a single text idle, p50 and p99": f"{percentile(idle, 50):.1f} and {percentile(idle, 99):.1f} ms",
        "latency is normal again after": f"{max(slow, default=0.0):.2f} s",
        "requests sent later than planned by, p99": f"{percentile(seen.late, 99):.1f} ms",
        "the load's own share of a core": f"{cpu:.0%}",
    }, seen.memory


def figures(seen: Seen, began: float, seconds: float, factor: float, capacity: float) -> dict[str, object]:
    """What was answered, refused, and how fast."""
    statuses = Counter(one.answer.status for one in seen.asked)
    answered = [one for one in seen.asked if one.answer.status == 200]
    refused = [one for one in seen.asked if one.answer.status == 429]
    good = sum(one.texts for one in answered if one.sent + one.seconds <= began + seconds)
    rows: dict[str, object] = {
        "capacity": f"{capacity:.0f} texts a second",
        "offered": f"{factor:g} times that for {seconds:.0f} s: {len(seen.asked):,} requests",
        "answered within that time": f"{good / seconds:.0f} texts a second",
        "statuses": ", ".join(f"{status}: {count:,}" for status, count in sorted(statuses.items())),
    }
    for name, few in (("single texts", False), (f"lists of {LIST}", True)):
        taken = [one.seconds for one in answered if (one.texts > 1) is few]
        rows[f"{name} answered after, p50, p99, at most"] = (
            f"{percentile(taken, 50):.0f}, {percentile(taken, 99):.0f}, {percentile(taken, 100):.0f} ms"
        )
    taken = [one.seconds for one in refused]
    rows["429 after, p50 and p99"] = f"{percentile(taken, 50):.1f} and {percentile(taken, 99):.1f} ms"
    rows["429 that say when to come back"] = f"{sum(one.answer.retry_after for one in refused):,} of {len(refused):,}"
    health = [one.seconds for one in seen.probes]
    wrong = sum(one.answer.status != 200 for one in seen.probes)
    rows["/healthz and /readyz, p50 and p99"] = f"{percentile(health, 50):.1f} and {percentile(health, 99):.1f} ms"
    rows["of these not 200"] = f"{wrong} of {len(health):,}"
    return rows


def requests() -> Iterator[tuple[int, bytes]]:
    """Single texts and lists, without end, and how many texts each has."""
    rng = random.Random(0)
    bodies = [(1, post("/classify", {"inputs": one})) for one in texts(400, 40, seed=1)]
    bodies += [(LIST, post("/classify", {"inputs": texts(LIST, 40, seed)})) for seed in range(2, 102)]
    while True:
        yield rng.choice(bodies)


def singles(count: int) -> list[bytes]:
    """Requests of one text."""
    return [post("/classify", {"inputs": text}) for text in texts(count, 40, seed=2)]


async def ask(client: Client, count: int, request: bytes) -> Asked:
    """One request and how it went."""
    sent = time.perf_counter()
    answer = await client.ask(request)
    return Asked(count, sent, time.perf_counter() - sent, answer)


async def closed(client: Client, mix: Iterator[tuple[int, bytes]], seconds: float, callers: int = 16) -> float:
    """Texts a second when each of some callers asks again as soon as it is answered."""
    until = time.perf_counter() + seconds

    async def caller() -> int:
        answered = 0
        while time.perf_counter() < until:
            one = await ask(client, *next(mix))
            answered += one.texts * (one.answer.status == 200)
        return answered

    began = time.perf_counter()
    return sum(await asyncio.gather(*(caller() for _ in range(callers)))) / (time.perf_counter() - began)


async def opened(
    client: Client, mix: Iterator[tuple[int, bytes]], seen: Seen, seconds: float, rate: float
) -> list[asyncio.Task[None]]:
    """Send so many texts a second, at times that depend on nothing. Returns what is not answered yet."""
    rng = random.Random(1)
    mean = (1 - LISTS) + LISTS * LIST
    waiting: set[asyncio.Task[None]] = set()

    async def one(count: int, request: bytes) -> None:
        seen.asked.append(await ask(client, count, request))

    began = planned = time.perf_counter()
    while (planned := planned + rng.expovariate(rate / mean)) < began + seconds:
        if (ahead := planned - time.perf_counter()) > 0:
            await asyncio.sleep(ahead)
        seen.late.append(max(0.0, time.perf_counter() - planned))
        task = asyncio.create_task(one(*next(mix)))
        waiting.add(task)
        task.add_done_callback(waiting.discard)
    return list(waiting)


async def probe(server: Server, seen: Seen, path: str) -> None:
    """Ask for the health, forty times a second."""
    async with Client(server.port) as client:
        while True:
            seen.probes.append(await ask(client, 0, PROBES[path]))
            await asyncio.sleep(0.025)


async def stopped(watchers: Sequence[asyncio.Future[None]]) -> None:
    """Stop what runs beside the load."""
    for watcher in watchers:
        watcher.cancel()
    await asyncio.gather(*watchers, return_exceptions=True)


async def watch(server: Server, seen: Seen) -> None:
    """Note the memory, once a second."""
    while True:
        seen.memory.append(server.memory_mb())
        await asyncio.sleep(1.0)


if __name__ == "__main__":
    typer.run(main)
