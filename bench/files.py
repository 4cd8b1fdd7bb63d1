"""What a file costs: is `sentiment classify` as small at its end as near its beginning, and how fast is it?

`python -m bench.files --model tests/tiny` makes a CSV file of a million rows, labels it in a process of its own, and
prints the most memory that process held by a tenth, a half and all of the time, and its rate by CPU and by the clock.
Memory is read from /proc: Linux alone.
"""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

WORDS = (
    "the",
    "film",
    "was",
    "good",
    "bad",
    "fine",
    "long",
    "with",
    "a",
    "plot",
    "of",
    "its",
    "own",
    "not",
    "I",
    "loved",
)


@dataclass(frozen=True, slots=True)
class Cost:
    """What a run held resident, in bytes, ten times a second, and its seconds of CPU; `said` is its summary."""

    resident: list[int]
    cpu_seconds: float
    said: str

    def most(self, percent: int) -> int:
        """The most memory in the first so many percent of the time."""
        return max(self.resident[: max(1, len(self.resident) * percent // 100)])


def make(path: Path, rows: int) -> None:
    """A file of so many rows, an id and a text of 4 to 20 words: the same in every run."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "text"])
        writer.writerows((f"{row:08}", _text(row)) for row in range(rows))


def _text(row: int) -> str:
    return " ".join(WORDS[(row * 7 + place * place) % len(WORDS)] for place in range(4 + row % 17))


def measure(source: Path, target: Path, model: Path) -> Cost:
    """Label a file and look on."""
    command = [sys.executable, "-c", "from service.cli import main; main()", "classify", str(source), "-o", str(target)]
    environment = os.environ | {"SENTIMENT_MODEL": str(model.resolve())}
    samples = []
    with tempfile.TemporaryFile("w+") as told:
        process = subprocess.Popen(command, stderr=told, env=environment)
        while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
            samples.append(_resident(process.pid))
            time.sleep(0.1)
        process.returncode = os.waitstatus_to_exitcode(ended[1])
        told.seek(0)
        said = told.read().strip()
    if process.returncode:
        raise SystemExit(said)
    return Cost(samples, ended[2].ru_utime + ended[2].ru_stime, said)


def _resident(pid: int) -> int:
    found = re.search(r"^VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def main(
    model: Annotated[Path, typer.Option(help="Folder of the model.")],
    rows: Annotated[int, typer.Option(help="Rows in the file.")] = 1_000_000,
    form: Annotated[str, typer.Option("--format", help="Format of the output.")] = "parquet",
) -> None:
    """Print what a file costs."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "in.csv")
        make(source, rows)
        size = source.stat().st_size / 1e6
        cost = measure(source, Path(folder, f"out.{form}"), model)
    peaks = ", ".join(f"{cost.most(percent) / 1e6:.0f}" for percent in (10, 50, 100))
    typer.echo(f"{rows} rows of CSV, {size:.0f} MB, to {form}")
    typer.echo(f"most memory by 10, 50, 100 % of the time: {peaks} MB")
    typer.echo(f"{rows / cost.cpu_seconds:.0f} rows a second of CPU")
    typer.echo(cost.said)


if __name__ == "__main__":
    typer.run(main)
