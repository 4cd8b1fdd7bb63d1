"""Ways are measured and the fastest within the bounds is written."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="onnx belongs to the training set: make test-models")
pytest.importorskip("safetensors", reason="safetensors belongs to the training set: make test-models")
pytest.importorskip("scipy", reason="SciPy belongs to the training set: make test-models")

from models.export import PACKED, export
from models.quantize import EXACT, choose, quantize, table
from service.artifact import Artifact, Quantization
from service.engine import Engine


def row(time: float, agreement: float = 1.0, cosine: float = 1.0) -> dict[str, Any]:
    shared = {"relative_time": time, "microseconds": {8: 1000.0, 25: 2000.0}}
    return {
        "classify": {"agreement": agreement, "sst2": 0.9, "trees": 0.75, "tweets": 0.7} | shared,
        "embed": {"cosine_mean": cosine, "cosine_worst": cosine, "stsb": 0.86} | shared,
    }


ROWS = {
    EXACT: row(1.0),
    "fast but wrong": row(0.3, 0.9, 0.99),
    "fast": row(0.5, 0.99, 0.9992),
    "as fast, closer": row(0.51, 0.995, 0.9995),
    "close": row(0.8, 1.0, 1.0),
}
BOUNDS = {"agreement_min": 0.985, "cosine_mean_min": 0.999}


@pytest.mark.parametrize("graph", ["classify", "embed"])
def test_the_closest_of_the_fastest_within_the_bounds(graph: str) -> None:
    assert choose(ROWS, graph, BOUNDS) == "as fast, closer"


def test_stricter_bounds_choose_a_slower_way() -> None:
    assert choose(ROWS, "classify", {"agreement_min": 0.999}) == "close"


def test_float32_is_no_way_to_quantize() -> None:
    with pytest.raises(ValueError, match="no way to quantize embed"):
        choose({EXACT: row(1.0)}, "embed", BOUNDS)


def test_the_table_shows_what_was_chosen() -> None:
    text = table(ROWS, Quantization(classify="fast", embed="close"))
    classify, embed = text.strip().split("\n\n")
    assert "| **fast** | 90.00 | 75.00 | 70.00 | 99.00 | 1.00 | 2.00 | 2.00 |" in classify
    assert "| **close** | 86.00 | 1.00000 | 1.00000 | 1.00 | 2.00 | 1.25 |" in embed


def test_measures_and_writes_a_model(checkpoint: Path, data: Path, tmp_path: Path) -> None:
    export(checkpoint, tmp_path)
    quantize(tmp_path, data, bounds={"agreement_min": 0.5})
    measured = json.loads((tmp_path / "fp32/quantization.json").read_text(encoding="utf-8"))
    assert {EXACT, "int8-dynamic", "int8-dynamic-fitted", "blocks32"} < set(measured["ways"])
    assert measured["chosen"]["classify"] in (tmp_path / "fp32/quantization.md").read_text(encoding="utf-8")
    assert not [path for path in (tmp_path / "fp32").iterdir() if path.is_dir()]
    artifact = Artifact.open(tmp_path)
    assert artifact.manifest.bounds == {"agreement_min": 0.5}
    assert np.isfinite(Engine(artifact).classify(np.array([2, 9, 3])).logits).all()


def test_scales_fixed_in_advance_let_texts_share_runs(checkpoint: Path, data: Path, tmp_path: Path) -> None:
    export(checkpoint, tmp_path)
    quantize(tmp_path, data, "int8-static-fitted", "blocks32", bounds={})
    manifest = Artifact.open(tmp_path).manifest
    assert manifest.graphs.packed == PACKED
    assert PACKED in manifest.files
    quantize(tmp_path, data, "int8-dynamic-fitted", "blocks32", bounds={})
    manifest = Artifact.open(tmp_path).manifest
    assert manifest.graphs.packed is None
    assert not (tmp_path / PACKED).exists()


def test_the_same_texts_give_the_same_model(checkpoint: Path, data: Path, tmp_path: Path) -> None:
    export(checkpoint, tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    for name in ("a", "b"):
        quantize(tmp_path / name, data, "int8-dynamic-fitted", "blocks32", bounds={})
    first, second = (Artifact.open(tmp_path / name).manifest for name in ("a", "b"))
    assert first.files == second.files
    assert first.quantization == Quantization(classify="int8-dynamic-fitted", embed="blocks32")
