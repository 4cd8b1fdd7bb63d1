"""The real service as a process of its own, for measurements to ask."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from bench.processes import Server, answers, running

Model = Annotated[Path | None, typer.Option(help="Folder of the model; unset: the default one.")]


@contextmanager
def serving(model: Path | None, **settings: object) -> Iterator[Server]:
    """`sentiment serve` on a free port of the loopback interface, ready to be asked."""
    environ = {f"SENTIMENT_{name.upper()}": str(value) for name, value in settings.items()}
    if model:
        environ["SENTIMENT_MODEL"] = str(model.resolve())
    command = [str(Path(sys.executable).with_name("sentiment")), "serve", "--log-level", "warning", "--port"]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        with running(
            lambda port: [*command, str(port)], lambda url: answers(f"{url}/readyz"), log, environ=environ
        ) as one:
            yield one
