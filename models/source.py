"""Where a model to import comes from, and what is refused before any of it is run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models.families import FAMILIES

CLASSIFIER = "ForSequenceClassification"
HEADS = ("classifier.weight", "classifier.out_proj.weight")
WORDS = ("word_embeddings.weight", "tok_embeddings.weight")
PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.h5", "*.msgpack")
FETCHED = ("*.safetensors", "*.safetensors.index.json", "config.json", "tokenizer*", "vocab*", "merges.txt", "*.model")


class RefusedError(Exception):
    """A model that cannot be imported: why, and what to do."""


@dataclass(frozen=True)
class Source:
    """A folder that holds a classifier of a known family: its configuration, and how high its word table is."""

    folder: Path
    config: Mapping[str, Any]
    vocabulary: int

    @property
    def family(self) -> str:
        """The model type."""
        return str(self.config["model_type"])


def find(name: str) -> Path:
    """The folder of that name, or what a hub holds under it, fetched. Raises RefusedError."""
    if Path(name).is_dir():
        return Path(name)
    if Path(name).exists() or name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise RefusedError(f"{name} is not a folder: give the folder that save_pretrained wrote, or the id of a hub")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, allow_patterns=list(FETCHED)))
    except HFValidationError as error:
        raise RefusedError(f"{name} is neither a folder here nor an id that a hub could have: {error}") from error
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        raise RefusedError(
            f"{name} is not a folder here, and a hub did not give it ({type(error).__name__}): "
            "where a hub can be reached, fetch it with `hf download`, and give its folder"
        ) from error


def check(folder: Path) -> Source:
    """Look at what a folder holds without running any of it. Raises RefusedError."""
    config = _json(folder / "config.json")
    if config is None:
        raise RefusedError(f"{folder} has no config.json: give the folder that save_pretrained wrote")
    _refuse_code(folder, config)
    family = config.get("model_type")
    if family not in FAMILIES:
        raise RefusedError(
            f"the family {family!r} is not known here: fine-tune a model of one of {', '.join(sorted(FAMILIES))}"
        )
    architectures = config.get("architectures") or []
    if architectures and not any(name.endswith(CLASSIFIER) for name in architectures):
        raise RefusedError(
            f"{', '.join(architectures)} is not a classifier of texts: fine-tune it as a ...{CLASSIFIER} and save that"
        )
    shapes = _shapes(folder)
    head = [shape for name, shape in shapes.items() if name in HEADS]
    if not head:
        raise RefusedError(
            f"the weights hold no classification head (none of {', '.join(HEADS)}): this is an encoder that was not "
            "fine-tuned; fine-tune it, as by `python -m models finetune`"
        )
    named = len(config["id2label"]) if "id2label" in config else 2
    if head[0][0] != named:
        raise RefusedError(
            f"the head gives {head[0][0]} values and config.json names {named} labels: "
            "correct id2label and label2id in config.json"
        )
    return Source(folder, config, next(shape[0] for name, shape in shapes.items() if name.endswith(WORDS)))


def _refuse_code(folder: Path, config: Mapping[str, Any]) -> None:
    for name, found in (("config.json", config), ("tokenizer_config.json", _json(folder / "tokenizer_config.json"))):
        if found and "auto_map" in found:
            raise RefusedError(
                f"{name} asks for code of the model's own (auto_map), which is never run here: "
                "load it where you trust that code, and save it as a class of transformers itself"
            )


def _shapes(folder: Path) -> dict[str, Sequence[int]]:
    """The shape of every tensor in a folder's safetensors files, in one part or several."""
    from safetensors import SafetensorError, safe_open

    files = sorted(folder.glob("model*.safetensors"))
    if not files:
        pickled = sorted(path.name for pattern in PICKLED for path in folder.glob(pattern))
        found = f"only {', '.join(pickled)}, which may run code when it is loaded" if pickled else "no weights"
        raise RefusedError(
            f"{folder} has {found}: save the model again as safetensors, which save_pretrained does by itself"
        )
    shapes: dict[str, Sequence[int]] = {}
    for path in files:
        try:
            with safe_open(path, "numpy") as file:
                shapes |= {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
        except SafetensorError as error:
            raise RefusedError(f"{path} is not a whole safetensors file ({error}): copy or save it again") from error
    return shapes


def _json(path: Path) -> dict[str, Any] | None:
    if not path.exists():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RefusedError(f"{path} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise RefusedError(f"{path} is not a JSON object")
    return found
