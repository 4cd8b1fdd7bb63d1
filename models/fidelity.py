"""How close the graphs of an imported model are to the original, and the ways to store them from the smallest on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from models import calibration, heads, metrics, storage
from models.checkpoint import Floats
from models.export import CLASSIFY, EMBED
from models.families.bert import BertLike
from models.families.encoder import Encoder
from models.graph import Graph, Product
from models.original import Answer
from models.products import HEAD, Blocks8Bit, DynamicInt8, Either, Int8Matrix, float32
from service.artifact import Artifact, Manifest
from service.engine import PACK_TOKENS, ClassifyOutput, Engine, Ids, same_bits

EXACT = "float32"
FITTED_BYTES = 2**31
"""A model larger than this is not fitted to texts: that runs its graphs from memory, where they may not be larger."""


@dataclass(frozen=True)
class Answers:
    """What a model makes of the texts: logits float32 [n, labels], mean vectors float32 [n, hidden]."""

    logits: Floats
    means: Floats

    @classmethod
    def of(cls, answer: Callable[[Ids], Answer], texts: Sequence[Ids]) -> Answers:
        """Each text alone, at its own length."""
        found = [answer(ids) for ids in texts]
        return cls(np.stack([one.logits for one in found]), np.stack([one.mean for one in found]))


@dataclass(frozen=True)
class Way:
    """A way to store and multiply, with what was measured of a graph that has it."""

    name: str
    product: Product
    measures: Mapping[str, float]


def same_on_two_threads(artifact: Artifact, texts: Iterable[Ids]) -> bool:
    """Whether the classify graph gives the same bits for every text on two threads as on one."""
    wide = Artifact(artifact.folder, artifact.manifest.model_copy(update={"wide": True}))
    engine = Engine(wide)
    engine.widen()
    return engine.wide and all(same_bits(engine.classify(ids, wide=True), engine.classify(ids)) for ids in texts)


def same_in_packs(artifact: Artifact, texts: Sequence[Ids]) -> bool:
    """Whether the packed graph gives the same bits for texts in runs of several as for each alone. They share runs with
    those before and after them, in the order given and at random, where they fit."""
    engine = Engine(artifact)
    engine.pack()
    if engine.pack_size == 1:
        return False
    alone = [engine.classify(ids) for ids in texts]
    shuffled = np.random.default_rng(0).permutation(len(texts))
    for order in (range(len(texts)), shuffled):
        grouped = packs([texts[i] for i in order], engine.pack_size)
        together = [output for pack in grouped for output in engine.classify_all(pack)]
        for i, output in zip(order, together, strict=True):
            if not (isinstance(output, ClassifyOutput) and same_bits(output, alone[i])):
                return False
    return True


def packs(texts: Iterable[Ids], size: int) -> Iterator[list[Ids]]:
    """Texts in groups that fit into a run."""
    pack: list[Ids] = []
    for ids in texts:
        if pack and (len(pack) == size or sum(map(len, pack)) + len(ids) > PACK_TOKENS):
            yield pack
            pack = []
        pack.append(ids)
    yield pack


def ways(encoder: Encoder, texts: Sequence[Ids], parameters: int) -> dict[str, Callable[[], Product | None]]:
    """Ways from the smallest to float32, each made when it is asked for; None if this model is too large for one."""

    def fitted() -> Product | None:
        if not isinstance(encoder, BertLike) or 4 * parameters > FITTED_BYTES:
            return None
        seen = calibration.calibrate(encoder.bert, texts, len(texts))
        return DynamicInt8(calibration.int8(seen, fitted=True))

    return {
        "int8-dynamic": lambda: int8,
        "int8-dynamic-fitted": fitted,
        "int8-dynamic-down-blocks32": lambda: Either((".down",), Blocks8Bit(32), int8),
        "blocks32": lambda: Blocks8Bit(32),
        EXACT: lambda: float32,
    }


def int8(graph: Graph, x: str, name: str, weight: Floats, bias: Floats | None) -> str:
    """u8 x s8 products with weights rounded to the nearest of their channel; the head stays in float32."""
    if name in HEAD:
        return float32(graph, x, name, weight, bias)
    scale = calibration.channel_scale(weight)
    smoothing = np.ones(len(weight), np.float32)
    matrix = Int8Matrix(calibration.round_to(weight, scale), scale, smoothing, 0.0, 0.0)
    return DynamicInt8({name: matrix})(graph, x, name, weight, bias)


def write_graphs(folder: Path, encoder: Encoder, classify: Way, embed: Way) -> None:
    """Write both graphs, each in its way."""
    graphs = {
        CLASSIFY: encoder.classify(classify.product, half_words=classify.name != EXACT),
        EMBED: encoder.embed(embed.product, half_words=embed.name != EXACT),
    }
    storage.save(folder, graphs)


def served(engine: Engine) -> Callable[[Ids], Answer]:
    """What the engine that serves makes of token ids."""

    def answer(ids: Ids) -> Answer:
        output = engine.classify(ids)
        return Answer(output.logits, output.cls, engine.embed(ids))

    return answer


def difference(ours: Answers, theirs: Answers) -> float:
    """The largest difference of any logit or value of a mean vector; where the largest of those is over 1, its share.

    NaN where either has one.
    """
    pairs = ((ours.logits, theirs.logits), (ours.means, theirs.means))
    return max(float(np.abs(a - b).max()) / max(1.0, float(np.abs(b).max())) for a, b in pairs)


def measures(manifest: Manifest, ours: Answers, theirs: Answers) -> dict[str, dict[str, float]]:
    """How far the answers of each graph are from the original's."""
    head = manifest.head
    decided = [heads.decisions(head, manifest.threshold, one.logits) for one in (ours, theirs)]
    spread = max(float(theirs.logits.std()), 1e-6)
    differences = np.abs(heads.scores(head, ours.logits, spread) - heads.scores(head, theirs.logits, spread))
    cosine = metrics.cosine(ours.means, theirs.means)
    return {
        "classify": {
            "agreement": float((decided[0] == decided[1]).all(axis=1).mean()),
            "score_difference_mean": float(differences.max(axis=1).mean()),
            "score_difference_worst": float(differences.max()),
        },
        "embed": {"cosine_mean": float(cosine.mean()), "cosine_worst": float(cosine.min())},
    }
