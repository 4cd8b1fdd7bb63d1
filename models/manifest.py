"""The manifest of a model folder: begun when it is exported, finished when it is verified."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from models.checkpoint import Bert
from models.export import CLASSIFY, EMBED
from models.storage import WEIGHTS
from service.artifact import MANIFEST, Graphs, Manifest, Quantization, sha256
from service.cleaning import STEPS

PACKAGES = ("onnx", "onnxruntime", "tokenizers", "numpy")
TOLERANCE = 0.05
"""How far off a golden logit may be. Where other instructions add in another order, a value on the edge between two
8-bit steps may fall to the other side; measured, that moves logits of long texts by up to 0.03 (`make check-avx2`), and
8-bit products that overflow by up to 0.25."""

# A name ends in _min or _max; what comes before is the name of the measure that it bounds.
BOUNDS = {
    "sst2_min": 0.90,
    "tweets_min": 0.69,
    "trees_min": 0.75,
    "stsb_min": 0.86,
    "points_lost_mean_max": 0.3,
    "points_lost_worst_max": 0.6,
    "agreement_min": 0.985,
    "cosine_mean_min": 0.999,
    "cosine_worst_min": 0.995,
    "export_difference_max": 1e-4,
    "megabytes_max": 60.0,
}


def draft(out: Path, bert: Bert) -> Manifest:
    """What is known of a model before it is measured."""
    return Manifest(
        format=1,
        name=out.resolve().name,
        family="bert",
        labels=bert.labels,
        hidden_size=bert.hidden_size,
        max_tokens=len(bert.positions),
        cleanup=tuple(STEPS),
        temperature=1.0,
        last_layer="cls_only",
        graphs=Graphs(classify=CLASSIFY, embed=EMBED),
        quantization=Quantization(classify="float32", embed="float32"),
        files={},
        golden=(),
        tolerance=TOLERANCE,
        bounds=BOUNDS,
        metrics={},
        versions={"python": platform.python_version()} | {package: version(package) for package in PACKAGES},
    )


def checksums(out: Path, graphs: Graphs) -> dict[str, str]:
    """The sha256 of every file that a model is made of."""
    return {name: sha256(out / name) for name in (*graphs.files, WEIGHTS, "tokenizer.json")}


def write(out: Path, manifest: Manifest) -> None:
    """Write `manifest.json`."""
    (out / MANIFEST).write_text(manifest.model_dump_json(indent=1) + "\n", encoding="utf-8")


def broken(bounds: Mapping[str, float], measures: Mapping[str, float]) -> list[str]:
    """A sentence for each bound that a measure breaks. A bound whose measure was not taken is not broken."""
    found: list[str] = []
    for bound, limit in bounds.items():
        measure, _, kind = bound.rpartition("_")
        if measure not in measures:
            continue
        value = measures[measure]
        kept = value >= limit if kind == "min" else value <= limit
        if not kept:
            found.append(f"{measure} is {value:.4g}; {bound} is {limit:g}")
    return found
