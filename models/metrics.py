"""How good an answer is: the measures every table of the model card uses."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from service import inference

Floats = NDArray[np.float32] | NDArray[np.float64]
Ints = NDArray[np.int64]


def softmax(logits: Floats, temperature: float = 1.0) -> NDArray[np.float64]:
    """Probabilities [n, labels] of logits [n, labels] divided by a temperature, computed as they are in serving."""
    return inference.softmax(logits, temperature)


def accuracy(predicted: Ints, labels: Ints) -> float:
    """Share of equal entries of two arrays [n]."""
    return float((predicted == labels).mean())


def macro_recall(predicted: Ints, labels: Ints) -> float:
    """Recall averaged over the classes that occur in `labels` [n]: TweetEval's measure for sentiment."""
    return float(np.mean([(predicted[labels == c] == c).mean() for c in np.unique(labels)]))


def spearman(first: Floats, second: Floats) -> float:
    """Spearman's rank correlation of two arrays [n], ties given their mean rank."""
    from scipy.stats import spearmanr

    return float(spearmanr(first, second).statistic)


def pearson(first: Floats, second: Floats) -> float:
    """Pearson's correlation of two arrays [n]."""
    return float(np.corrcoef(first, second)[0, 1])


def cosine(first: Floats, second: Floats) -> NDArray[np.float64]:
    """Cosine of each pair of rows of two arrays [n, size]."""
    a, b = first.astype(np.float64), second.astype(np.float64)
    norms = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
    return np.asarray((a * b).sum(axis=-1) / norms)


def expected_calibration_error(probabilities: NDArray[np.float64], labels: Ints, bins: int = 15) -> float:
    """Mean gap between confidence and accuracy over equal-width bins, weighted by their size.

    Guo et al. 2017, "On Calibration of Modern Neural Networks", equation 3.
    """
    confidence = probabilities.max(axis=-1)
    correct = probabilities.argmax(axis=-1) == labels
    index = np.minimum((confidence * bins).astype(np.int64), bins - 1)
    gaps = [abs(float(correct[index == b].sum() - confidence[index == b].sum())) for b in np.unique(index)]
    return sum(gaps) / len(labels)
