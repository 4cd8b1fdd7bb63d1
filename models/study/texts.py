"""The texts that the study trains and measures on."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from models import data, metrics
from models.data import Example
from models.evaluation import DevSets
from models.study.record import Row

TRAIN = ("sst_trees_train.txt", "tweets_train.tsv")

Ints = NDArray[np.int64]


def training(folder: Path, each: int, seed: int) -> list[Example]:
    """So many sentences of the treebank and so many tweets, in random order."""
    rng = random.Random(seed)
    found: list[Example] = []
    for name in TRAIN:
        found += rng.sample([example for example in data.load(folder / name) if example.whole], each)
    rng.shuffle(found)
    return found


def classes(examples: list[Example]) -> Ints:
    """The class of each example, int64 [n]."""
    return np.array([np.argmax(example.target or ()) for example in examples])


def scores(logits: Mapping[str, NDArray[np.float32]], sets: DevSets) -> Row:
    """Accuracy on SST-2 (positive against negative) and on the treebank, macro recall of the tweets, in percent."""
    sst2 = np.where(logits["sst2"][:, 2] > logits["sst2"][:, 0], 2, 0)
    return {
        "sst2": _percent(metrics.accuracy(sst2, sets.classes["sst2"])),
        "tweets": _percent(metrics.macro_recall(logits["tweets"].argmax(-1), sets.classes["tweets"])),
        "trees": _percent(metrics.accuracy(logits["trees"].argmax(-1), sets.classes["trees"])),
    }


def _percent(share: float) -> float:
    return round(100 * share, 2)
