"""Linear probes on frozen encoders: what can be read from [CLS] and from the mean, layer by layer.

Alain and Bengio 2016, "Understanding intermediate layers using linear classifier probes".
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from scipy.optimize import minimize
from torch import Tensor

from models import metrics
from models.data import LABELS
from models.evaluation import DevSets
from models.study import texts
from models.study.encoder import Encoder, States, first, mean
from models.study.record import Record

POOLS = ("cls", "mean")
PENALTIES = (1e-3, 1e-2, 1e-1, 1.0, 10.0)
EACH = 3000
HELD_OUT = 5
SEED = 0
MAX_TOKENS = 64

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Probe:
    """Multinomial logistic regression on standardized features: logits = (x - middle) / spread @ weight + bias."""

    middle: Floats
    spread: Floats
    weight: Floats
    bias: Floats

    def logits(self, features: NDArray[Any]) -> NDArray[np.float32]:
        """Logits float32 [n, labels] of features [n, size]."""
        return ((features - self.middle) / self.spread @ self.weight + self.bias).astype(np.float32)


def fit(features: NDArray[Any], classes: Ints, penalty: float) -> Probe:
    """Fit to features [n, size] and classes int64 [n]: mean cross-entropy plus penalty / 2 * the squared weights."""
    middle, spread = features.mean(0, dtype=np.float64), features.std(0, dtype=np.float64) + 1e-6
    x = (features - middle) / spread
    wanted = np.eye(len(LABELS))[classes]

    def loss(flat: Floats) -> tuple[float, Floats]:
        parameters = flat.reshape(-1, len(LABELS))
        weight, bias = parameters[:-1], parameters[-1]
        probabilities = metrics.softmax(x @ weight + bias)
        error = (probabilities - wanted) / len(x)
        value = -np.log((probabilities * wanted).sum(-1) + 1e-300).mean() + penalty / 2 * (weight**2).sum()
        return float(value), np.concatenate([x.T @ error + penalty * weight, error.sum(0, keepdims=True)]).ravel()

    start = np.zeros((x.shape[1] + 1) * len(LABELS))
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 200}).x.reshape(-1, len(LABELS))
    return Probe(middle, spread, found[:-1], found[-1])


def choose(features: NDArray[Any], classes: Ints) -> float:
    """The penalty whose probe, fitted to four fifths of the training texts, is right most often on the last fifth."""
    split = len(classes) - len(classes) // HELD_OUT

    def right(penalty: float) -> float:
        probe = fit(features[:split], classes[:split], penalty)
        return metrics.accuracy(probe.logits(features[split:]).argmax(-1), classes[split:])

    return max(PENALTIES, key=right)


def run(encoders: Mapping[str, Path], folder: Path, out: Path) -> None:
    """Probe every layer of every encoder; layer 0 is the embeddings, whose [CLS] is the same for each text."""
    settings = {"train": list(texts.TRAIN), "each": EACH, "seed": SEED, "max_tokens": MAX_TOKENS}
    record = Record(out, settings | {"penalties": list(PENALTIES), "held_out": f"1 / {HELD_OUT}"})
    sets = DevSets.read(folder, rated=False)
    examples = texts.training(folder, EACH, SEED)
    classes = texts.classes(examples)
    console = Console(stderr=True)
    for name, path in encoders.items():
        began = time.thread_time()
        encoder = Encoder(path, half=True)
        train = features(encoder, [example.text for example in examples])
        dev = {one: features(encoder, sets.texts[one]) for one in sets.classes}
        console.print(f"{name}: features took {time.thread_time() - began:.0f} s")
        for layer in range(train.shape[1]):
            for column, pool in enumerate(POOLS):
                x = train[:, layer, column]
                penalty = choose(x, classes)
                probe = fit(x, classes, penalty)
                logits = {one: probe.logits(values[:, layer, column]) for one, values in dev.items()}
                scores = texts.scores(logits, sets)
                record.add(encoder=name, layer=layer, pool=pool, penalty=penalty, **scores)
                console.print(record.rows[-1])


def features(encoder: Encoder, written: Sequence[str]) -> NDArray[np.float32]:
    """[CLS] and mean of every layer's states, float32 [n, layers + 1, 2, hidden]."""

    def take(states: States, mask: Tensor) -> Tensor:
        return torch.stack([torch.stack([first(state), mean(state, mask)], 1) for state in states], 1)

    return encoder.each(encoder.encode(written, MAX_TOKENS), take)
