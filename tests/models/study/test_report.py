"""The document's tables are what its results say, and nothing else in it is touched."""

import json
from pathlib import Path

import pytest

from models.study import report

ROOT = Path(__file__).parents[3]
DOCUMENT = ROOT / "docs" / "cls-or-mean.md"
RESULTS = ROOT / "docs" / "cls-or-mean"


def test_the_documents_tables_are_those_of_the_committed_results() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert text == report.filled(text, RESULTS)
    assert {match[2] for match in report.BLOCK.finditer(text)} == set(report.TABLES)


def test_a_table_takes_the_place_between_its_markers(tmp_path: Path) -> None:
    rows = [
        {"head": head, "seed": seed, "sst2": 80 + seed, "tweets": 60, "trees": 70}
        for head in ("cls", "mean")
        for seed in (0, 1)
    ]
    (tmp_path / "heads.json").write_text(json.dumps({"settings": {}, "rows": rows}))
    text = report.filled(
        "Before.\n<!-- table: heads -->\nold\n<!-- end -->\nAfter.\n<!-- table: cost -->\n<!-- end -->\n", tmp_path
    )
    assert text.startswith("Before.\n<!-- table: heads -->\n\n| head |")
    assert (
        "| mean | 2 | 80.5 (80.0 to 81.0) | 60.0 (60.0 to 60.0) | 70.0 (70.0 to 70.0) | 70.2 |\n\n<!-- end -->\nAfter."
        in text
    )
    assert "old" not in text
    assert "*Not measured yet.*\n\n<!-- end -->\n" in text
    assert report.filled(text, tmp_path) == text
    (tmp_path / "heads.svg").touch()
    (tmp_path / "cost.svg").touch()
    text = text.replace("table: heads", "table: seeds")
    assert f"]({tmp_path.name}/heads.svg)\n\n<!-- end -->\nAfter." in report.filled(text, tmp_path)
    assert "cost.svg" not in report.filled(text, tmp_path)


def test_gains_are_counted_within_a_seed() -> None:
    rows = [
        {"head": head, "seed": seed, "sst2": value, "tweets": value, "trees": value}
        for head, seed, value in (("cls", 0, 70), ("max", 0, 71), ("cls", 1, 75), ("max", 1, 74))
    ]
    assert "| max | +1.0, -1.0 | +0.0 |" in report.seeds({}, rows)


def test_the_same_results_draw_the_same_pictures(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the pictures need the training set: make test-models")
    pytest.importorskip("torch", reason="PyTorch belongs to the training set: make test-models")
    from models.study.plots import draw

    rows = [
        {"encoder": encoder, "sentence": 0, "layer": layer, "cls": 0.1, "sep": 0.2, "opinion": 0.3, "other": 0.4}
        for encoder in ("start", "fine-tuned")
        for layer in (1, 2)
    ]
    (tmp_path / "attention.json").write_text(json.dumps({"settings": {"sentences": ["It is *good* ."]}, "rows": rows}))
    draw(tmp_path)
    first = (tmp_path / "attention.svg").read_bytes()
    draw(tmp_path)
    assert (tmp_path / "attention.svg").read_bytes() == first
    assert [path.suffix for path in sorted(tmp_path.iterdir())] == [".json", ".svg"]
