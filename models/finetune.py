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
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.progress import Progress, TimeElapsedColumn, TimeRemainingColumn
from torch import Tensor
from torch.nn import functional
from transformers import AutoModelForSequenceClassification, AutoTokenizer, set_seed

from models import data, metrics
from models.data import LABELS, Example
from service.cleaning import STEPS, clean

GROUPS_OF_BATCHES = 50
TOKENS_AT_ONCE = 8192
GUIDE_RATE = 10.0
"""Times the student's rate, for the one matrix that starts at random."""


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


class Outputs(NamedTuple):
    """Logits [batch, 3], the masked mean of the last hidden states and the last hidden state of [CLS], both [batch,
    hidden]; all float32."""

    logits: Tensor
    mean: Tensor
    cls: Tensor


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
            # For short texts plain products are much sooner done than PyTorch's fused attention, going back above all.
            attn_implementation="eager",
        )

    def encode(self, texts: Sequence[str], max_tokens: int) -> list[list[int]]:
        """Token ids of each text after the clean-up of serving, cut to `max_tokens`."""
        return token_ids(self.tokenizer, texts, max_tokens)

    def forward(self, ids: Sequence[Sequence[int]]) -> Outputs:
        """What the model says of a batch of texts."""
        padded = self.tokenizer.pad({"input_ids": [list(one) for one in ids]}, return_tensors="pt")
        with torch.autocast("cpu", torch.bfloat16, enabled=has_bf16()):
            output = self.model(
                input_ids=padded["input_ids"], attention_mask=padded["attention_mask"], output_hidden_states=True
            )
        mask = padded["attention_mask"].unsqueeze(-1).float()
        hidden = output.hidden_states[-1].float()
        return Outputs(output.logits.float(), (hidden * mask).sum(1) / mask.sum(1), hidden[:, 0])

    @torch.inference_mode()
    def predict(self, texts: Sequence[str], max_tokens: int = 512) -> Outputs:
        """What the model says of texts, in their order, without dropout."""
        self.model.eval()
        ids = self.encode(texts, max_tokens)
        order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
        hidden = self.model.config.hidden_size
        found = Outputs(*(torch.empty(len(ids), size) for size in (len(LABELS), hidden, hidden)))
        for chunk in _chunks(order, [len(one) for one in ids]):
            for whole, part in zip(found, self.forward([ids[i] for i in chunk]), strict=True):
                whole[chunk] = part
        return found


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


def unlike(imitated: Tensor, states: Tensor) -> Tensor:
    """How far a student's [CLS] vectors, led to the teacher's size, are from the teacher's.

    The mean squared difference; 1 for a student that always says the mean, as the teacher's are standardized. Texts
    that the teacher did not read are left out.

    After the hidden-state distillation of TinyBERT (Jiao et al. 2020), of the vector that the head reads.
    """
    known = ~states.isnan().any(-1)
    return functional.mse_loss(imitated[known], states[known].float()) if known.any() else imitated.sum() * 0


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
    run = Run(student, encoded, anchors, recipe)
    steps = recipe.epochs * math.ceil(len(examples) / recipe.batch)
    record: dict[str, Any] = {"start": Path(start).name, "texts": len(examples), "recipe": asdict(recipe), "epochs": []}
    began = time.monotonic()
    with _progress() as progress:
        bar = progress.add_task("fine-tuning", total=steps)
        for epoch, step, batch in _walk(encoded, recipe):
            loss = run.step(batch, recipe.rate * schedule(step, steps, recipe.warmup))
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


class Run:
    """A training run between two steps: the student, what it learns from, and the optimizer.

    `anchors` are the mean vectors it keeps, float16 [n, hidden]. Raises ValueError where there is nobody to imitate.
    """

    def __init__(self, student: Finetuned, encoded: Encoded, anchors: Tensor | None, recipe: Recipe) -> None:
        self._student, self._encoded, self._anchors, self._recipe = student, encoded, anchors, recipe
        self._guide = _guide(student, encoded) if recipe.imitate else None
        groups = _parameter_groups(student.model, recipe)
        if self._guide is not None:
            groups += [group | {"rate": GUIDE_RATE} for group in _parameter_groups(self._guide, recipe)]
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
        logits, pooled, cls = self._student.forward([encoded.ids[i] for i in batch])
        loss = loss_of(
            logits,
            pooled,
            encoded.targets[batch],
            encoded.weights[batch],
            None if encoded.teacher is None else encoded.teacher[batch],
            pooled.detach() if self._anchors is None else self._anchors[batch].float(),
            recipe,
        )
        if self._guide is None or encoded.states is None:
            return loss
        return loss + recipe.imitate * unlike(self._guide(cls), encoded.states[batch])


def _guide(student: Finetuned, encoded: Encoded) -> torch.nn.Linear:
    """What leads the student's [CLS] vectors to the teacher's; it is dropped after training.

    Raises ValueError without a teacher.
    """
    if encoded.states is None:
        raise ValueError("there is no teacher to imitate: name its labels")
    return torch.nn.Linear(student.model.config.hidden_size, encoded.states.shape[1])


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


def standardized(states: Tensor) -> Tensor:
    """Vectors [n, hidden], less their mean and over their one standard deviation, as float16; rows of NaN stay so.

    One deviation for all, so that the directions in which texts differ most weigh most.
    """
    known = states[~states.isnan().any(-1)].float()
    mean = known.mean(0)
    return ((states.float() - mean) / (known - mean).square().mean().sqrt()).half()


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
    with _progress() as progress, pq.ParquetWriter(out, schema) as writer:
        bar = progress.add_task("labelling", total=len(distinct))
        for start in range(0, len(distinct), 4096):
            chunk = distinct[start : start + 4096]
            said = teacher.predict(chunk, max_tokens)
            columns = {"logits": said.logits.numpy(), "states": said.cls.half().numpy()}
            arrays = [pa.FixedSizeListArray.from_arrays(pa.array(c.reshape(-1)), sizes[n]) for n, c in columns.items()]
            writer.write_table(pa.Table.from_arrays([pa.array(chunk), *arrays], schema=schema))
            progress.update(bar, advance=len(chunk))


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


def _progress() -> Progress:
    return Progress(
        *Progress.get_default_columns()[:2], "{task.completed}/{task.total}", TimeElapsedColumn(), TimeRemainingColumn()
    )
