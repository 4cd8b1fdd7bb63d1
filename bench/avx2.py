"""Whether a CPU without VNNI answers as this one does: `make check-avx2`, or `python -m bench.avx2`.

The command line answers the texts of avx2_texts.txt twice, here and on a Haswell that QEMU emulates: the same labels,
and scores within 0.001. It answers only once the model's golden texts are right, there as here. About a minute.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

TEXTS = Path(__file__).with_name("avx2_texts.txt")
EMULATOR = "qemu-x86_64"
HASWELL = "Haswell-noTSX,-pcid,-x2apic,-tsc-deadline,-invpcid"
"""A CPU with AVX2 and without VNNI, less what QEMU would warn of."""
ALLOWED = 0.001
"""How far off a score may be."""


def main(
    model: Annotated[Path | None, typer.Option(help="Folder of the model; unset: the default one.")] = None,
    cpu: Annotated[str, typer.Option(help="The CPU to emulate, as QEMU names it.")] = HASWELL,
) -> None:
    """Compare the answers of this CPU and an emulated one. Ends with 1 if they differ, with 2 without an emulator."""
    if not shutil.which(EMULATOR):
        typer.echo(f"{EMULATOR} is missing: install the package qemu-user", err=True)
        raise typer.Exit(2)
    here = answers([], model)
    began = time.perf_counter()
    there = answers([EMULATOR, "-cpu", cpu], model)
    taken = time.perf_counter() - began
    off, differing = compare(here, there)
    typer.echo(f"{len(here)} texts on an emulated {cpu.partition(',')[0]} in {taken:.0f} s:")
    typer.echo(f"{differing} labels differ, scores by {off:.6f} at most")
    raise typer.Exit(int(bool(differing) or off > ALLOWED))


def answers(emulator: Sequence[str], model: Path | None) -> list[dict[str, Any]]:
    """What `sentiment classify` says of each text."""
    command = [*emulator, sys.executable, "-c", "from service.cli import main; main()", "classify"]
    option = ["--model", str(model)] if model else []
    done = subprocess.run([*command, *option], input=TEXTS.read_bytes(), stdout=subprocess.PIPE, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def compare(here: Sequence[dict[str, Any]], there: Sequence[dict[str, Any]]) -> tuple[float, int]:
    """The largest difference of two answers' scores, and how many labels differ."""
    pairs = list(zip(here, there, strict=True))
    off = max(abs(one["scores"][label] - other["scores"][label]) for one, other in pairs for label in one["scores"])
    return off, sum(one["label"] != other["label"] for one, other in pairs)


if __name__ == "__main__":
    typer.run(main)
