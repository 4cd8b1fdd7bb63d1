"""The model card says what the manifest and the training record say."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jinja2", reason="the card needs the training set: make test-models")

from models import card
from service.artifact import Artifact

TINY = Path(__file__).parents[1] / "tiny"
RECORD: dict[str, Any] = {
    "texts": 1234,
    "minutes": 5.6,
    "recipe": {"epochs": 2, "rate": 8e-5},
    "epochs": [
        {"sst2": 0.5, "tweets": 0.4, "trees": 0.3, "stsb": 0.2},
        {"sst2": 0.9123, "tweets": 0.7, "trees": 0.77, "stsb": 0.8654},
    ],
}


def test_a_card_holds_the_figures_of_the_manifest_and_of_training() -> None:
    artifact = Artifact.open(TINY)
    text = card.card(artifact, [RECORD, RECORD], "| a | table |")
    metrics = artifact.manifest.metrics
    assert f"{100 * metrics['sst2']:.1f} %" in text
    assert f"Spearman {metrics['stsb']:.4f}" in text
    assert f"temperature {artifact.manifest.temperature}" in text
    assert "| 2 | 2 | 91.2 | 70.0 | 77.0 | 0.8654 |" in text
    assert "| a | table |" in text
    assert "1234 texts, 5.6 minutes" in text
    assert all(name in text for name in artifact.manifest.files)


def test_what_was_not_measured_is_said(tmp_path: Path) -> None:
    manifest = Artifact.open(TINY).manifest.model_copy(update={"metrics": {}})
    text = card.card(Artifact(TINY, manifest), [RECORD], "")
    assert "Spearman not measured" in text


def test_the_checklist_is_shown_by_capability_or_said_to_be_missing() -> None:
    manifest = Artifact.open(TINY).manifest
    measured = {"negation": {"cases": 8, "passed": 7}, "emoji": {"cases": 2, "passed": 2}}
    with_it = Artifact(TINY, manifest.model_copy(update={"metrics": {"checklist": measured}}))
    assert "|---|---:|---:|\n| negation | 8 | 87.5 % |\n| emoji | 2 | 100.0 % |\n\n## Size" in card.card(
        with_it, [RECORD], ""
    )
    without = Artifact(TINY, manifest.model_copy(update={"metrics": {}}))
    assert "## Checklist\n\nNot put through the checklist (`python -m models checklist`).\n\n## Size" in card.card(
        without, [RECORD], ""
    )


def test_a_card_is_written_beside_the_manifest(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(TINY, tmp_path / "model"))
    training, table = tmp_path / "training.json", tmp_path / "table.md"
    training.write_text(json.dumps(RECORD))
    table.write_text("| b | table |\n")
    card.write(folder, [training], table)
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert text.startswith("# tiny\n")
    assert "| b | table |" in text
