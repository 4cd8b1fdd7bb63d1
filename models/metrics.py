"""How good an answer is: the measures every table of the model card uses."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from service import heads

Floats = NDArray[np.float32] | NDArray[np.float64]
Ints = NDArray[np.int64]


def softmax(logits: Floats, temperature: float = 1.0) -> NDArray[np.float64]:
    """Probabilities [n, labels] of logits [n, labels] divided by a temperature, computed as they are in serving."""
    return heads.softmax(logits, temperature)


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
    """The calibration gap of probabilities [n, labels] and the labels [n] that are right."""
    return calibration_gap(probabilities.max(axis=-1), probabilities.argmax(axis=-1) == labels, bins)


def calibration_gap(confidence: NDArray[np.float64], right: NDArray[np.bool_], bins: int = 15) -> float:
    """Mean gap between confidence [n] and accuracy over equal-width bins, weighted by their size.

    Guo et al. 2017, "On Calibration of Modern Neural Networks", equation 3.
    """
    index = np.minimum((confidence * bins).astype(np.int64), bins - 1)
    gaps = [abs(float(right[index == b].sum() - confidence[index == b].sum())) for b in np.unique(index)]
    return sum(gaps) / len(confidence)


def calibration_error_by_chance(probabilities: NDArray[np.float64], bins: int = 15, draws: int = 100) -> float:
    """Mean expected calibration error over labels drawn from the probabilities [n, labels] themselves.

    What a perfectly calibrated model would show on so few texts: the estimate is never negative, so noise does not
    cancel out of it (Nixon et al. 2019, "Measuring Calibration in Deep Learning").
    """
    random = np.random.default_rng(0)
    edges = probabilities.cumsum(axis=-1)[:, :-1]
    drawn = (random.random((draws, len(edges), 1)) > edges).sum(axis=-1)
    return float(np.mean([expected_calibration_error(probabilities, labels, bins) for labels in drawn]))
