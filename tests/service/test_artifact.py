"""A model folder is opened only if it is the one its manifest was written for."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from service.artifact import Artifact, sha256
from service.errors import ArtifactError

TINY = Path(__file__).parents[1] / "tiny"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(TINY, tmp_path / "model"))


def rewrite(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    change(manifest)
    path.write_text(json.dumps(manifest), encoding="utf-8")


def test_opens_what_was_committed() -> None:
    artifact = Artifact.open(TINY)
    assert artifact.manifest.labels == ("negative", "neutral", "positive")
    assert artifact.path("tokenizer.json") == TINY / "tokenizer.json"
    assert len(artifact.manifest.golden) >= 8


def test_every_file_of_the_model_has_a_checksum() -> None:
    files = {path.name for path in TINY.iterdir()} - {"manifest.json", "README.md"}
    assert set(Artifact.open(TINY).manifest.files) == files


@pytest.mark.parametrize("name", ["classify.onnx", "embed.onnx", "weights.bin", "tokenizer.json"])
def test_one_altered_byte_is_seen(folder: Path, name: str) -> None:
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)
    with pytest.raises(ArtifactError, match=rf"{name} is not the file .* sha256 differs"):
        Artifact.open(folder)


def test_a_missing_file_is_named(folder: Path) -> None:
    (folder / "weights.bin").unlink()
    with pytest.raises(ArtifactError, match=r"weights\.bin cannot be read: No such file"):
        Artifact.open(folder)


def test_a_folder_without_a_manifest(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"manifest\.json cannot be read"):
        Artifact.open(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.update(format=2), r"format: Input should be 1"),
        (lambda m: m.update(surprise=1), r"surprise: Extra inputs are not permitted"),
        (lambda m: m.pop("labels"), r"labels: Field required"),
        (lambda m: m.update(temperature=0), r"temperature: Input should be greater than 0"),
        (lambda m: m["golden"][0].pop("mean"), r"golden\.0\.mean: Field required"),
    ],
)
def test_a_malformed_manifest_says_where(
    folder: Path, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    rewrite(folder, change)
    with pytest.raises(ArtifactError, match=message):
        Artifact.open(folder)


def test_a_manifest_that_is_not_json(folder: Path) -> None:
    (folder / "manifest.json").write_text("{", encoding="utf-8")
    with pytest.raises(ArtifactError, match="is not a manifest: manifest: Invalid JSON"):
        Artifact.open(folder)


@pytest.mark.parametrize("name", ["classify.onnx", "embed.onnx", "tokenizer.json", "weights.bin"])
def test_what_is_served_must_have_a_checksum(folder: Path, name: str) -> None:
    rewrite(folder, lambda manifest: manifest["files"].pop(name))
    with pytest.raises(ArtifactError, match=f"gives no sha256 of {name}"):
        Artifact.open(folder)


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/b", "", ".", ".."])
def test_names_stay_in_the_folder(folder: Path, name: str) -> None:
    rewrite(folder, lambda manifest: manifest["files"].update({name: "0" * 64}))
    with pytest.raises(ArtifactError, match="not a file of its own folder"):
        Artifact.open(folder)


def test_a_folder_has_no_digest(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="cannot be read"):
        sha256(tmp_path)


def test_a_manifest_cannot_be_changed() -> None:
    manifest = Artifact.open(TINY).manifest
    with pytest.raises(ValueError, match="frozen"):
        manifest.temperature = 2.0  # type: ignore[misc]
