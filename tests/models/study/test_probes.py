"""A probe separates what can be separated, and every layer of an encoder is probed."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch belongs to the training set: make test-models")

from models.study import probes
from models.study.record import read


def test_a_probe_finds_the_direction_of_each_class() -> None:
    rng = np.random.default_rng(0)
    classes = rng.integers(0, 3, 600)
    features = rng.normal(0, 1, (600, 8)) * 100 + 1000
    features[:, :3] += 900 * np.eye(3)[classes]
    probe = probes.fit(features[:400], classes[:400], 1e-3)
    assert (probe.logits(features[400:]).argmax(-1) == classes[400:]).mean() > 0.97


def test_a_large_penalty_leaves_only_how_frequent_the_classes_are() -> None:
    classes = np.repeat([0, 1, 2], [10, 30, 60])
    features = np.random.default_rng(1).normal(size=(100, 4))
    logits = probes.fit(features, classes, 1e6).logits(features).astype(np.float64)
    shares = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    np.testing.assert_allclose(shares, np.tile([0.1, 0.3, 0.6], (100, 1)), atol=0.01)


def test_among_many_noisy_features_a_penalty_between_the_extremes_is_chosen() -> None:
    rng = np.random.default_rng(0)
    classes = rng.integers(0, 3, 500)
    noisy = rng.normal(size=(500, 120)) + np.pad(np.eye(3)[classes], ((0, 0), (0, 117)))
    assert min(probes.PENALTIES) < probes.choose(noisy, classes) < max(probes.PENALTIES)


def test_every_layer_is_probed_and_embeddings_of_cls_say_nothing(
    start: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probes, "EACH", 50)
    out = tmp_path / "probes.json"
    probes.run({"start": start}, data, out)
    rows = read(out)[1]
    assert [(row["layer"], row["pool"]) for row in rows] == [(n, pool) for n in range(5) for pool in probes.POOLS]
    assert rows[0]["tweets"] == pytest.approx(100 / 3, abs=0.01)
    assert rows[1]["tweets"] > 40
