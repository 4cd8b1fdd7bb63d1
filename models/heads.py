"""What a classification head says: its kind, what its outputs are called, and the valence of each."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from models.checkpoint import Floats, label_names
from models.source import RefusedError
from service.artifact import Head
from service.heads import sigmoid, softmax

UNNAMED = re.compile(r"LABEL_\d+")
RESERVED = frozenset({"label", "labels", "score", "value", "valence", "tokens", "truncated", "error"})
"""Columns that labelling a file adds: a label of that name would have no column of its own."""

STARS = {1: -1.0, 2: -0.5, 3: 0.0, 4: 0.5, 5: 1.0}
MOODS: Sequence[Mapping[str, float]] = (
    {"negative": -1.0, "neutral": 0.0, "positive": 1.0},
    {"negative": -1.0, "positive": 1.0},
    {"very negative": -1.0, "negative": -0.5, "neutral": 0.0, "positive": 0.5, "very positive": 1.0},
    {"1 star" if stars == 1 else f"{stars} stars": value for stars, value in STARS.items()},
)
"""Sets of labels whose valence is known."""


def kind(config: Mapping[str, Any]) -> Head:
    """The kind of head, by the rule that the library trains by. Raises RefusedError."""
    problem, outputs = config.get("problem_type"), len(config["id2label"])
    if problem == "multi_label_classification":
        return "multi_label"
    if problem == "regression" and outputs > 1:
        raise RefusedError(
            f"config.json says regression with {outputs} outputs, and one is served: if they are labels, give --head"
        )
    return "regression" if problem == "regression" or outputs == 1 else "softmax"


def names(config: Mapping[str, Any], wanted: Sequence[str] | None) -> tuple[str, ...]:
    """What the outputs are called. Raises RefusedError."""
    own = label_names(config)
    if wanted and len(wanted) != len(own):
        raise RefusedError(f"--labels gives {len(wanted)} names and the head has {len(own)} outputs: {', '.join(own)}")
    found = tuple(wanted or own)
    twice = {name for name in found if found.count(name) > 1 or not name.strip()}
    if twice:
        raise RefusedError(f"labels must be distinct and not empty, and {min(twice)!r} is not: give --labels")
    if taken := RESERVED & set(found):
        raise RefusedError(f"a label cannot be called {min(taken)!r}, which answers say otherwise: give --labels")
    return found


def unnamed(labels: Sequence[str]) -> bool:
    """Whether the labels are the names that the library gives when it was told none."""
    return all(UNNAMED.fullmatch(label) for label in labels)


def valences(head: Head, labels: Sequence[str], wanted: Sequence[float] | None) -> tuple[float, ...] | None:
    """The valence of each label in [-1, 1] as stated, or as the labels' names say. Raises RefusedError."""
    if wanted:
        if head != "softmax":
            raise RefusedError(f"--valences is for labels that exclude each other; this head is {head}")
        if len(wanted) != len(labels) or not all(-1 <= value <= 1 for value in wanted):
            raise RefusedError(
                f"--valences needs {len(labels)} numbers in [-1, 1], in the order of {', '.join(labels)}"
            )
        return tuple(wanted)
    plain = [label.strip().casefold().replace("_", " ") for label in labels]
    if head != "softmax":
        return None
    return next((tuple(mood[name] for name in plain) for mood in MOODS if set(mood) == set(plain)), None)


def scores(head: Head, logits: Floats, spread: float) -> Floats:
    """Logits [n, labels] in the units that differences are judged in: probabilities, or values over their spread."""
    if head == "regression":
        return np.asarray(logits / np.float32(spread))
    return np.asarray(softmax(logits, 1.0) if head == "softmax" else sigmoid(logits), np.float32)


def decisions(head: Head, threshold: float, logits: Floats) -> Floats:
    """What is answered for logits [n, labels], as rows to compare: the label, the labels, or nothing for a value."""
    if head == "softmax":
        return np.asarray(logits.argmax(axis=1, keepdims=True), np.float32)
    return np.asarray(sigmoid(logits) >= threshold if head == "multi_label" else np.zeros_like(logits), np.float32)
