"""What a model's logits say, by the kind of its head: one of the labels, every label that holds, or a value."""

from __future__ import annotations

from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from service.artifact import Manifest

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]


class Scored(TypedDict):
    """What one text's logits say: the fields of inference's Scores."""

    label: str
    labels: tuple[str, ...] | None
    probabilities: Doubles
    logits: Floats
    value: float | None
    valence: float | None


class Head:
    """Reads logits float32 [labels] as a manifest says they are meant."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._valences = np.array(valences) if (valences := _valences(manifest)) else None

    def read(self, logits: Floats) -> Scored:
        """What the logits say."""
        manifest = self._manifest
        if manifest.head == "regression":
            return _scored(manifest.labels[0], np.empty(0), logits, value=float(logits[0]))
        if manifest.head == "multi_label":
            probabilities = sigmoid(logits)
            held = zip(manifest.labels, probabilities.tolist(), strict=True)
            labels = tuple(label for label, probability in held if probability >= manifest.threshold)
            return _scored(manifest.labels[int(probabilities.argmax())], probabilities, logits, labels=labels)
        probabilities = softmax(logits, manifest.temperature)
        valence = None if self._valences is None else float(probabilities @ self._valences)
        return _scored(manifest.labels[int(probabilities.argmax())], probabilities, logits, valence=valence)


def softmax(logits: Floats | Doubles, temperature: float) -> Doubles:
    """Calibrated probabilities, float64 [..., labels]: softmax of logits over a temperature (Guo et al. 2017)."""
    scaled = logits.astype(np.float64) / temperature
    exponents = np.exp(scaled - scaled.max(axis=-1, keepdims=True))
    return np.asarray(exponents / exponents.sum(axis=-1, keepdims=True))


def sigmoid(logits: Floats | Doubles) -> Doubles:
    """The probability of each label for itself, float64 [..., labels]."""
    # As a hyperbolic tangent, which a large logit does not overflow.
    return np.asarray(0.5 + 0.5 * np.tanh(0.5 * logits.astype(np.float64)))


def _scored(
    label: str,
    probabilities: Doubles,
    logits: Floats,
    *,
    labels: tuple[str, ...] | None = None,
    value: float | None = None,
    valence: float | None = None,
) -> Scored:
    return {
        "label": label,
        "labels": labels,
        "probabilities": probabilities,
        "logits": logits,
        "value": value,
        "valence": valence,
    }


def _valences(manifest: Manifest) -> tuple[float, ...] | None:
    """The valence of each label: as stated, or by the names negative and positive, or None."""
    if manifest.valences or not {"negative", "positive"} <= set(manifest.labels):
        return manifest.valences
    return tuple({"negative": -1.0, "positive": 1.0}.get(label, 0.0) for label in manifest.labels)
