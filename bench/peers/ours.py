"""This service, started as anybody starts it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.peers import Peer, Place

PROGRAM = str(Path(sys.executable).with_name("sentiment"))
NAME = "sentiment-service"


def command(port: int, *options: str) -> list[str]:
    """The command that serves on a port, with further flags of `sentiment serve`."""
    return [PROGRAM, "serve", "--port", str(port), "--log-level", "warning", *options]


def body(texts: Sequence[str]) -> object:
    """A request: a text alone as a string."""
    return {"inputs": texts[0] if len(texts) == 1 else list(texts)}


def _command(place: Place) -> Sequence[str]:
    return command(place.port)


def _labels(answer: Any) -> list[str]:
    return [one["label"] for one in answer["results"]]


PEER = Peer(
    name=NAME,
    environment="",
    requirements=(),
    versions=(),
    command=_command,
    path="/classify",
    body=body,
    labels=_labels,
    program=PROGRAM,
)
