"""How well a model does on the dev sets, whatever computes its answers."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from models import data, metrics
from models.checkpoint import Floats
from service.engine import Engine, Ids
from service.tokenizer import Tokenizer

NEUTRAL_RATING = 0.3
RATED = ("rated_editorial_snippets", "rated_product_snippets", "rated_tweets")
LABELLED = {"sst2": "sst2_dev.tsv", "trees": "sst_trees_dev.txt", "tweets": "tweets_dev.tsv"}


@dataclass(frozen=True)
class DevSets:
    """Labelled texts by set with their classes int64 [n], sentence pairs with similarities, and rated texts by set."""

    texts: dict[str, list[str]]
    classes: dict[str, NDArray[np.int64]]
    pairs: list[tuple[float, str, str]]
    ratings: dict[str, NDArray[np.float64]]

    @classmethod
    def read(cls, folder: Path, *, rated: bool = True) -> DevSets:
        """Read the dev files of a data folder, and the rated texts if they are wanted."""
        texts: dict[str, list[str]] = {}
        classes: dict[str, NDArray[np.int64]] = {}
        ratings: dict[str, NDArray[np.float64]] = {}
        for name, file in LABELLED.items():
            examples = [example for example in data.load(folder / file) if example.whole]
            texts[name] = [example.text for example in examples]
            classes[name] = np.array([np.argmax(example.target or ()) for example in examples])
        for name in RATED if rated else ():
            examples = data.load(folder / f"{name}_train.tsv")
            texts[name] = [example.text for example in examples]
            ratings[name] = np.array([example.valence for example in examples], np.float64)
        return cls(texts, classes, data.load_pairs(folder / "stsb_dev.tsv"), ratings)

    @property
    def sentences(self) -> list[str]:
        """Both sentences of every pair: all first ones, then all second ones."""
        return [pair[1] for pair in self.pairs] + [pair[2] for pair in self.pairs]


@dataclass(frozen=True)
class Answers:
    """A model's logits float32 [n, labels] by set, and the mean vectors float32 [2 * pairs, hidden] of sentences."""

    logits: dict[str, Floats]
    vectors: Floats


class Model(Protocol):
    """Whatever answers one text given as token ids int64 [n]."""

    def logits(self, ids: Ids) -> Floats:
        """Float32 [labels]."""

    def mean(self, ids: Ids) -> Floats:
        """Float32 [hidden]."""


class Served:
    """The engine that serves, as a model to evaluate."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def logits(self, ids: Ids) -> Floats:
        """Float32 [labels]."""
        return self._engine.classify(ids).logits

    def mean(self, ids: Ids) -> Floats:
        """Float32 [hidden]."""
        return self._engine.embed(ids)


def answer(model: Model, tokenizer: Tokenizer, sets: DevSets) -> Answers:
    """Every answer that the measures below need, each text alone and at its own length."""

    def each(run: Callable[[Ids], Floats], texts: Sequence[str]) -> Floats:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return np.stack(list(pool.map(lambda text: run(tokenizer.read(text).first().ids), texts)))

    return Answers(
        {name: each(model.logits, texts) for name, texts in sets.texts.items()}, each(model.mean, sets.sentences)
    )


def scores(answers: Answers, sets: DevSets) -> dict[str, float]:
    """SST-2 accuracy (positive against negative), treebank accuracy in three classes, macro recall of the tweets, and
    Spearman's correlation of STS-B with mean pooling."""
    sst2 = answers.logits["sst2"]
    first, second = np.split(answers.vectors, 2)
    return {
        "sst2": metrics.accuracy(np.where(sst2[:, 2] > sst2[:, 0], 2, 0), sets.classes["sst2"]),
        "trees": metrics.accuracy(answers.logits["trees"].argmax(-1), sets.classes["trees"]),
        "tweets": metrics.macro_recall(answers.logits["tweets"].argmax(-1), sets.classes["tweets"]),
        "stsb": metrics.spearman(metrics.cosine(first, second), np.array([pair[0] for pair in sets.pairs])),
    }


def fidelity(answers: Answers, exact: Answers) -> dict[str, float]:
    """How far answers are from those of an exact model on the same texts."""
    ours = np.concatenate([answers.logits[name] for name in sorted(exact.logits)])
    theirs = np.concatenate([exact.logits[name] for name in sorted(exact.logits)])
    cosine = metrics.cosine(answers.vectors, exact.vectors)
    return {
        "agreement": float((ours.argmax(-1) == theirs.argmax(-1)).mean()),
        "logit_difference": float(np.abs(ours - theirs).max()),
        "cosine_mean": float(cosine.mean()),
        "cosine_worst": float(cosine.min()),
    }


def points_lost(ours: dict[str, float], exact: dict[str, float]) -> dict[str, float]:
    """What an inexact model loses in percentage points: on the average of the sets, and on the worst of them."""
    lost = [100 * (exact[name] - ours[name]) for name in ours]
    return {"points_lost_mean": float(np.mean(lost)), "points_lost_worst": max(lost)}


def ratings(answers: Answers, sets: DevSets, temperature: float) -> dict[str, float]:
    """Correlation of valence with people's ratings by set, and the share called neutral of the editorial sentences
    that people rated within 0.3 of zero."""
    found: dict[str, float] = {}
    for name, rating in sets.ratings.items():
        probabilities = metrics.softmax(answers.logits[name], temperature)
        found[f"{name}_pearson"] = metrics.pearson(probabilities[:, 2] - probabilities[:, 0], rating)
    plain = np.abs(sets.ratings["rated_editorial_snippets"]) <= NEUTRAL_RATING
    called = answers.logits["rated_editorial_snippets"][plain].argmax(-1)
    return found | {"plain_editorial_neutral": float((called == 1).mean())}
