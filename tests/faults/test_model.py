"""A model that is not what it says: the service starts, says that it is not ready and why, and answers no text.

One altered byte and a missing file are in tests/service/test_artifact.py, a golden text with another answer in
tests/service/test_inference.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from starlette.testclient import TestClient

from service.api.app import create_app
from service.artifact import sha256
from service.settings import Settings
from tests.service.api.conftest import TINY
from tests.service.variants import variant

Manifest = dict[str, Any]


def tiny() -> Manifest:
    manifest: Manifest = json.loads((TINY / "manifest.json").read_text(encoding="utf-8"))
    for golden in manifest["golden"]:
        golden["label"] = manifest["labels"][golden["logits"].index(max(golden["logits"]))]
    return manifest


def refusal(folder: Path) -> str:
    """Why the service is not ready; it lives, and says the same to a text."""
    with TestClient(create_app(Settings(model=folder, workers=1)), raise_server_exceptions=False) as client:
        assert client.get("/healthz").status_code == 200
        ready = client.get("/readyz")
        answer = client.post("/classify", json={"inputs": "good"})
    assert (ready.status_code, answer.status_code) == (503, 503)
    assert ready.json()["error"]["code"] == "not_ready"
    assert answer.json()["error"]["code"] == "unavailable"
    message: str = ready.json()["error"]["message"]
    return message


def test_what_the_manifest_says_of_its_golden_texts_is_true(tmp_path: Path) -> None:
    """The tests below fail for what they change, not for the labels they add."""
    folder = variant(tmp_path / "model", **tiny())
    with TestClient(create_app(Settings(model=folder, workers=1))) as client:
        assert client.get("/readyz").status_code == 200


@pytest.mark.parametrize("name", ["classify.onnx", "embed.onnx", "weights.bin", "tokenizer.json", "manifest.json"])
def test_a_truncated_file(tmp_path: Path, name: str) -> None:
    folder = variant(tmp_path / "model", **tiny())
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: len(content) // 2])
    assert name in refusal(folder)


@pytest.mark.parametrize("name", ["classify.onnx", "embed.onnx", "weights.bin", "tokenizer.json"])
def test_a_truncated_file_with_a_checksum_that_fits(tmp_path: Path, name: str) -> None:
    """A copy that ended early and was sealed afterwards."""
    folder = variant(tmp_path / "model", **tiny())
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: len(content) // 2])
    reseal(folder, name)
    assert refusal(folder)


@pytest.mark.parametrize("size", [200, 2000])
def test_the_tokenizer_of_another_model_with_a_checksum_that_fits(tmp_path: Path, size: int) -> None:
    """Of a smaller vocabulary, whose ids all exist, and of a larger one, whose ids do not."""
    folder = variant(tmp_path / "model", **tiny())
    other = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    words = list(other["model"]["vocab"])
    special, rest = words[:5], words[5:]
    moved = [*special, *rest[::-1][:size], *(f"filler{i}" for i in range(size - len(rest)))]
    vocabulary = [*special, *moved[:4:-1]]
    other["model"]["vocab"] = {word: number for number, word in enumerate(vocabulary)}
    (folder / "tokenizer.json").write_text(json.dumps(other), encoding="utf-8")
    tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    reseal(folder, "tokenizer.json")
    assert "golden text" in refusal(folder)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda m: m["labels"].reverse(), "its label is"),
        (lambda m: m["labels"].pop(), "gives 3 logits, the manifest 3 and has 2 labels"),
        (lambda m: m["labels"].append("mixed"), "gives 3 logits, the manifest 3 and has 4 labels"),
        (lambda m: m["golden"][0]["logits"].pop(), "gives 3 logits, the manifest 2 and has 3 labels"),
        (lambda m: m["golden"].clear(), "has no golden text"),
        (lambda m: m["golden"][0].update(text=""), "the text is empty"),
        (lambda m: m.update(max_tokens=100_000, golden=[long(m)]), "golden text"),
    ],
    ids=["another order", "a label less", "a label more", "a logit less", "nothing to show", "empty", "too long"],
)
def test_a_manifest_that_lies(tmp_path: Path, change: Callable[[Manifest], object], reason: str) -> None:
    manifest = tiny()
    change(manifest)
    assert reason in refusal(variant(tmp_path / "model", **manifest))


def long(manifest: Manifest) -> dict[str, Any]:
    """A golden text that the graph is too short for."""
    return {**manifest["golden"][0], "text": "good " * 1000}


def reseal(folder: Path, name: str) -> None:
    manifest: Manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    manifest["files"][name] = sha256(folder / name)
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
