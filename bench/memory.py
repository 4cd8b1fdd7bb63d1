"""Memory after 100,000 texts of up to 512 tokens, both graphs in use: `make bench-memory`, about 10 minutes.

Lists of 32 from 4 connections, labels and vectors by turns; then what is resident at rest. Writes
bench/results/memory.json and the report.
"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from bench import report, wrk
from bench.compare import described
from bench.environments import BUILD, ROOT
from bench.load import Bodies, measure, run
from bench.machine import facts
from bench.peers import ours
from bench.processes import answers, running
from bench.results import FOLDER, Results
from bench.scenarios import CLASSIFY, EMBED, SERVICE, Scenario
from service.scheduler import REST_SECONDS

LOAD = Scenario("mixed lengths, lists of 32, 4 connections", 4, size=32, texts="mixed")

AT_REST = 2 * REST_SECONDS
"""Seconds after the last text until memory is looked at once more."""


def main(
    model: Annotated[Path, typer.Option(exists=True, file_okay=False, help="Our model.")] = ROOT
    / "models/sentiment-en",
    wanted: Annotated[int, typer.Option("--texts", help="Texts to send at least.")] = 100_000,
    seconds: Annotated[int, typer.Option(min=1, help="Seconds between two looks at the memory.")] = 20,
    out: Annotated[Path, typer.Option(help="Results to write.")] = FOLDER / "memory.json",
) -> None:
    """Measure, and write the results and the report."""
    wrk.check()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    results = Results(facts() | {"seconds": seconds, "texts": described(), "rest_seconds": AT_REST})
    bodies = Bodies(BUILD / "bodies" / "ours", ours.body)
    with running(
        lambda port: ours.command(port, "--model", str(model)),
        lambda url: answers(f"{url}/readyz"),
        BUILD / "logs" / "memory.log",
        folder=ROOT,
    ) as server:
        results.note(SERVICE, "resident_mb_ready", server.memory_mb())
        sent, number = 0.0, 0
        while sent < wanted:
            path = (CLASSIFY, EMBED)[number % 2]
            figures = measure(server, path, bodies, LOAD, seconds)
            sent += figures["texts_per_s"] * seconds
            results.runs.append(run(number, SERVICE, path, figures))
            results.note(SERVICE, "texts", sent)
            results.note(SERVICE, "resident_mb", server.memory_mb())
            typer.echo(f"{sent:10,.0f} texts {server.memory_mb():8.1f} MB")
            number += 1
        results.note(SERVICE, "peak_mb", server.memory_mb("VmHWM"))
        time.sleep(AT_REST)
        results.note(SERVICE, "resident_mb_at_rest", server.memory_mb())
    results.save(out)
    if out.parent == FOLDER:
        report.write()


if __name__ == "__main__":
    typer.run(main)
