"""Shapes of the graph that were tried, side by side: `python -m bench.variants`, 3 minutes on an idle core.

Each is a graph of MiniLM's size with random weights in 8 bits, which no speed depends on, and differs from the one that
is made in one thing. They run in turn in one process, on one thread, and are told apart by that thread's CPU time, so
that other work on the machine weighs on all alike. Writes bench/results/variants.json and what docs/performance.md
shows of it.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import onnx
import onnxruntime
import typer
from numpy.typing import NDArray
from onnx import TensorProto

from bench import report
from bench.machine import facts
from bench.results import FOLDER, Results, Run
from models import calibration
from models.checkpoint import Bert, Dense, Floats, Layer, Norm
from models.graph import MICROSOFT, Graph, Product, Writer, classify_graph
from models.products import HEAD, Blocks8Bit, DynamicInt8, Either, Int8Matrix, StaticInt8, float32
from service.engine import SLOWER

HIDDEN, INNER, LAYERS, WORDS, TOKENS = 384, 1568, 6, 1000, 512
LENGTHS = (8, 25, 64, 200)
REPEATS = {8: 60, 25: 40, 64: 20, 200: 8}
BASE = "as it is made"
CONTROL = "the same once more"
EVERYWHERE = (".qkv", ".up", ".down", ".query", ".key", ".value")


class Masked(Writer):
    """Attention with a mask of padding, which is all ones for a text alone, as exported graphs have it."""

    def attention(self, q: str, k: str, v: str, *more: str) -> str:
        """The mask as a condition for each query and key."""
        graph = self.graph
        kept = graph.node("Cast", "input_ids", to=TensorProto.BOOL)
        rows, columns = (
            graph.node("Unsqueeze", kept, graph.constant(f"axes_1_{axis}", np.array([1, axis], np.int64)))
            for axis in (3, 2)
        )
        return super().attention(q, k, v, *more, graph.node("And", rows, columns))


class MultiHead(Writer):
    """ONNX Runtime's own MultiHeadAttention in the place of ONNX's Attention."""

    def attention(self, q: str, k: str, v: str, *more: str) -> str:
        """One node."""
        heads = self.bert.heads
        return self.graph.node("MultiHeadAttention", q, k, v, domain=MICROSOFT, num_heads=heads, scale=1.0)


class Plain(Writer):
    """Attention of plain nodes: products, softmax and what brings the heads to the front."""

    def attention(self, q: str, k: str, v: str, *more: str) -> str:
        """Nine nodes."""
        graph, heads, size = self.graph, self.bert.heads, self.bert.head_size
        apart = graph.constant("apart", np.array([0, 0, heads, size], np.int64))
        together = graph.constant("together", np.array([0, 0, heads * size], np.int64))
        q, k, v = (graph.node("Transpose", graph.node("Reshape", x, apart), perm=[0, 2, 1, 3]) for x in (q, k, v))
        shares = graph.node("Softmax", graph.node("FusedMatMul", q, k, domain=MICROSOFT, transB=1), axis=-1)
        context = graph.node("Transpose", graph.node("MatMul", shares, v), perm=[0, 2, 1, 3])
        return graph.node("Reshape", context, together)


class Skip(Writer):
    """The residual sum and the normalization in one node."""

    def add_norm(self, x: str, y: str, name: str, norm: Norm, output: str | None = None) -> str:
        """One node."""
        scale = self.graph.constant(f"{name}.norm.scale", norm.scale)
        bias = self.graph.constant(f"{name}.norm.bias", norm.bias)
        epsilon = self.bert.epsilon
        return self.graph.node(
            "SkipLayerNormalization", x, y, scale, bias, domain=MICROSOFT, epsilon=epsilon, output=output
        )


def bert(activation: Any = "gelu", inner: int = INNER) -> Bert:
    """MiniLM's matrices, random."""
    rng = np.random.default_rng(0)

    def dense(rows: int, columns: int) -> Dense:
        return Dense(rng.normal(0, 0.05, (rows, columns)).astype(np.float32), np.zeros(columns, np.float32))

    def layer() -> Layer:
        query, key, value, attention = (dense(HIDDEN, HIDDEN) for _ in range(4))
        up, down = dense(HIDDEN, inner), dense(inner, HIDDEN)
        return Layer(query, key, value, attention, norm, up, down, norm)

    norm = Norm(np.ones(HIDDEN, np.float32), np.zeros(HIDDEN, np.float32))
    words, positions = (rng.normal(size=(size, HIDDEN)).astype(np.float32) for size in (WORDS, TOKENS))
    layers = tuple(layer() for _ in range(LAYERS))
    pooler, classifier = dense(HIDDEN, HIDDEN), dense(HIDDEN, 3)
    whole = Bert(words, positions, norm, layers, pooler, classifier, ("a", "b", "c"), heads=12, epsilon=1e-12)
    return replace(whole, activation=activation)


class Int8:
    """8 bits of every matrix of the encoder, made as it is asked for; those whose names end so are smoothed."""

    def __init__(self, way: Callable[[dict[str, Int8Matrix]], Product], smoothed: tuple[str, ...] = EVERYWHERE) -> None:
        self._matrices: dict[str, Int8Matrix] = {}
        self._product = way(self._matrices)
        self._smoothed = smoothed

    def __call__(self, graph: Graph, x: str, name: str, weight: Floats, bias: Floats | None) -> str:
        """As the way does it."""
        if name not in HEAD and name not in self._matrices:
            scale = calibration.channel_scale(weight)
            values = calibration.round_to(weight, scale)
            smoothing = np.full(len(weight), 1.001 if name.endswith(self._smoothed) else 1.0, np.float32)
            self._matrices[name] = Int8Matrix(values, scale, smoothing, -4.0, 4.0)
        return self._product(graph, x, name, weight, bias)


def int8(smoothed: tuple[str, ...] = EVERYWHERE) -> Product:
    """The way that is made."""
    return Int8(DynamicInt8, smoothed)


Write = Callable[[], onnx.ModelProto]

VARIANTS: dict[str, Write] = {
    BASE: lambda: classify_graph(bert(), int8()),
    CONTROL: lambda: classify_graph(bert(), int8()),
    "with a mask of padding": lambda: classify_graph(bert(), int8(), write_by=Masked),
    "smoothed before the inner products alone": lambda: classify_graph(bert(), int8((".down",))),
    "not smoothed": lambda: classify_graph(bert(), int8(())),
    "MultiHeadAttention": lambda: classify_graph(bert(), int8(), write_by=MultiHead),
    "attention of plain nodes": lambda: classify_graph(bert(), int8(), write_by=Plain),
    "SkipLayerNormalization": lambda: classify_graph(bert(), int8(), write_by=Skip),
    "GELU by its tanh formula": lambda: classify_graph(bert("gelu_tanh"), int8()),
    "ReLU in GELU's place": lambda: classify_graph(bert("relu"), int8()),
    "no copies of channels": lambda: classify_graph(bert(inner=1536), int8()),
    "scales fixed at calibration": lambda: classify_graph(bert(), Int8(StaticInt8)),
    "[CLS] row's matrices in blocks of 8 bits": lambda: classify_graph(
        bert(), Either((".cls.query", ".cls.key", ".cls.value", ".cls.attention"), Blocks8Bit(128), int8())
    ),
    "all matrices in blocks of 8 bits": lambda: classify_graph(bert(inner=1536), Blocks8Bit(128)),
    "every row of the last layer": lambda: classify_graph(bert(), int8(), full=True),
    "float32": lambda: classify_graph(bert(), float32),
}


def main(
    rounds: Annotated[int, typer.Option(min=1)] = 5,
    only: Annotated[list[str] | None, typer.Option(help="Variants besides the one that is made; unset: all.")] = None,
    out: Annotated[Path, typer.Option(help="Results to write.")] = FOLDER / "variants.json",
) -> None:
    """Measure, and write the results and the report."""
    models = {
        name: write().SerializeToString()
        for name, write in VARIANTS.items()
        if not only or name in (BASE, CONTROL, *only)
    }
    results = Results(facts() | {"rounds": rounds, "variants": list(models)})
    for number in range(rounds):
        # Where a session's weights come to lie makes some difference: each round makes them anew, in another order.
        shuffled = random.Random(number).sample(list(models), len(models))
        sessions = {name: _session(models[name]) for name in shuffled}
        for length in LENGTHS:
            for name, seconds in _times(sessions, length).items():
                run: Run = {"round": number, "subject": name, "what": f"{length} tokens", "texts_per_s": 1 / seconds}
                results.runs.append(run)
    results.save(out)
    if out.parent == FOLDER:
        report.write()


def _session(model: bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    given: Any = model
    return onnxruntime.InferenceSession(given, options, providers=["CPUExecutionProvider"], disabled_optimizers=SLOWER)


def _times(sessions: dict[str, onnxruntime.InferenceSession], length: int) -> dict[str, float]:
    """Seconds of the thread a run: the median, each run after two of its own graph, in an order that always changes,
    since a graph that ran before leaves the caches full of its own."""
    order = random.Random(length)
    ids: NDArray[np.int64] = np.random.default_rng(length).integers(1, WORDS, (1, length))
    found: dict[str, list[float]] = {name: [] for name in sessions}
    for _ in range(REPEATS[length]):
        for name in order.sample(list(sessions), len(sessions)):
            session = sessions[name]
            for _ in range(2):
                session.run(None, {"input_ids": ids})
            began = time.thread_time()
            session.run(None, {"input_ids": ids})
            found[name].append(time.thread_time() - began)
    return {name: statistics.median(times) for name, times in found.items()}


if __name__ == "__main__":
    typer.run(main)
