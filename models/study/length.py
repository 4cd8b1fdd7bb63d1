"""Length: accuracy by how long a text is, and what neutral sentences around one opinion do to [CLS] and to the mean."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from torch import Tensor

from models import metrics
from models.evaluation import DevSets
from models.study import heads
from models.study.encoder import Encoder, States, first, mean
from models.study.record import Record
from service.artifact import Artifact
from service.engine import Engine
from service.tokenizer import Tokenizer

BUCKETS = (1, 13, 20, 28, 40)
COUNTS = (0, 1, 2, 4, 8, 16)
PLACES = ("first", "middle", "last")
SEED = 0
OPINIONS = (
    "The food was delicious.",
    "I love this camera.",
    "What a beautiful concert.",
    "The nurse was very kind to me.",
    "This is the best coffee in town.",
    "The new screen is gorgeous.",
    "They did an amazing job.",
    "I enjoyed every minute of the play.",
    "The garden is lovely.",
    "It works perfectly.",
    "The food was disgusting.",
    "I hate this camera.",
    "What an ugly concert hall.",
    "The nurse was very rude to me.",
    "This is the worst coffee in town.",
    "The new screen is terrible.",
    "They did an awful job.",
    "I was bored by every minute of the play.",
    "The garden is a disgrace.",
    "It broke immediately.",
)
NEUTRAL = (
    "The train leaves at nine.",
    "The table is made of wood.",
    "He put the keys on the shelf.",
    "The shop is next to the station.",
    "The form has two pages.",
    "She called her brother on Monday.",
    "The bus stops at the corner.",
    "There are three rooms on this floor.",
    "The letter was sent in March.",
    "They live on the second floor.",
    "The meeting takes place in the hall.",
    "The box contains paper and pens.",
    "We walked from the bridge to the market.",
    "The window faces the street.",
    "The river flows to the north.",
    "He wore a grey coat.",
    "The map is on page four.",
    "She works in an office.",
    "The road leads to the village.",
    "The clock is above the door.",
)


class Read(NamedTuple):
    """What a model makes of a text: logits [3], and the vectors [hidden] that are compared, by pooling."""

    logits: NDArray[np.float32]
    vectors: dict[str, NDArray[np.float32]]


Model = Callable[[Sequence[str]], list[Read]]


def run(work: Path, trained_as: Path, artifact: Path, folder: Path, out: Path) -> None:
    """Measure the encoders that `heads` kept, and the served model.

    Raises FileNotFoundError if it kept none yet, ValueError for one that was trained otherwise than its results, the
    file `trained_as`, say.
    """
    record = Record(
        out,
        {"buckets": list(BUCKETS), "counts": list(COUNTS), "opinions": list(OPINIONS), "neutral": list(NEUTRAL)}
        | {"seed": SEED},
    )
    sets = DevSets.read(folder, rated=False)
    console = Console(stderr=True)
    for name, model in _models(work, trained_as, artifact):
        console.print(name)
        head, _, seed = name.partition("-")
        key = {"model": head, "seed": int(seed) if seed else None}
        for row in by_length(model, sets):
            record.add(measure="length", **key, **row)
        for row in dilution(model):
            record.add(measure="dilution", **key, **row)


def _models(work: Path, trained_as: Path, artifact: Path) -> Iterator[tuple[str, Model]]:
    kept = sorted(work.glob("*-[0-9]*"))
    remedy = f"remove {trained_as} and run `heads`"
    if {path.name.partition("-")[0] for path in kept} != set(heads.KEPT):
        raise FileNotFoundError(f"{work} does not have the encoders of every head that is compared: {remedy}")
    settings = json.loads(trained_as.read_text(encoding="utf-8"))["settings"]
    for path in kept:
        found = path / heads.SETTINGS
        if not found.exists() or json.loads(found.read_text(encoding="utf-8")) != settings:
            raise ValueError(f"{path} was trained with other settings than {trained_as} has: {remedy}")
    for path in kept:
        yield path.name, trained(*heads.load(path, path.name.partition("-")[0]))
    yield "served", served(Artifact.open(artifact))


def trained(encoder: Encoder, head: heads.Head) -> Model:
    """A model of `heads` with its own pooling's vector."""

    def take(states: States, mask: Tensor) -> Tensor:
        vector = first(states[-1]) if head.kind == "cls" else mean(states[-1], mask)
        return torch.cat([head(states, mask), vector], -1)

    def read(texts: Sequence[str]) -> list[Read]:
        rows = encoder.each(encoder.encode(texts), take)
        return [Read(row[:3], {head.kind: row[3:]}) for row in rows]

    return read


def served(artifact: Artifact) -> Model:
    """The served model, whose label is read at [CLS], with both its vectors."""
    about = artifact.manifest
    tokenizer = Tokenizer(artifact.path("tokenizer.json"), about.max_tokens, about.cleanup)
    engine = Engine(artifact)

    def read(texts: Sequence[str]) -> list[Read]:
        found: list[Read] = []
        for text in texts:
            ids = tokenizer.read(text).first().ids
            logits, cls = engine.classify(ids)
            found.append(Read(logits, {"cls": cls, "mean": engine.embed(ids)}))
        return found

    return read


def by_length(model: Model, sets: DevSets) -> Iterator[dict[str, object]]:
    """Accuracy in three classes on the sentences of the treebank and on the tweets together, by number of words."""
    texts = [text for name in ("trees", "tweets") for text in sets.texts[name]]
    classes = np.concatenate([sets.classes[name] for name in ("trees", "tweets")])
    words = np.array([len(text.split()) for text in texts])
    right = np.stack([read.logits for read in model(texts)]).argmax(-1) == classes
    bucket = np.digitize(words, BUCKETS) - 1
    for index, low in enumerate(BUCKETS):
        inside = bucket == index
        high = BUCKETS[index + 1] - 1 if index + 1 < len(BUCKETS) else None
        accuracy = round(100 * float(right[inside].mean()), 2)
        yield {"words": [low, high], "texts": int(inside.sum()), "accuracy": accuracy}


def dilution(model: Model) -> Iterator[dict[str, object]]:
    """What is left of an opinion among so many neutral sentences, by its place: shares over the opinions that the model
    labels rightly when they stand alone, and the cosine of the text's vector to the opinion's alone.

    `label` is the share that keep the label; `side` the share whose positive and negative logits keep their order;
    `probability` the label's mean probability.
    """
    wanted = np.repeat([2, 0], len(OPINIONS) // 2)
    alone = model(OPINIONS)
    known = [i for i, read in enumerate(alone) if int(read.logits.argmax()) == wanted[i]]
    for place in PLACES:
        for count in COUNTS:
            reads = model([surround(OPINIONS[i], count, place, Random(f"{SEED} {i}")) for i in known])
            logits = np.stack([read.logits for read in reads])
            labels, opposite = wanted[known], 2 - wanted[known]
            rows = np.arange(len(known))
            yield {
                "place": place,
                "sentences": count,
                "opinions": len(known),
                "label": round(float((logits.argmax(-1) == labels).mean()), 4),
                "side": round(float((logits[rows, labels] > logits[rows, opposite]).mean()), 4),
                "probability": round(float(metrics.softmax(logits)[rows, labels].mean()), 4),
                "cosine": {
                    pool: round(
                        _cosine([read.vectors[pool] for read in reads], [alone[i].vectors[pool] for i in known]), 4
                    )
                    for pool in reads[0].vectors
                },
            }


def surround(opinion: str, count: int, place: str, rng: Random) -> str:
    """An opinion first, in the middle or last among so many different sentences; of one `rng`, more keep the fewer."""
    neutral = rng.sample(NEUTRAL, len(NEUTRAL))[:count]
    at = {"first": 0, "middle": count // 2, "last": count}[place]
    return " ".join([*neutral[:at], opinion, *neutral[at:]])


def _cosine(ours: list[NDArray[np.float32]], theirs: list[NDArray[np.float32]]) -> float:
    return float(metrics.cosine(np.stack(ours), np.stack(theirs)).mean())
