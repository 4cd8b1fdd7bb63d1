"""A reliability diagram: how often answers of a given confidence are right, before and after the temperature."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from models import evaluation, metrics
from models.evaluation import DevSets, Served
from models.verify import pooled
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
    logits, classes = pooled(evaluation.answer(Served(Engine(artifact)), tokenizer, sets), sets)
    figure = Figure(figsize=(5, 5), layout="constrained")
    axes = figure.add_subplot(xlabel="probability of the label", ylabel="share of right labels", aspect="equal")
    axes.plot([1 / 3, 1], [1 / 3, 1], color="0.7", linestyle="--", label="as it should be")
    for name, temperature, marker in (("raw", 1.0, "o"), ("calibrated", artifact.manifest.temperature, "s")):
        probabilities = metrics.softmax(logits, temperature)
        error = metrics.expected_calibration_error(probabilities, classes)
        axes.plot(*bins(probabilities, classes), marker=marker, label=f"{name}, expected error {error:.3f}")
    axes.legend()
    figure.savefig(out, metadata={"Date": None})


def bins(probabilities: NDArray[np.float64], classes: NDArray[np.int64]) -> tuple[list[float], list[float]]:
    """Mean confidence and accuracy of each of equal-width bins that is not empty."""
    confidence = probabilities.max(axis=-1)
    right = probabilities.argmax(axis=-1) == classes
    index = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    filled = np.unique(index)
    return [float(confidence[index == b].mean()) for b in filled], [float(right[index == b].mean()) for b in filled]
