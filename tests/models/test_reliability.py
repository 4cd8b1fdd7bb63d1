"""The reliability diagram shows accuracy against confidence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("scipy", reason="measuring a model needs the training set: make test-models")
pytest.importorskip("matplotlib", reason="the diagram needs the training set: make test-models")

from models import reliability

TINY = Path(__file__).parents[1] / "tiny"


def test_bins_hold_mean_confidence_and_accuracy() -> None:
    confidence, accuracy = reliability.bins(np.array([0.98, 0.92, 0.55, 1.0]), np.array([True, False, True, True]))
    assert confidence == pytest.approx([0.55, (0.98 + 0.92 + 1.0) / 3])
    assert accuracy == pytest.approx([1.0, 2 / 3])


def test_the_same_answers_draw_the_same_picture(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "sst2_dev.tsv").write_text("sentence\tlabel\ngood film\t1\nbad film\t0\n")
    (data / "tweets_dev.tsv").write_text("label\ttext\nneutral\tthe train\npositive\tgood\n")
    (data / "sst_trees_dev.txt").write_text("(3 (2 the) (3 good))\n(1 (2 the) (1 bad))\n")
    (data / "stsb_dev.tsv").write_text("score\tsentence1\tsentence2\n5\tgood\tgood\n1\tgood\tbad\n")
    first, second = tmp_path / "1.svg", tmp_path / "2.svg"
    reliability.draw(TINY, data, first)
    reliability.draw(TINY, data, second)
    assert first.read_bytes() == second.read_bytes()
    assert b"<svg" in first.read_bytes()
