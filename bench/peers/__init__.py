"""Other servers of the same model: how each is installed, started and asked. A file each; needs nothing but Python.

Those with an app of their own are started as `python -m bench.peers.NAME FOLDER PORT` in their own environment.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TORCH = ("torch==2.13.0",)
"""Installed before anything else: a package that depends on any torch would bring one of its own choice."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a server runs: the folder of its environment's programs, the checkpoint's folder, its port."""

    programs: Path
    weights: Path
    port: int


@dataclass(frozen=True, slots=True)
class Peer:
    """A server to compare with. It is started in the checkpoint's folder, beside `model.onnx` in float32.

    `body` makes a request of texts and `labels` reads the label of each out of the answer. `requirements` are installed
    one group after the other into `environment`, which servers may share; a peer without one is `program`, on the PATH.
    """

    name: str
    environment: str
    requirements: tuple[tuple[str, ...], ...]
    versions: tuple[str, ...]
    command: Callable[[Place], Sequence[str]]
    path: str
    body: Callable[[Sequence[str]], object]
    labels: Callable[[Any], list[str]]
    environ: dict[str, str] = field(default_factory=dict)
    program: str = ""


def app(module: str) -> Callable[[Place], Sequence[str]]:
    """The command that runs one of the modules here."""

    def command(place: Place) -> Sequence[str]:
        return [str(place.programs / "python"), "-m", f"bench.peers.{module}", str(place.weights), str(place.port)]

    return command


def place() -> tuple[Path, int]:
    """The checkpoint's folder and the port, as `app` passes them."""
    folder, port = sys.argv[1:]
    return Path(folder), int(port)


def inputs(texts: Sequence[str]) -> object:
    """The request of the apps here."""
    return {"inputs": list(texts)}


def results(answer: Any) -> list[str]:
    """The labels in the answer of the apps here, a list of objects with a label and a score."""
    return [one["label"] for one in answer]


def best(scores: Sequence[dict[str, Any]]) -> str:
    """The label with the highest score."""
    return str(max(scores, key=lambda one: one["score"])["label"])
