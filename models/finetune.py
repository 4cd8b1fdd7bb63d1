"""Fine-tune a Hugging Face encoder with a classification head on [CLS], with or without a teacher."""

from __future__ import annotations

import json
import math
import random
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from transformers import set_seed

from models import data, metrics
from models.data import Example
from models.finetuned import Finetuned
from models.progress import progress
from models.teacher import Tutor, read_labels, standardized, unlike

GROUPS_OF_BATCHES = 50
GUIDE_RATE = 10.0
"""Times the student's rate, for matrices that start at random."""


@dataclass(frozen=True)
class Recipe:
    """Everything that decides a training run, besides the data and the starting weights."""

    epochs: int = 2
    batch: int = 64
    rate: float = 6e-5
    warmup: float = 0.06
    weight_decay: float = 0.01
    dropout: float = 0.1
    max_tokens: int = 128
    keep_embedding: float = 0.0
    teacher_share: float = 0.0
    imitate: float = 0.0
    imitate_tokens: float = 0.0
    freeze: int = 0
    seed: int = 0


@dataclass(frozen=True)
class Encoded:
    """The training set as token ids, soft targets [n, 3], weights [n], and the teacher's logits [n, 3] and [CLS]
    vectors [n, its hidden size], standardized, if any."""

    ids: list[list[int]]
    targets: Tensor
    weights: Tensor
    teacher: Tensor | None
    states: Tensor | None


def batches(lengths: Sequence[int], size: int, rng: random.Random) -> list[list[int]]:
    """Indices in random order, grouped so that texts of a batch have similar lengths."""
    order = list(range(len(lengths)))
    rng.shuffle(order)
    group = size * GROUPS_OF_BATCHES
    found: list[list[int]] = []
    for start in range(0, len(order), group):
        ordered = sorted(order[start : start + group], key=lambda i: lengths[i])
        found += (ordered[i : i + size] for i in range(0, len(ordered), size))
    rng.shuffle(found)
    return found


def schedule(step: int, steps: int, warmup: float) -> float:
    """Share of the full rate at a step: linear warm-up, then linear decay to zero."""
    rising = max(1, round(steps * warmup))
    return min(step / rising, (steps - step) / max(1, steps - rising))


def loss_of(
    logits: Tensor,
    pooled: Tensor,
    targets: Tensor,
    weights: Tensor,
    teacher: Tensor | None,
    start: Tensor,
    recipe: Recipe,
) -> Tensor:
    """Soft cross-entropy on [CLS], blended with the teacher's (Hinton et al. 2015), plus the embedding's drift.

    A row of `targets` that is all zero has no label: there the teacher alone speaks. A row of `teacher` that is NaN was
    not labelled by it: there the label alone does.
    """
    log_probabilities = functional.log_softmax(logits, dim=-1)
    cross_entropy = -(targets * log_probabilities).sum(-1)
    if teacher is not None:
        unknown = teacher.isnan().any(-1)
        share = torch.where(targets.sum(-1) > 0, recipe.teacher_share, 1.0).masked_fill(unknown, 0.0)
        taught = functional.softmax(teacher.masked_fill(unknown[:, None], 0.0), dim=-1)
        distilled = -(taught * log_probabilities).sum(-1)
        cross_entropy = (1 - share) * cross_entropy + share * distilled
    drift = 1 - functional.cosine_similarity(pooled, start, dim=-1)
    return (weights * cross_entropy).sum() / weights.sum() + recipe.keep_embedding * drift.mean()


def finetune(
    start: str,
    examples: list[Example],
    dev: Path,
    out: Path,
    recipe: Recipe,
    teacher: Path | None,
    anchor: str | None = None,
    tutor: str | None = None,
) -> None:
    """Train, evaluate on the dev files after each epoch, and write a Hugging Face checkpoint with its record.

    `anchor` is the model whose mean vectors are to be kept; unsaid, the starting one. A chain of passes names the first
    start in each, or it drifts a little further in every pass. `tutor` is the teacher itself, which reads along where
    the states of its tokens are imitated. Raises ValueError for a text without a label that no teacher labelled either.
    """
    set_seed(recipe.seed)
    student = Finetuned(start, recipe.dropout)
    freeze(student.model, recipe.freeze)
    encoded = _encode(student, examples, recipe, teacher)
    anchors = _anchors(anchor or start, examples, recipe) if recipe.keep_embedding else None
    run = Run(student, encoded, anchors, recipe, _tutor(tutor, student, examples, encoded, recipe))
    steps = recipe.epochs * math.ceil(len(examples) / recipe.batch)
    record: dict[str, Any] = {"start": Path(start).name, "texts": len(examples), "recipe": asdict(recipe), "epochs": []}
    began = time.monotonic()
    with progress() as shown:
        bar = shown.add_task("fine-tuning", total=steps)
        for epoch, step, batch in _walk(encoded, recipe):
            loss = run.step(batch, recipe.rate * schedule(step, steps, recipe.warmup))
            shown.update(bar, advance=1, description=f"epoch {epoch + 1} loss {loss:.3f}")
            if (step + 1) % (steps // recipe.epochs) == 0:
                scores = evaluate(student, dev)
                shown.console.print(f"epoch {epoch + 1}:", json.dumps(scores), soft_wrap=True)
                record["epochs"].append(scores)
                record["minutes"] = round((time.monotonic() - began) / 60, 1)
                _save(student, out, record)


def freeze(model: torch.nn.Module, layers: int) -> None:
    """Leave the embeddings and so many of the first layers as they are; a step computes no gradients for them."""
    for name, parameter in model.named_parameters():
        layer = re.search(r"\.layer\.(\d+)\.", name)
        lowest = int(layer.group(1)) < layers if layer else ".embeddings." in name
        parameter.requires_grad = not (layers and lowest)


def _walk(encoded: Encoded, recipe: Recipe) -> Iterator[tuple[int, int, list[int]]]:
    rng = random.Random(recipe.seed)
    step = 0
    for epoch in range(recipe.epochs):
        for batch in batches([len(ids) for ids in encoded.ids], recipe.batch, rng):
            yield epoch, step, batch
            step += 1


class Run:
    """A training run between two steps: the student, what it learns from, and the optimizer.

    `anchors` are the mean vectors it keeps, float16 [n, hidden]. Raises ValueError where there is nobody to imitate.
    """

    def __init__(
        self, student: Finetuned, encoded: Encoded, anchors: Tensor | None, recipe: Recipe, tutor: Tutor | None = None
    ) -> None:
        self._student, self._encoded, self._anchors, self._recipe = student, encoded, anchors, recipe
        self._guide = _guide(student, encoded) if recipe.imitate else None
        self._tutor = tutor
        groups = _parameter_groups(student.model, recipe)
        for leading in filter(None, (self._guide, self._tutor)):
            groups += [group | {"rate": GUIDE_RATE} for group in _parameter_groups(leading, recipe)]
        self._optimizer = torch.optim.AdamW(groups, lr=recipe.rate, fused=True)

    def step(self, batch: list[int], rate: float) -> float:
        """Learn from a batch, its texts named by their index; the loss before."""
        for group in self._optimizer.param_groups:
            group["lr"] = rate * group.get("rate", 1.0)
        self._student.model.train()
        loss = self._loss(batch)
        self._optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._student.model.parameters(), 1.0)
        self._optimizer.step()
        return float(loss.detach())

    def _loss(self, batch: list[int]) -> Tensor:
        encoded, recipe = self._encoded, self._recipe
        read = self._student.read([encoded.ids[i] for i in batch])
        logits, pooled, cls = read.outputs()
        loss = loss_of(
            logits,
            pooled,
            encoded.targets[batch],
            encoded.weights[batch],
            None if encoded.teacher is None else encoded.teacher[batch],
            pooled.detach() if self._anchors is None else self._anchors[batch].float(),
            recipe,
        )
        if self._guide is not None and encoded.states is not None:
            loss = loss + recipe.imitate * unlike(self._guide(cls), encoded.states[batch])
        if self._tutor is not None:
            loss = loss + recipe.imitate_tokens * self._tutor.unlike(batch, read)
        return loss


def _guide(student: Finetuned, encoded: Encoded) -> torch.nn.Linear:
    """What leads the student's [CLS] vectors to the teacher's; it is dropped after training.

    Raises ValueError without a teacher.
    """
    if encoded.states is None:
        raise ValueError("there is no teacher to imitate: name its labels")
    return torch.nn.Linear(student.model.config.hidden_size, encoded.states.shape[1])


def _tutor(
    tutor: str | None, student: Finetuned, examples: list[Example], encoded: Encoded, recipe: Recipe
) -> Tutor | None:
    """Who reads along the texts that the teacher labelled. Raises ValueError where there is nobody."""
    if not recipe.imitate_tokens:
        return None
    if tutor is None or encoded.teacher is None:
        raise ValueError("there is no teacher whose tokens to imitate: name its labels and its checkpoint")
    known = ~encoded.teacher.isnan().any(-1)
    return Tutor(Finetuned(tutor, 0.0), student, [one.text for one in examples], known, recipe.max_tokens)


def _encode(student: Finetuned, examples: list[Example], recipe: Recipe, teacher: Path | None) -> Encoded:
    texts = [example.text for example in examples]
    taught = None if teacher is None else read_labels(teacher, texts)
    for index, example in enumerate(examples):
        if example.target is None and (taught is None or taught.logits[index].isnan().any()):
            raise ValueError(f"neither a label nor a teacher says anything of {example.text!r}")
    return Encoded(
        ids=student.encode(texts, recipe.max_tokens),
        targets=torch.tensor([example.target or (0.0, 0.0, 0.0) for example in examples]),
        weights=torch.tensor([example.weight for example in examples]),
        teacher=None if taught is None else taught.logits,
        states=standardized(taught.states) if taught is not None and recipe.imitate else None,
    )


def _anchors(anchor: str, examples: list[Example], recipe: Recipe) -> Tensor:
    """Mean-pooled vectors of a model, which the student is to keep."""
    return Finetuned(anchor, 0.0).predict([example.text for example in examples], recipe.max_tokens).mean.half()


def _parameter_groups(model: torch.nn.Module, recipe: Recipe) -> list[dict[str, Any]]:
    trained = [p for p in model.parameters() if p.requires_grad]
    plain = [p for p in trained if p.ndim < 2]
    decayed = [p for p in trained if p.ndim >= 2]
    return [{"params": plain, "weight_decay": 0.0}, {"params": decayed, "weight_decay": recipe.weight_decay}]


def evaluate(student: Finetuned, dev: Path) -> dict[str, float]:
    """SST-2 accuracy, tweets' macro recall, treebank accuracy in three classes and STS-B Spearman on a dev folder."""
    scores: dict[str, float] = {}
    for name, file in (("sst2", "sst2_dev.tsv"), ("tweets", "tweets_dev.tsv"), ("trees", "sst_trees_dev.txt")):
        examples = [example for example in data.load(dev / file) if example.whole]
        logits = student.predict([example.text for example in examples]).logits.numpy()
        labels = np.array([np.argmax(example.target or ()) for example in examples])
        if name == "sst2":
            scores[name] = metrics.accuracy(np.where(logits[:, 2] > logits[:, 0], 2, 0), labels)
        else:
            measure = metrics.macro_recall if name == "tweets" else metrics.accuracy
            scores[name] = measure(logits.argmax(-1), labels)
    similarity, first, second = zip(*data.load_pairs(dev / "stsb_dev.tsv"), strict=True)
    cosines = metrics.cosine(student.predict(first).mean.numpy(), student.predict(second).mean.numpy())
    scores["stsb"] = metrics.spearman(cosines, np.array(similarity))
    return {name: round(score, 4) for name, score in scores.items()}


def _save(student: Finetuned, out: Path, record: dict[str, Any]) -> None:
    student.model.save_pretrained(out)
    student.tokenizer.save_pretrained(out)
    (out / "training.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
