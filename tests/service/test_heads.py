"""What logits are made of, by the kind of head."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.artifact import Artifact, Manifest
from service.errors import ArtifactError
from service.heads import Head, sigmoid
from tests.service.api.conftest import TINY

MANIFEST: dict[str, Any] = json.loads((TINY / "manifest.json").read_text(encoding="utf-8"))
LOGITS = np.array([2.0, -1.0, 0.5], np.float32)


def head(**changes: Any) -> Head:
    return Head(Manifest.model_validate(MANIFEST | {"temperature": 1.0} | changes))


def test_one_of_the_labels() -> None:
    scored = head().read(LOGITS)
    assert scored["label"] == "negative"
    assert scored["labels"] is None
    assert scored["value"] is None
    assert scored["probabilities"].sum() == pytest.approx(1)
    assert scored["valence"] == pytest.approx(scored["probabilities"][2] - scored["probabilities"][0])


def test_every_label_that_holds() -> None:
    scored = head(head="multi_label", labels=["rude", "long", "late"], threshold=0.6).read(LOGITS)
    assert scored["probabilities"] == pytest.approx(1 / (1 + np.exp(-LOGITS.astype(float))))
    assert scored["label"] == "rude"
    assert scored["labels"] == ("rude", "late")
    assert scored["valence"] is None
    assert head(head="multi_label", threshold=0.99).read(LOGITS)["labels"] == ()


def test_a_value() -> None:
    scored = head(head="regression", labels=["usefulness"]).read(LOGITS[:1])
    assert scored["value"] == 2.0
    assert scored["label"] == "usefulness"
    assert scored["probabilities"].size == 0
    assert scored["valence"] is None


@pytest.mark.parametrize(
    ("changes", "weights"),
    [
        ({"labels": ["positive", "negative", "c"]}, (1, -1, 0)),
        ({"labels": ["1 star", "3 stars", "5 stars"], "valences": [-1, 0, 1]}, (-1, 0, 1)),
    ],
)
def test_valence_where_the_labels_have_one(changes: dict[str, Any], weights: tuple[int, ...]) -> None:
    scored = head(**changes).read(LOGITS)
    assert scored["valence"] == pytest.approx(float(scored["probabilities"] @ weights))


@pytest.mark.parametrize("labels", [["a", "b", "c"], ["positive", "b", "c"]])
def test_no_valence_where_they_have_none(labels: list[str]) -> None:
    assert head(labels=labels).read(LOGITS)["valence"] is None


def test_probabilities_of_large_logits() -> None:
    assert sigmoid(np.array([-1e4, 0, 1e4], np.float32)).tolist() == [0, 0.5, 1]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"labels": ["a", "a", "b"]}, "a label is there twice"),
        ({"labels": ["a"]}, "a softmax head has two labels or more"),
        ({"head": "regression"}, "a regression has one output"),
        ({"valences": [0.0]}, "valences are one number"),
        ({"valences": [0.0, 0.0, 1.5]}, "valences are one number"),
    ],
)
def test_a_manifest_that_contradicts_itself(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps(MANIFEST | changes), encoding="utf-8")
    with pytest.raises(ArtifactError, match=reason):
        Artifact.open(tmp_path)
