"""A model folder: its manifest, and the proof that its files are those the manifest was written for."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from service.errors import ArtifactError

Head = Literal["softmax", "multi_label", "regression"]
"""One of the labels; each label for itself, by a sigmoid; or one output that is the answer as it is."""

MANIFEST = "manifest.json"
UNSEALED = frozenset({MANIFEST, "README.md"})

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""What a model may be called by those who serve it: what a path, a metric's label and `name:pool` carry as it is."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Graphs(_Frozen):
    """File names of the graphs. `packed` is `classify` for several texts in a run, of a model whose answers that leaves
    as they are."""

    classify: str
    embed: str
    packed: str | None = None

    @property
    def files(self) -> tuple[str, ...]:
        """Of those that there are."""
        return (self.classify, self.embed, *filter(None, [self.packed]))


class Quantization(_Frozen):
    """How the matrices of each graph are stored and multiplied."""

    classify: str
    embed: str


class Table(_Frozen):
    """The word table, where both graphs have the same one: an array of a type and shape, from a byte of a file on."""

    file: str
    offset: int = Field(ge=0)
    dtype: Literal["float16", "float32"]
    shape: tuple[int, int]


class Golden(_Frozen):
    """A text with the answer that was served when the model was made: all logits, and how its mean vector begins.

    `label` is that of the largest logit, so that labels in another order do not pass.
    """

    text: str
    logits: tuple[float, ...]
    mean: tuple[float, ...]
    label: str | None = None


class Manifest(_Frozen):
    """What a model is, what it was measured to do, and the sha256 of every file it is made of.

    `threshold` is the probability from which a label of a multi_label head holds. `valences` are those of the labels of
    a softmax head, in [-1, 1]; without them, labels called negative and positive have -1 and 1. `wide` says that the
    classify graph was seen to give the same bits on two threads as on one.
    """

    format: Literal[1]
    name: str = Field(min_length=1)
    family: str = Field(min_length=1)
    labels: tuple[str, ...] = Field(min_length=1)
    head: Head = "softmax"
    threshold: float = Field(0.5, gt=0, lt=1)
    valences: tuple[float, ...] | None = None
    hidden_size: int = Field(gt=0)
    max_tokens: int = Field(ge=3)
    cleanup: tuple[str, ...]
    temperature: float = Field(gt=0)
    last_layer: Literal["cls_only", "full"]
    graphs: Graphs
    words: Table | None = None
    wide: bool = False
    quantization: Quantization
    files: dict[str, str]
    golden: tuple[Golden, ...]
    tolerance: float = Field(gt=0)
    bounds: dict[str, float]
    metrics: dict[str, Any]
    versions: dict[str, str]

    @model_validator(mode="after")
    def _labels_fit_the_head(self) -> Self:
        labels = len(self.labels)
        if labels > len(set(self.labels)):
            raise ValueError("a label is there twice")
        if labels < 2 and self.head == "softmax":
            raise ValueError("a softmax head has two labels or more")
        if labels > 1 and self.head == "regression":
            raise ValueError("a regression has one output")
        if self.valences and (len(self.valences) != labels or not all(-1 <= value <= 1 for value in self.valences)):
            raise ValueError("valences are one number in [-1, 1] for each label")
        return self


@dataclass(frozen=True, slots=True)
class Artifact:
    """A model folder and its manifest. `digest` is the manifest's sha256, which tells versions of a model apart: the
    manifest has the digests of all other files."""

    folder: Path
    manifest: Manifest
    digest: str = ""

    @classmethod
    def open(cls, folder: Path) -> Artifact:
        """Read the manifest and verify the sha256 of every file it names.

        Raises ArtifactError for a missing or malformed manifest, a graph or tokenizer without a checksum, and a file
        that is missing, altered or outside the folder.
        """
        artifact = cls(folder, *_read(folder / MANIFEST))
        manifest = artifact.manifest
        words = (manifest.words.file,) if manifest.words else ()
        for needed in (*manifest.graphs.files, "tokenizer.json", *words):
            if needed not in manifest.files:
                raise ArtifactError(f"{folder / MANIFEST} gives no sha256 of {needed}")
        for name, expected in manifest.files.items():
            if sha256(artifact.path(name)) != expected:
                raise ArtifactError(f"{folder / name} is not the file its manifest was written for: sha256 differs")
        return artifact

    def path(self, name: str) -> Path:
        """Where a file of the model is. Raises ArtifactError for a name that leads out of the folder."""
        if Path(name).name != name or name in {"", ".."}:
            raise ArtifactError(f"{self.folder / MANIFEST} names {name!r}, which is not a file of its own folder")
        return self.folder / name


def sha256(path: Path) -> str:
    """Hexadecimal digest of a file. Raises ArtifactError if it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ArtifactError(f"{path} cannot be read: {error.strerror}") from error


def _read(path: Path) -> tuple[Manifest, str]:
    """A manifest and the sha256 of its file."""
    try:
        content = path.read_bytes()
        return Manifest.model_validate_json(content), hashlib.sha256(content).hexdigest()
    except OSError as error:
        raise ArtifactError(f"{path} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "manifest"
        raise ArtifactError(f"{path} is not a manifest: {where}: {first['msg']}") from error
