"""Seven ways to read a classification from one encoder, each fine-tuned from the same start with the same budget."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from torch import Tensor, nn
from torch.nn import functional
from transformers import set_seed

from models.data import LABELS
from models.evaluation import DevSets
from models.finetune import batches, schedule
from models.study import texts
from models.study.encoder import Encoder, States, first, mean
from models.study.record import Record

HEADS = {
    "cls": "[CLS]",
    "cls-pooler": "[CLS] through the pooler (dense, tanh)",
    "mean": "mean",
    "max": "max",
    "cls-mean": "[CLS] and mean, concatenated",
    "cls-last4": "[CLS] of the last four layers, concatenated",
    "attention": "attention pooling",
}
WIDTHS = {"cls-mean": 2, "cls-last4": 4}
KEPT = ("cls", "mean")
WEIGHTS = "head.pt"
SETTINGS = "settings.json"


@dataclass(frozen=True)
class Budget:
    """What every run may use. `each` sentences and as many tweets; the head, being new, learns at a rate of its own."""

    each: int = 3000
    epochs: int = 1
    batch: int = 32
    rate: float = 1e-4
    head_rate: float = 1e-3
    warmup: float = 0.1
    weight_decay: float = 0.01
    max_tokens: int = 64
    seeds: tuple[int, ...] = (0, 1, 2)


class Head(nn.Module):
    """A pooling and a linear classifier on its vector. The pooler is the encoder's own, pre-trained."""

    def __init__(self, kind: str, encoder: Encoder) -> None:
        super().__init__()
        self.kind = kind
        self.pooler = encoder.model.pooler
        self.score = nn.Linear(encoder.hidden_size, 1)
        self.classifier = nn.Linear(WIDTHS.get(kind, 1) * encoder.hidden_size, len(LABELS))

    def vector(self, states: States, mask: Tensor) -> Tensor:
        """The pooled vector [batch, width]."""
        last = states[-1]
        match self.kind:
            case "cls":
                return first(last)
            case "cls-pooler":
                return self.pooler(last)
            case "mean":
                return mean(last, mask)
            case "max":
                return last.masked_fill(mask.unsqueeze(-1) == 0, -torch.inf).amax(1)
            case "cls-mean":
                return torch.cat([first(last), mean(last, mask)], -1)
            case "cls-last4":
                return torch.cat([first(state) for state in states[-4:]], -1)
            case _:
                scores = self.score(last).squeeze(-1).masked_fill(mask == 0, -torch.inf)
                return (scores.softmax(-1).unsqueeze(-1) * last).sum(1)

    def forward(self, states: States, mask: Tensor) -> Tensor:
        """Logits [batch, 3]."""
        return self.classifier(self.vector(states, mask))


def run(start: Path, folder: Path, out: Path, work: Path, budget: Budget) -> None:
    """Train and measure every head with every seed, writing each result as it comes; goes on where it was stopped.

    The encoders of `KEPT` heads stay in `work`, for the measures of length.
    """
    record = Record.resume(out, {"start": start.parent.name, "budget": asdict(budget)})
    sets = DevSets.read(folder, rated=False)
    console = Console(stderr=True)
    for seed in budget.seeds:
        for kind in HEADS:
            if record.has(head=kind, seed=seed):
                continue
            began = time.thread_time()
            encoder = Encoder(start, half=True)
            head, loss = train(encoder, kind, folder, budget, seed)
            if kind in KEPT:
                save(encoder, head, work / f"{kind}-{seed}", record.settings)
            found = texts.scores(answer(encoder, head, sets, budget.max_tokens), sets)
            minutes = round((time.thread_time() - began) / 60, 2)
            record.add(head=kind, seed=seed, loss=round(loss, 4), cpu_minutes=minutes, **found)
            console.print(record.rows[-1])


def train(encoder: Encoder, kind: str, folder: Path, budget: Budget, seed: int) -> tuple[Head, float]:
    """Fine-tune an encoder with a new head; the head and the mean loss of the last fifty steps.

    The seed decides the texts, their order, the head's first weights and dropout, alike for every head.
    """
    examples = texts.training(folder, budget.each, seed)
    ids = encoder.encode([example.text for example in examples], budget.max_tokens)
    targets = torch.from_numpy(texts.classes(examples))
    set_seed(seed)
    head = Head(kind, encoder)
    encoder.model.train()
    optimizer = torch.optim.AdamW(_groups(encoder, head, budget), weight_decay=budget.weight_decay, fused=True)
    steps = budget.epochs * -(-len(ids) // budget.batch)
    losses: list[float] = []
    for step, rows in enumerate(_walk(ids, budget, seed)):
        for group in optimizer.param_groups:
            group["lr"] = group["full"] * schedule(step, steps, budget.warmup)
        loss = functional.cross_entropy(head(*encoder.states([ids[i] for i in rows])), targets[rows])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_([p for g in optimizer.param_groups for p in g["params"]], 1.0)
        optimizer.step()
        losses.append(float(loss.detach()))
    return head.eval(), float(np.mean(losses[-50:]))


def _groups(encoder: Encoder, head: Head, budget: Budget) -> list[dict[str, Any]]:
    """The pooler belongs to the encoder, whichever head reads it."""
    new = [*head.score.parameters(), *head.classifier.parameters()]
    return [
        {"params": list(encoder.model.parameters()), "full": budget.rate},
        {"params": new, "full": budget.head_rate},
    ]


def _walk(ids: list[list[int]], budget: Budget, seed: int) -> Iterator[list[int]]:
    rng = Random(seed)
    for _ in range(budget.epochs):
        yield from batches([len(one) for one in ids], budget.batch, rng)


def answer(encoder: Encoder, head: Head, sets: DevSets, max_tokens: int) -> dict[str, NDArray[np.float32]]:
    """Logits [n, 3] of each labelled dev set. Most sentences of SST-2 are the treebank's too: each is read once."""
    ids = {name: [tuple(one) for one in encoder.encode(sets.texts[name], max_tokens)] for name in sets.classes}
    distinct = list(dict.fromkeys(one for rows in ids.values() for one in rows))
    logits = dict(zip(distinct, encoder.each(distinct, head), strict=True))
    return {name: np.stack([logits[one] for one in rows]) for name, rows in ids.items()}


def save(encoder: Encoder, head: Head, folder: Path, settings: Mapping[str, Any]) -> None:
    """Keep a trained encoder with its head, and the settings that it was trained with."""
    encoder.model.save_pretrained(folder)
    encoder.tokenizer.save_pretrained(folder)
    torch.save(head.classifier.state_dict(), folder / WEIGHTS)
    (folder / SETTINGS).write_text(json.dumps(settings), encoding="utf-8")


def load(folder: Path, kind: str) -> tuple[Encoder, Head]:
    """What `save` kept of a head that has no weights besides its classifier's."""
    encoder = Encoder(folder)
    head = Head(kind, encoder).eval()
    head.classifier.load_state_dict(torch.load(folder / WEIGHTS, weights_only=True))
    return encoder, head
