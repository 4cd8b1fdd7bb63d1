"""A reliability diagram: how often answers of a given confidence are right, before and after the temperature."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from models import evaluation, metrics
from models.evaluation import DevSets, Served
from models.verify import within_classes
from service.artifact import Artifact
from service.engine import Engine
from service.tokenizer import Tokenizer

BINS = 10


def draw(folder: Path, data: Path, out: Path) -> None:
    """Answer the labelled dev sets as served and draw the diagram as SVG."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams["svg.hashsalt"] = "reliability"
    artifact = Artifact.open(folder)
    tokenizer = Tokenizer(artifact.path("tokenizer.json"), artifact.manifest.max_tokens, artifact.manifest.cleanup)
    sets = DevSets.read(data, rated=False)
    labelled = within_classes(evaluation.answer(Served(Engine(artifact)), tokenizer, sets), sets)
    figure = Figure(figsize=(5, 5), layout="constrained")
    axes = figure.add_subplot(xlabel="probability of the label", ylabel="share of right labels", aspect="equal")
    axes.plot([1 / 3, 1], [1 / 3, 1], color="0.7", linestyle="--", label="as it should be")
    for name, temperature, marker in (("raw", 1.0, "o"), ("calibrated", artifact.manifest.temperature, "s")):
        answered = [(metrics.softmax(logits, temperature), classes) for logits, classes in labelled.values()]
        confidence = np.concatenate([probabilities.max(axis=-1) for probabilities, _ in answered])
        right = np.concatenate([probabilities.argmax(axis=-1) == classes for probabilities, classes in answered])
        error = metrics.calibration_gap(confidence, right)
        axes.plot(*bins(confidence, right), marker=marker, label=f"{name}, expected error {error:.3f}")
    axes.legend()
    figure.savefig(out, metadata={"Date": None})


def bins(confidence: NDArray[np.float64], right: NDArray[np.bool_]) -> tuple[list[float], list[float]]:
    """Mean confidence and accuracy of each of equal-width bins that is not empty, of arrays [n]."""
    index = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    filled = np.unique(index)
    return [float(confidence[index == b].mean()) for b in filled], [float(right[index == b].mean()) for b in filled]
