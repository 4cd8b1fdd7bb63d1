"""Fine-tune a Hugging Face encoder with a classification head on [CLS]; label texts with a fine-tuned one."""

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
from numpy.typing import NDArray
from rich.progress import Progress, TimeElapsedColumn, TimeRemainingColumn
from torch import Tensor
from torch.nn import functional
from transformers import AutoModelForSequenceClassification, AutoTokenizer, set_seed

from models import data, metrics
from models.data import LABELS, Example
from service.cleaning import STEPS, clean

GROUPS_OF_BATCHES = 50
TOKENS_AT_ONCE = 8192


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
    freeze: int = 0
    seed: int = 0


@dataclass(frozen=True)
class Encoded:
    """The training set as token ids, soft targets [n, 3], weights [n], and the teacher's logits [n, 3] if any."""

    ids: list[list[int]]
    targets: Tensor
    weights: Tensor
    teacher: Tensor | None


class Finetuned:
    """A model in training with its tokenizer, on the CPU."""

    def __init__(self, start: str, dropout: float) -> None:
        names = dict(enumerate(LABELS))
        self.tokenizer = AutoTokenizer.from_pretrained(start)
        self.model: Any = AutoModelForSequenceClassification.from_pretrained(
            start,
            num_labels=len(LABELS),
            id2label=names,
            label2id={name: index for index, name in names.items()},
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=dropout,
        )

    def encode(self, texts: Sequence[str], max_tokens: int) -> list[list[int]]:
        """Token ids of each text after the clean-up of serving, cut to `max_tokens`."""
        return token_ids(self.tokenizer, texts, max_tokens)

    def forward(self, ids: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Logits [batch, 3] and the masked mean of the last hidden states [batch, hidden], both float32."""
        padded = self.tokenizer.pad({"input_ids": [list(one) for one in ids]}, return_tensors="pt")
        with torch.autocast("cpu", torch.bfloat16, enabled=has_bf16()):
            output = self.model(
                input_ids=padded["input_ids"], attention_mask=padded["attention_mask"], output_hidden_states=True
            )
        mask = padded["attention_mask"].unsqueeze(-1).float()
        hidden = output.hidden_states[-1].float()
        return output.logits.float(), (hidden * mask).sum(1) / mask.sum(1)

    @torch.inference_mode()
    def predict(self, texts: Sequence[str], max_tokens: int = 512) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Logits [n, 3] and mean-pooled vectors [n, hidden] of texts, in their order."""
        self.model.eval()
        ids = self.encode(texts, max_tokens)
        order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
        logits = torch.empty(len(ids), len(LABELS))
        pooled = torch.empty(len(ids), self.model.config.hidden_size)
        for chunk in _chunks(order, [len(one) for one in ids]):
            logits[chunk], pooled[chunk] = self.forward([ids[i] for i in chunk])
        return logits.numpy(), pooled.numpy()


def token_ids(tokenizer: Any, texts: Sequence[str], max_tokens: int) -> list[list[int]]:
    """Token ids of each text after the clean-up of serving, [CLS] and [SEP] included, cut to `max_tokens`."""
    cleaned = [clean(text, tuple(STEPS)).text for text in texts]
    return list(tokenizer(cleaned, truncation=True, max_length=max_tokens)["input_ids"])


def has_bf16() -> bool:
    """Whether this CPU multiplies bfloat16 in hardware; elsewhere autocast would only be slower."""
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


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


def _chunks(order: Sequence[int], lengths: Sequence[int]) -> Iterator[list[int]]:
    """Indices in order of length, in chunks of at most `TOKENS_AT_ONCE` tokens with their padding."""
    chunk: list[int] = []
    for index in order:
        if chunk and (len(chunk) + 1) * lengths[index] > TOKENS_AT_ONCE:
            yield chunk
            chunk = []
        chunk.append(index)
    if chunk:
        yield chunk


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
) -> None:
    """Train, evaluate on the dev files after each epoch, and write a Hugging Face checkpoint with its record.

    `anchor` is the model whose mean vectors are to be kept; unsaid, the starting one. A chain of passes names the first
    start in each, or it drifts a little further in every pass. Raises ValueError for a text without a label that no
    teacher labelled either.
    """
    set_seed(recipe.seed)
    student = Finetuned(start, recipe.dropout)
    freeze(student.model, recipe.freeze)
    encoded = _encode(student, examples, recipe, teacher)
    anchors = _anchors(anchor or start, examples, recipe) if recipe.keep_embedding else None
    steps = recipe.epochs * math.ceil(len(examples) / recipe.batch)
    optimizer = torch.optim.AdamW(_parameter_groups(student.model, recipe), lr=recipe.rate, fused=True)
    record: dict[str, Any] = {"start": Path(start).name, "texts": len(examples), "recipe": asdict(recipe), "epochs": []}
    began = time.monotonic()
    with _progress() as progress:
        bar = progress.add_task("fine-tuning", total=steps)
        for epoch, step, batch in _walk(encoded, recipe):
            for group in optimizer.param_groups:
                group["lr"] = recipe.rate * schedule(step, steps, recipe.warmup)
            loss = _step(student, encoded, anchors, batch, optimizer, recipe)
            progress.update(bar, advance=1, description=f"epoch {epoch + 1} loss {loss:.3f}")
            if (step + 1) % (steps // recipe.epochs) == 0:
                scores = evaluate(student, dev)
                progress.console.print(f"epoch {epoch + 1}:", json.dumps(scores), soft_wrap=True)
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


def _step(
    student: Finetuned,
    encoded: Encoded,
    anchors: Tensor | None,
    batch: list[int],
    optimizer: torch.optim.Optimizer,
    recipe: Recipe,
) -> float:
    student.model.train()
    logits, pooled = student.forward([encoded.ids[i] for i in batch])
    loss = loss_of(
        logits,
        pooled,
        encoded.targets[batch],
        encoded.weights[batch],
        None if encoded.teacher is None else encoded.teacher[batch],
        pooled.detach() if anchors is None else anchors[batch].float(),
        recipe,
    )
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(student.model.parameters(), 1.0)
    optimizer.step()
    return float(loss.detach())


def _encode(student: Finetuned, examples: list[Example], recipe: Recipe, teacher: Path | None) -> Encoded:
    texts = [example.text for example in examples]
    known = [[math.nan]] * len(texts) if teacher is None else read_labels(teacher, texts)
    for example, logits in zip(examples, known, strict=True):
        if example.target is None and math.isnan(logits[0]):
            raise ValueError(f"neither a label nor a teacher says anything of {example.text!r}")
    return Encoded(
        ids=student.encode(texts, recipe.max_tokens),
        targets=torch.tensor([example.target or (0.0, 0.0, 0.0) for example in examples]),
        weights=torch.tensor([example.weight for example in examples]),
        teacher=None if teacher is None else torch.tensor(known),
    )


def _anchors(anchor: str, examples: list[Example], recipe: Recipe) -> Tensor:
    """Mean-pooled vectors of a model, which the student is to keep."""
    _, pooled = Finetuned(anchor, 0.0).predict([example.text for example in examples], recipe.max_tokens)
    return torch.tensor(pooled).half()


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
        logits, _ = student.predict([example.text for example in examples])
        labels = np.array([np.argmax(example.target or ()) for example in examples])
        if name == "sst2":
            scores[name] = metrics.accuracy(np.where(logits[:, 2] > logits[:, 0], 2, 0), labels)
        else:
            measure = metrics.macro_recall if name == "tweets" else metrics.accuracy
            scores[name] = measure(logits.argmax(-1), labels)
    similarity, first, second = zip(*data.load_pairs(dev / "stsb_dev.tsv"), strict=True)
    cosines = metrics.cosine(student.predict(first)[1], student.predict(second)[1])
    scores["stsb"] = metrics.spearman(cosines, np.array(similarity))
    return {name: round(score, 4) for name, score in scores.items()}


def _save(student: Finetuned, out: Path, record: dict[str, Any]) -> None:
    student.model.save_pretrained(out)
    student.tokenizer.save_pretrained(out)
    (out / "training.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def label(checkpoint: str, texts: Sequence[str], out: Path, max_tokens: int = 128) -> None:
    """Write a teacher's logits for each distinct text as Parquet: columns `text` and `logits`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    teacher = Finetuned(checkpoint, 0.0)
    distinct = sorted(set(texts), key=len)
    schema = pa.schema({"text": pa.string(), "logits": pa.list_(pa.float32(), len(LABELS))})
    with _progress() as progress, pq.ParquetWriter(out, schema) as writer:
        bar = progress.add_task("labelling", total=len(distinct))
        for start in range(0, len(distinct), 4096):
            chunk = distinct[start : start + 4096]
            logits, _ = teacher.predict(chunk, max_tokens)
            writer.write_table(pa.table({"text": chunk, "logits": logits.tolist()}, schema=schema))
            progress.update(bar, advance=len(chunk))


def read_labels(path: Path, texts: Sequence[str]) -> list[list[float]]:
    """A teacher's logits for each of the texts, in their order; NaN for a text it did not label.

    A text of the treebank has the same label with and without its tokenization, whichever the teacher read.
    """
    import pyarrow.parquet as pq

    rows: list[Any] = pq.read_table(path).to_pylist()
    known: dict[str, list[float]] = {data.detokenize(row["text"]): row["logits"] for row in rows}
    return [known.get(data.detokenize(text), [math.nan] * len(LABELS)) for text in texts]


def _progress() -> Progress:
    return Progress(
        *Progress.get_default_columns()[:2], "{task.completed}/{task.total}", TimeElapsedColumn(), TimeRemainingColumn()
    )
