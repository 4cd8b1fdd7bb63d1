"""What a student learns from a larger model: its logits, its vector of [CLS], and its states of all tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from models import data
from models.data import LABELS
from models.finetuned import Finetuned, Reading
from models.progress import progress

SAMPLE = 1024
"""Texts by which states are standardized."""
AT_ONCE = 64


class Taught(NamedTuple):
    """A teacher's logits, float32 [n, 3], and last hidden states of [CLS], float16 [n, its hidden size], of n texts.

    NaN for a text it did not label.
    """

    logits: Tensor
    states: Tensor


def label(checkpoint: str, texts: Sequence[str], out: Path, max_tokens: int = 128) -> None:
    """Write what a teacher says of each distinct text as Parquet: columns `text`, `logits` and `states`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    teacher = Finetuned(checkpoint, 0.0)
    distinct = sorted(set(texts), key=len)
    sizes = {"logits": len(LABELS), "states": teacher.model.config.hidden_size}
    types = {"logits": pa.float32(), "states": pa.float16()}
    schema = pa.schema({"text": pa.string()} | {name: pa.list_(types[name], size) for name, size in sizes.items()})
    with progress() as shown, pq.ParquetWriter(out, schema) as writer:
        bar = shown.add_task("labelling", total=len(distinct))
        for start in range(0, len(distinct), 4096):
            chunk = distinct[start : start + 4096]
            said = teacher.predict(chunk, max_tokens)
            columns = {"logits": said.logits.numpy(), "states": said.cls.half().numpy()}
            arrays = [pa.FixedSizeListArray.from_arrays(pa.array(c.reshape(-1)), sizes[n]) for n, c in columns.items()]
            writer.write_table(pa.Table.from_arrays([pa.array(chunk), *arrays], schema=schema))
            shown.update(bar, advance=len(chunk))


def read_labels(path: Path, texts: Sequence[str]) -> Taught:
    """What a teacher says of each of the texts, in their order.

    A text of the treebank has the same label with and without its tokenization, whichever the teacher read.
    """
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    known_texts: list[Any] = table["text"].to_pylist()
    rows = {data.detokenize(text): row for row, text in enumerate(known_texts)}
    index = np.array([rows.get(data.detokenize(text), -1) for text in texts], np.int64)
    found: list[Tensor] = []
    for name in Taught._fields:
        column: Any = table[name].combine_chunks()
        known = column.flatten().to_numpy(zero_copy_only=False).reshape(len(table), column.type.list_size)
        chosen = known[index]
        chosen[index < 0] = math.nan
        found.append(torch.tensor(chosen))
    return Taught(*found)


class Scale(NamedTuple):
    """The mean [hidden] of vectors and one deviation for all their values, so that the directions in which they differ
    most weigh most."""

    mean: Tensor
    deviation: Tensor

    @classmethod
    def of(cls, vectors: Tensor) -> Scale:
        """That of float32 vectors [n, hidden]."""
        mean = vectors.mean(0)
        return cls(mean, (vectors - mean).square().mean().sqrt())

    def standardized(self, vectors: Tensor) -> Tensor:
        """Vectors [n, hidden] less the mean and over the deviation, float32."""
        return (vectors.float() - self.mean) / self.deviation


def standardized(states: Tensor) -> Tensor:
    """Vectors [n, hidden] by their own scale, as float16; rows of NaN stay so."""
    return Scale.of(states[~states.isnan().any(-1)].float()).standardized(states).half()


def unlike(imitated: Tensor, states: Tensor) -> Tensor:
    """How far a student's [CLS] vectors, led to the teacher's size, are from the teacher's.

    The mean squared difference; 1 for a student that always says the mean, as the teacher's are standardized. Texts
    that the teacher did not read are left out.

    After the hidden-state distillation of TinyBERT (Jiao et al. 2020), of the vector that the head reads.
    """
    known = ~states.isnan().any(-1)
    return functional.mse_loss(imitated[known], states[known].float()) if known.any() else imitated.sum() * 0


class Tutor(torch.nn.Module):
    """A teacher that reads along and whose states of all tokens a student imitates, in layers that lie as deep.

    The hidden-state distillation of TinyBERT (Jiao et al. 2020, equation 8), of `layers` alone. The matrices that lead
    the student's states to the teacher's size are the module's parameters; they are dropped after training.
    """

    def __init__(self, teacher: Finetuned, student: Finetuned, texts: Sequence[str], known: Tensor, max_tokens: int):
        """Of the texts a student learns from, `known` bool [n] are read along.

        Raises ValueError for a text whose tokens are more or fewer to the one than to the other.
        """
        super().__init__()
        self._known = known
        self._teacher = teacher
        self._ids = teacher.encode(texts, max_tokens)
        for text, ours, theirs in zip(texts, student.encode(texts, max_tokens), self._ids, strict=True):
            if len(ours) != len(theirs):
                raise ValueError(f"the teacher has {len(theirs)} tokens and the student {len(ours)} in {text!r}")
        sizes = [one.model.config.hidden_size for one in (student, teacher)]
        self._layers = layers(*(one.model.config.num_hidden_layers for one in (student, teacher)))
        self._guides = torch.nn.ModuleList(torch.nn.Linear(*sizes) for _ in self._layers)
        teacher.model.eval()
        sample = sorted(known.nonzero().flatten().tolist()[:SAMPLE], key=lambda index: len(self._ids[index]))
        chunks = [self._states(sample[start : start + AT_ONCE])[0] for start in range(0, len(sample), AT_ONCE)]
        self._scales = [Scale.of(torch.cat(one).float()) for one in zip(*chunks, strict=True)]

    def unlike(self, batch: Sequence[int], student: Reading) -> Tensor:
        """How far a student's states of texts, named by their index, are from the teacher's: the mean squared
        difference over layers and tokens; 1 for a student that always says the mean."""
        rows = [row for row, index in enumerate(batch) if self._known[index]]
        if not rows:
            return student.logits.sum() * 0
        states, mask = self._states([batch[row] for row in rows])
        imitating = [student.hidden[layer] for layer, _ in self._layers]
        far = [
            functional.mse_loss(guide(mine[rows, : mask.shape[1]][mask].float()), scale.standardized(said))
            for mine, guide, scale, said in zip(imitating, self._guides, self._scales, states, strict=True)
        ]
        return torch.stack(far).mean()

    @torch.no_grad()
    def _states(self, texts: Sequence[int]) -> tuple[list[Tensor], Tensor]:
        """The teacher's states [tokens of all texts, hidden] in each of its layers that is imitated, and the mask."""
        read = self._teacher.read([self._ids[index] for index in texts])
        return [read.hidden[theirs][read.mask] for _, theirs in self._layers], read.mask


def layers(student: int, teacher: int) -> list[tuple[int, int]]:
    """Layers of encoders of so many, counted from 1, that lie as deep: at a third, at two thirds, before the last.

    The last itself is not among them: of it the head reads [CLS] alone, and the mean of the tokens has its own anchor.
    """
    chosen = {max(1, layer) for layer in (student // 3, 2 * student // 3, student - 1)}
    return [(layer, layer * teacher // student) for layer in sorted(chosen)]
