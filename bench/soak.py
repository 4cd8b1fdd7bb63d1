"""Whether the service grows as it works: `python -m bench.soak`, 30 minutes or 500,000 texts, whichever ends first.

Texts of random lengths, most short and some of several windows, alone and in lists, on every route. Resident memory,
file descriptors and threads are noted as it goes; --write draws them in docs/holding-up/soak.svg.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from bench.client import Client, post, texts
from bench.figures import FOLDER, Write, publish
from bench.overload import ask, stopped
from bench.processes import Server
from bench.service import Model, serving

ROUTES = ("/classify", "/classify", "/classify?detail=sentences", "/embed", "/embed?pool=mean", "/explain")
CALLERS = 8
WARM = 0.2
"""The share of the time that counts as warm-up."""
ALLOWED = 0.05
"""How much of its memory the service may have gained after warm-up."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What the process held, some seconds after the start and so many texts later."""

    seconds: float
    texts: int
    megabytes: float
    descriptors: int
    threads: int


@dataclass(slots=True)
class Soak:
    """A run: what was noted, and how the requests ended."""

    samples: list[Sample] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    texts: int = 0

    @property
    def warm(self) -> list[Sample]:
        """The samples after warm-up."""
        return self.samples[int(WARM * len(self.samples)) :]

    @property
    def growth(self) -> float:
        """Memory of the last quarter after warm-up, over that of the first, less one: medians of both."""
        kept = [one.megabytes for one in self.warm]
        quarter = max(1, len(kept) // 4)
        return statistics.median(kept[-quarter:]) / statistics.median(kept[:quarter]) - 1

    @property
    def leaks(self) -> tuple[int, int]:
        """File descriptors and threads that the last sample has over the first one after warm-up."""
        first, last = self.warm[0], self.samples[-1]
        return last.descriptors - first.descriptors, last.threads - first.threads


def main(
    model: Model = None,
    minutes: Annotated[float, typer.Option(help="It ends after so long,")] = 30.0,
    count: Annotated[int, typer.Option("--texts", help="or after so many texts.")] = 500_000,
    every: Annotated[float, typer.Option(help="Seconds between two samples.")] = 5.0,
    write: Write = False,
) -> None:
    """Print what the process held at first and in the end. Ends with 1 if it grew, leaked or failed."""
    with serving(model) as server:
        run = asyncio.run(soak(server, 60 * minutes, count, every))
    first, last = run.warm[0], run.samples[-1]
    figures = {
        "texts, seconds": f"{run.texts:,}, {last.seconds:.0f}",
        "statuses": ", ".join(f"{status}: {number:,}" for status, number in sorted(run.statuses.items())),
        "resident after warm-up, largest, last": f"{first.megabytes:.0f}, "
        f"{max(one.megabytes for one in run.samples):.0f}, {last.megabytes:.0f} MB",
        "grown after warm-up": f"{run.growth:.1%}",
        "file descriptors after warm-up and last": f"{first.descriptors} and {last.descriptors}",
        "threads after warm-up and last": f"{first.threads} and {last.threads}",
    }
    samples = {"samples": [asdict(one) for one in run.samples]}
    publish("soak", figures, write=write, data=samples, picture="soak.svg")
    if write:
        draw(run, FOLDER / "soak.svg")
    raise typer.Exit(int(run.growth > ALLOWED or max(run.leaks) > 0 or set(run.statuses) != {200}))


async def soak(server: Server, seconds: float, count: int, every: float) -> Soak:
    """Ask until the time is over or the texts are answered, and note what the process holds."""
    run, bodies = Soak(), requests()
    began = time.perf_counter()

    async def caller(client: Client) -> None:
        while run.texts < count and time.perf_counter() < began + seconds:
            one = await ask(client, *next(bodies))
            run.statuses[one.answer.status] += 1
            run.texts += one.texts

    async def watch() -> None:
        while True:
            run.samples.append(sample(server.process.pid, time.perf_counter() - began, run.texts))
            await asyncio.sleep(every)

    watcher = asyncio.ensure_future(watch())
    async with Client(server.port) as client:
        await asyncio.gather(*(caller(client) for _ in range(CALLERS)))
        run.samples.append(sample(server.process.pid, time.perf_counter() - began, run.texts))
    await stopped([watcher])
    return run


def requests() -> Iterator[tuple[int, bytes]]:
    """Single texts and lists without end, of lengths that spread over three orders of magnitude."""
    rng = random.Random(6)
    while True:
        route = rng.choice(ROUTES)
        size = 1 if route == "/explain" else rng.choice((1, 1, 1, 4, 32))
        longest = 30 if route == "/explain" else int(10 ** rng.uniform(0, 3 if size == 1 else 2))
        yield size, post(route, {"inputs": texts(size, longest, rng.randrange(2**32))})


def sample(pid: int, seconds: float, answered: int) -> Sample:
    """What a process holds now, from its /proc entry."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    descriptors = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    megabytes = int(status["VmRSS"].split()[0]) / 1000
    return Sample(seconds, answered, megabytes, descriptors, int(status["Threads"]))


def draw(run: Soak, out: Path) -> None:
    """Memory, descriptors and threads over time, as SVG."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams["svg.hashsalt"] = "soak"
    figure = Figure(figsize=(8, 5), layout="constrained")
    memory, counts = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    minutes = [one.seconds / 60 for one in run.samples]
    memory.plot(minutes, [one.megabytes for one in run.samples])
    memory.set(ylabel="resident, MB", ylim=(0, None))
    counts.plot(minutes, [one.descriptors for one in run.samples], label="file descriptors")
    counts.plot(minutes, [one.threads for one in run.samples], label="threads")
    counts.set(xlabel="minutes", ylim=(0, None))
    counts.legend()
    figure.savefig(out, metadata={"Date": None})


if __name__ == "__main__":
    typer.run(main)
