"""The shapes of the graph that are timed compute what the one that is made does, but for those that mean to differ."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx", reason="onnx belongs to the sets for training and measuring")

from bench import layer_tables, variants
from bench.results import Results

EXACT = (
    "with a mask of padding",
    "not smoothed",
    "MultiHeadAttention",
    "attention of plain nodes",
    "SkipLayerNormalization",
    "every row of the last layer",
)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"HIDDEN": 48, "INNER": 64, "LAYERS": 2, "TOKENS": 16, "WORDS": 50}.items():
        monkeypatch.setattr(variants, name, value)
    monkeypatch.setattr(variants, "LENGTHS", (8,))
    monkeypatch.setattr(variants, "REPEATS", {8: 2})


@pytest.mark.parametrize("name", EXACT)
def test_a_shape_computes_the_same(name: str) -> None:
    ids = np.arange(1, 9)[None]
    one, other = (
        variants._session(variants.VARIANTS[which]().SerializeToString()).run(["cls"], {"input_ids": ids})[0]
        for which in (variants.BASE, name)
    )
    cosine = float((one * other).sum() / np.linalg.norm(one) / np.linalg.norm(other))
    assert cosine > 0.995


def test_each_is_timed_in_each_round_and_told_as_a_multiple(tmp_path: Path) -> None:
    variants.main(rounds=2, only=["SkipLayerNormalization", "float32"], out=tmp_path / "variants.json")
    results = Results.read(tmp_path / "variants.json")
    assert results
    assert len(results.runs) == 2 * 4
    lines = layer_tables.variants(results).splitlines()
    assert "| as it is made | 1.00 |" in lines
    assert lines[-1].startswith("| float32 | ")
