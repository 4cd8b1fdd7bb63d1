"""What each pooling costs: the served encoder with other tails, timed side by side, and FLOPs by formula."""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from models.graph import MICROSOFT
from models.storage import WEIGHTS
from models.study.record import Record
from service.artifact import Artifact
from service.engine import session

LENGTHS = (8, 25, 64, 200, 512)
ROUNDS = 60
LONG, LONG_ROUNDS = 200, 20
VOCABULARY = (1000, 20000)
LAYER_END = re.compile(r"\d+\.output\.norm\.scale")

Nodes = list[Any]
Tail = Callable[[list[str]], Nodes]


def _cls(states: list[str]) -> Nodes:
    return [helper.make_node("Gather", [states[-1], "study.zero"], ["study.out"], axis=1)]


def _mean(states: list[str]) -> Nodes:
    return [helper.make_node("ReduceMean", [states[-1], "study.one"], ["study.out"], keepdims=0)]


def _max(states: list[str]) -> Nodes:
    return [helper.make_node("ReduceMax", [states[-1], "study.one"], ["study.out"], keepdims=0)]


def _cls_mean(states: list[str]) -> Nodes:
    return [
        helper.make_node("Gather", [states[-1], "study.zero"], ["study.cls"], axis=1),
        helper.make_node("ReduceMean", [states[-1], "study.one"], ["study.mean"], keepdims=0),
        helper.make_node("Concat", ["study.cls", "study.mean"], ["study.out"], axis=-1),
    ]


def _attention(states: list[str]) -> Nodes:
    return [
        helper.make_node("MatMul", [states[-1], "study.score"], ["study.scores"]),
        helper.make_node("Softmax", ["study.scores"], ["study.shares"], axis=1),
        helper.make_node("FusedMatMul", ["study.shares", states[-1]], ["study.out"], domain=MICROSOFT, transA=1),
    ]


def _last4(states: list[str]) -> Nodes:
    """The last of the states may be the vector of [CLS] already."""
    last = states[-1]
    rows = [f"study.cls{number}" for number in range(3)] + ([last] if last == "cls" else ["study.cls3"])
    gathered = [
        helper.make_node("Gather", [state, "study.zero"], [row], axis=1)
        for state, row in zip(states[-4:], rows, strict=True)
        if state != row
    ]
    return [*gathered, helper.make_node("Concat", rows, ["study.out"], axis=-1)]


def _own(states: list[str]) -> Nodes:
    return [helper.make_node("Identity", [states[-1]], ["study.out"])]


@dataclass(frozen=True)
class Way:
    """A pooling: what is written behind the encoder, whether its last layer is for [CLS] alone, and its operations.

    Operations are (of each token, of the whole text), in multiples of the hidden size.
    """

    tail: Tail
    cls_only: bool = False
    operations: tuple[int, int] = (0, 0)


WAYS = {
    "cls-only": Way(_own, cls_only=True),
    "cls-last4-only": Way(_last4, cls_only=True),
    "cls": Way(_cls),
    "cls-last4": Way(_last4),
    "mean": Way(_mean, operations=(1, 1)),
    "max": Way(_max, operations=(1, 0)),
    "cls-mean": Way(_cls_mean, operations=(1, 1)),
    "attention": Way(_attention, operations=(4, 0)),
}


@dataclass(frozen=True)
class Shape:
    """The sizes that decide how many operations an encoder takes, as its graph has them."""

    layers: int
    hidden: int
    inner: int
    heads: int

    def flops(self, tokens: int, way: Way) -> int:
        """Operations of a text, a multiplication and an addition counted as two; norms, softmax and GELU left out."""
        h, f, n = self.hidden, self.inner, tokens
        layer = 2 * n * (4 * h * h + 2 * h * f) + 4 * n * n * h
        # Query, attention output and feed-forward for one token; the key's and the value's matrix once for each head;
        # scores and context for one query of each head, over whole states.
        alone = 2 * (2 * h * h + 2 * h * f) + 2 * self.heads * (2 * h * h + 2 * n * h)
        encoder = self.layers * layer if not way.cls_only else (self.layers - 1) * layer + alone
        each, once = way.operations
        return encoder + each * n * h + once * h


def shape(embed: onnx.ModelProto, classify: onnx.ModelProto) -> Shape:
    """Read the sizes off a model's two graphs."""
    sizes = {tensor.name: tuple(tensor.dims) for tensor in (*embed.graph.initializer, *classify.graph.initializer)}
    layers = sum(1 for name in sizes if LAYER_END.fullmatch(name))
    heads, hidden = sizes["own_head"]
    return Shape(layers, hidden, sizes["0.up.bias"][0], heads)


def run(folder: Path, out: Path) -> None:
    """Time every pooling at every length, interleaved, on one thread; CPU time, medians of many runs."""
    artifact = Artifact.open(folder)
    graphs = artifact.manifest.graphs
    embed, classify = (
        onnx.load(artifact.path(name), load_external_data=False) for name in (graphs.embed, graphs.classify)
    )
    quantization = artifact.manifest.quantization.model_dump()
    record = Record(
        out, {"model": artifact.manifest.name, "quantization": quantization, "rounds": [ROUNDS, LONG_ROUNDS]}
    )
    sizes = shape(embed, classify)
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        shutil.copyfile(artifact.path(WEIGHTS), work / WEIGHTS)
        sessions: dict[str, Any] = {}
        for name, way in WAYS.items():
            (work / f"{name}.onnx").write_bytes(with_tail(classify if way.cls_only else embed, way).SerializeToString())
            sessions[name] = session(work / f"{name}.onnx")
        for tokens in LENGTHS:
            for name, seconds in _times(sessions, tokens, LONG_ROUNDS if tokens >= LONG else ROUNDS).items():
                flops = sizes.flops(tokens, WAYS[name])
                record.add(pooling=name, tokens=tokens, microseconds=round(seconds * 1e6, 1), flops=flops)


def with_tail(model: onnx.ModelProto, way: Way) -> onnx.ModelProto:
    """A copy of a graph that ends in a pooling's vector, without the nodes that it does not need."""
    found = onnx.ModelProto()
    found.CopyFrom(model)
    graph = found.graph
    ends = {
        node.output[0]: node.input[1]
        for node in graph.node
        if node.op_type == "LayerNormalization" and ".output.norm" in node.input[1]
    }
    hidden = next(tensor.dims[0] for tensor in graph.initializer if tensor.name in ends.values())
    graph.node.extend(way.tail(list(ends)))
    constants: dict[str, NDArray[Any]] = {
        "zero": np.array(0, np.int64),
        "one": np.array([1], np.int64),
        "score": np.linspace(-1, 1, hidden, dtype=np.float32)[:, np.newaxis],
    }
    graph.initializer.extend(numpy_helper.from_array(array, f"study.{name}") for name, array in constants.items())
    del graph.output[:]
    graph.output.append(helper.make_tensor_value_info("study.out", TensorProto.FLOAT, None))
    _prune(graph)
    return found


def _prune(graph: onnx.GraphProto) -> None:
    needed = {output.name for output in graph.output}
    kept = []
    for node in reversed(graph.node):
        if needed & set(node.output):
            kept.append(node)
            needed |= _reads(node)
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in reversed(kept)]
    del graph.node[:]
    graph.node.extend(nodes)
    tensors = [tensor for tensor in graph.initializer if tensor.name in needed]
    del graph.initializer[:]
    graph.initializer.extend(tensors)
    inputs = [given for given in graph.input if given.name in needed]
    del graph.input[:]
    graph.input.extend(inputs)


def _reads(node: onnx.NodeProto) -> set[str]:
    """The values a node takes, those that its branches take from around them included."""
    inner = [attribute.g for attribute in node.attribute if attribute.type == onnx.AttributeProto.GRAPH]
    names = set(node.input)
    for graph in inner:
        for child in graph.node:
            names |= _reads(child)
        names |= {output.name for output in graph.output}
    return names


def _times(sessions: dict[str, Any], tokens: int, rounds: int) -> dict[str, float]:
    """Median seconds of CPU time of each graph, run in turns on the same text of random tokens."""
    rng = np.random.default_rng(tokens)
    ids = rng.integers(*VOCABULARY, (1, tokens))
    measured: dict[str, list[float]] = {name: [] for name in sessions}
    for turn in range(rounds + 2):
        for name, graph in sessions.items():
            feed = {given.name: ids if given.name == "input_ids" else np.ones_like(ids) for given in graph.get_inputs()}
            began = time.thread_time()
            graph.run(["study.out"], feed)
            if turn >= 2:  # the first ones find cold caches
                measured[name].append(time.thread_time() - began)
    return {name: median(values) for name, values in measured.items()}
