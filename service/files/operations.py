"""What is asked of each text of a file, and the columns its answer becomes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from service.inference import Classification, Embedding, Inference, LongText, Pool


@dataclass(frozen=True, slots=True)
class Operation:
    """`ask` answers up to BLOCK texts; `values` of one answer are its columns' but for the last, which is the error.

    `job` says all that the answers depend on besides the texts, in JSON's kinds. `labels` is the column to count by.
    """

    schema: pa.Schema
    ask: Callable[[Sequence[str]], Future[list[Any]]]
    values: Callable[[Any], tuple[Any, ...]]
    job: dict[str, Any]
    labels: str | None = None


def classify(inference: Inference, prefix: str = "", long_text: LongText = "window") -> Operation:
    """Labels, scores and valence, or a value, six decimals each as in the service's answers."""
    labels, head = inference.manifest.labels, inference.manifest.head
    several: dict[str, pa.DataType] = {"labels": pa.list_(pa.string())} if head == "multi_label" else {}
    read: dict[str, pa.DataType] = {"tokens": pa.int32(), "truncated": pa.bool_()}
    columns: dict[str, pa.DataType] = {
        "label": pa.string(),
        "score": pa.float64(),
        **several,
        **dict.fromkeys(labels, pa.float64()),
        "valence": pa.float64(),
        **read,
    }
    if head == "regression":
        columns = {"value": pa.float64(), **read}

    def values(answer: Classification) -> tuple[Any, ...]:
        told = answer.tokens, answer.left_out > 0
        if answer.value is not None:
            return (round(answer.value, 6), *told)
        scores = [round(score, 6) for score in answer.probabilities.tolist()]
        held = () if answer.labels is None else (list(answer.labels),)
        valence = None if answer.valence is None else round(answer.valence, 6)
        return (answer.label, max(scores), *held, *scores, valence, *told)

    return Operation(
        _schema(columns, prefix),
        lambda texts: inference.classify(texts, long_text),
        values,
        _job(inference, "classify", prefix, long_text=long_text),
        labels=None if head == "regression" else f"{prefix}label",
    )


def embed(
    inference: Inference,
    prefix: str = "",
    pool: Pool = "cls",
    long_text: LongText = "window",
    *,
    normalize: bool = False,
    dimensions: int | None = None,
) -> Operation:
    """Vectors, as a list of float32."""

    def ask(texts: Sequence[str]) -> Future[list[Any]]:
        return inference.embed(texts, pool, long_text, normalize=normalize, dimensions=dimensions)

    def values(answer: Embedding) -> tuple[Any, ...]:
        return (answer.vector,)

    chosen = {"pool": pool, "normalize": normalize, "dimensions": dimensions, "long_text": long_text}
    return Operation(
        _schema({"embedding": pa.list_(pa.float32())}, prefix),
        ask,
        values,
        _job(inference, "embed", prefix, **chosen),
    )


def _schema(columns: dict[str, pa.DataType], prefix: str) -> pa.Schema:
    return pa.schema([(f"{prefix}{name}", kind) for name, kind in {**columns, "error": pa.string()}.items()])


def _job(inference: Inference, operation: str, prefix: str, **options: Any) -> dict[str, Any]:
    model = hashlib.sha256(inference.manifest.model_dump_json().encode()).hexdigest()
    limits = [inference.limits.characters, inference.limits.windows]
    return {"operation": operation, "model": model, "limits": limits, "prefix": prefix, **options}
