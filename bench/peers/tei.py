"""Hugging Face's text-embeddings-inference, where its binary is at hand: it comes with no package."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.peers import Peer, Place, best

PROGRAM = "text-embeddings-router"


def _command(place: Place) -> Sequence[str]:
    return [PROGRAM, "--model-id", str(place.weights), "--port", str(place.port), "--hostname", "127.0.0.1"]


def _body(texts: Sequence[str]) -> object:
    # A list of strings would be one pair of texts.
    return {"inputs": texts[0] if len(texts) == 1 else [[text] for text in texts], "truncate": True}


def _labels(answer: Any) -> list[str]:
    return [best(scores) for scores in (answer if isinstance(answer[0], list) else [answer])]


PEER = Peer(
    name="text-embeddings-inference",
    environment="",
    requirements=(),
    versions=(),
    command=_command,
    path="/predict",
    body=_body,
    labels=_labels,
    program=PROGRAM,
)
