"""The layers without HTTP: tokenizer, engine, both, and beside them the stock int8 graph and one large int8 product."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import onnxruntime

from service.artifact import Artifact
from service.engine import Engine, Ids
from service.tokenizer import Tokenizer

Item = TypeVar("Item")
PRODUCT = 1024
"""Rows and columns of both matrices of the large product."""


class Pass(NamedTuple):
    """One pass over a list: texts a second, and CPU seconds of this process per 1,000 texts."""

    texts_per_s: float
    cpu_s_per_1000: float


class Ours:
    """Our model's tokenizer and engine, as the service opens them."""

    def __init__(self, folder: Path) -> None:
        artifact = Artifact.open(folder)
        manifest = artifact.manifest
        self.classify_graph = artifact.path(manifest.graphs.classify)
        self.engine = Engine(artifact)
        self.engine.widen()
        self.engine.pack()
        self._tokenizer = Tokenizer(artifact.path("tokenizer.json"), manifest.max_tokens, manifest.cleanup)

    def tokenize(self, text: str) -> Ids:
        """Token ids of as much of a text as the model reads."""
        return self._tokenizer.read(text).first().ids

    def packs(self, ids: Sequence[Ids]) -> list[list[Ids]]:
        """Texts in groups that share a run, as those that wait for a worker do."""
        from models.fidelity import packs

        return list(packs(ids, self.engine.pack_size))

    def label(self, texts: Sequence[str]) -> None:
        """What a worker does for texts that share a run: tokenize them and run the graph."""
        self.engine.classify_all([self.tokenize(text) for text in texts])


class Stock:
    """A full graph of a stock export, a text a run, on one thread."""

    def __init__(self, path: Path) -> None:
        self._session = single(path)
        self._names = [given.name for given in self._session.get_inputs()]

    def classify(self, ids: Ids) -> None:
        """Run token ids int64 [n]."""
        row = ids[np.newaxis]
        feeds = {"input_ids": row, "attention_mask": np.ones_like(row), "token_type_ids": np.zeros_like(row)}
        self._session.run(["logits"], {name: feeds[name] for name in self._names})


def single(model: Path | bytes, profile: Path | None = None) -> onnxruntime.InferenceSession:
    """A session on one thread, otherwise with the defaults."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    if profile:
        options.enable_profiling = True
        options.profile_file_prefix = str(profile)
    given = model if isinstance(model, bytes) else str(model)
    return onnxruntime.InferenceSession(given, options, providers=["CPUExecutionProvider"])


def over(work: Callable[[Item], object], items: Sequence[Item], threads: int = 1) -> Pass:
    """Do all items, each thread taking the next one. After a tenth of them to warm up, which is not timed."""
    for item in items[: len(items) // 10]:
        work(item)
    turns = itertools.count()

    def take() -> None:
        while (index := next(turns)) < len(items):
            work(items[index])

    helpers = [threading.Thread(target=take) for _ in range(threads - 1)]
    began, cpu = time.perf_counter(), time.process_time()
    for helper in helpers:
        helper.start()
    take()
    for helper in helpers:
        helper.join()
    took, used = time.perf_counter() - began, time.process_time() - cpu
    return Pass(len(items) / took, 1000 * used / len(items))


def milliseconds(work: Callable[[Ids], object], length: int, repeats: int = 7) -> float:
    """The median time of one run of a text of so many tokens."""
    ids = np.random.default_rng(length).integers(1000, 20_000, length)
    work(ids)
    taken: list[float] = []
    for _ in range(repeats):
        began = time.perf_counter()
        work(ids)
        taken.append(time.perf_counter() - began)
    return float(1000 * np.median(taken))


class LargeProduct:
    """MatMulInteger of two matrices u8 and s8 [1024, 1024], the second one constant, on one thread."""

    def __init__(self) -> None:
        from onnx import TensorProto, helper, numpy_helper

        rng = np.random.default_rng(0)
        size = [PRODUCT, PRODUCT]
        constant = numpy_helper.from_array(rng.integers(-127, 127, size, np.int8), "b")
        node = helper.make_node("MatMulInteger", ["a", "b"], ["c"])
        given = helper.make_tensor_value_info("a", TensorProto.UINT8, size)
        result = helper.make_tensor_value_info("c", TensorProto.INT32, size)
        graph = helper.make_graph([node], "product", [given], [result], [constant])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        self._session = single(model.SerializeToString())
        self._feed: dict[str, Any] = {"a": rng.integers(0, 255, size, np.uint8)}

    def operations_per_s(self, seconds: float = 0.5) -> float:
        """Multiplications and additions a second, at the median of the runs."""
        taken: list[float] = []
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            began = time.perf_counter()
            self._session.run(None, self._feed)
            taken.append(time.perf_counter() - began)
        return float(2 * PRODUCT**3 / np.median(taken))
