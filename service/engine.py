"""Token ids to logits and vectors: ONNX Runtime sessions, shared by all threads."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from service.artifact import Artifact
from service.errors import ArtifactError, EngineError
from service.memory import fix_thresholds
from service.saturation import saturates

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]

WORDS = "words"
"""What a graph calls its word table."""

SLOWER = {"SkipLayerNormFusion", "BiasSkipLayerNormFusion"}
"""Fusions that ONNX Runtime would make again with a session, into kernels slower than the nodes they replace."""

WIDE = 2
"""Threads of a run that may take more than one. Fewer cores than that leave nothing to share it with."""
WORTH_SHARING = 16
"""Tokens from which on sharing a run between threads may gain more than it costs."""
TIMED = (16, 33, 64, 128)
"""Tokens of the runs by which it is measured from where on it does so here."""
TIMES = 5
"""Of so many runs of each the shortest counts: what else the machine does makes runs longer, never shorter."""
GAIN = 0.8
"""Of the time on one core, what a run on several may take to be worth their while."""
TRIED = (16, 33, 47, 64, 100)
"""Tokens of the runs that must give the same bits on this CPU's kernels, whatever the CPU the manifest was made on."""

PACK_TOKENS = 128
"""Tokens of several texts up to which a run of them together takes less time than one of each."""
WORTH_PACKING = PACK_TOKENS // 2
"""Tokens of a text up to which it gains by sharing a run."""
TRIED_PACKS = ((25, 25, 25, 25), (3, 41, 17, 60), (9, 1, 30))
"""As `TRIED`, of several texts."""
STAND_IN = np.zeros(1, np.int64)


class ClassifyOutput(NamedTuple):
    """Logits float32 [labels] and the raw last hidden state of [CLS] float32 [hidden], before any pooler or tanh."""

    logits: Floats
    cls: Floats


class Engine:
    """Runs one text at a time, at its own length, on the calling thread. Safe to call from any number of threads."""

    def __init__(self, artifact: Artifact) -> None:
        """Load both graphs. Raises ArtifactError for a file that ONNX Runtime does not accept."""
        graphs, longest = artifact.manifest.graphs, artifact.manifest.max_tokens
        self._artifact = artifact
        words = _words(artifact)
        self._classify = _Graph(artifact.path(graphs.classify), longest, words)
        self._embed = _Graph(artifact.path(graphs.embed), longest, words)
        self._wide: _Graph | None = None
        self._worth_sharing: float = WORTH_SHARING
        self._packed: _Packed | None = None

    def widen(self) -> None:
        """Make runs on `WIDE` cores possible, for a graph and a CPU where they change no bit of an answer.

        Texts may be run meanwhile. Raises ArtifactError as loading does.
        """
        manifest = self._artifact.manifest
        if not manifest.wide:
            return
        wide = _Graph(self._artifact.path(manifest.graphs.classify), manifest.max_tokens, self._classify.words, WIDE)
        tried = (np.arange(tokens, dtype=np.int64) for tokens in TRIED if tokens <= manifest.max_tokens)
        if all(same_bits(wide.classified(ids), self._classify.classified(ids)) for ids in tried):
            self._wide = wide

    def measure_wide(self) -> None:
        """Make runs on `WIDE` cores only from as many tokens on as they are sooner on this CPU: where products are
        quick, as with AMX, threads wait for each other longer than they save. Texts may be run meanwhile."""
        if self._wide is None:
            return
        seconds: dict[int, tuple[float, float]] = {}
        for tokens in TIMED:
            ids = np.zeros(min(tokens, self._artifact.manifest.max_tokens), np.int64)
            rounds = [(_seconds(self._classify, ids), _seconds(self._wide, ids)) for _ in range(TIMES)]
            one, several = zip(*rounds, strict=True)
            seconds[tokens] = min(one), min(several)
        self._worth_sharing = worth_sharing(seconds)
        if self._worth_sharing == math.inf:
            self._wide = None

    @property
    def wide(self) -> bool:
        """Whether runs on `WIDE` cores are to be had."""
        return self._wide is not None

    def pack(self) -> None:
        """Make runs of several texts possible, for a model and a CPU where they change no bit of an answer.

        Texts may be run meanwhile. Raises ArtifactError as loading does.
        """
        manifest = self._artifact.manifest
        if manifest.graphs.packed is None:
            return
        packed = _Packed(self._artifact.path(manifest.graphs.packed), manifest.max_tokens, self._classify.words)
        for lengths in TRIED_PACKS:
            texts = [np.arange(min(tokens, manifest.max_tokens), dtype=np.int64) for tokens in lengths]
            alone = map(self._classify.classified, texts)
            if not all(map(same_bits, packed.classified_all(texts), alone)):
                return
        self._packed = packed

    @property
    def pack_size(self) -> int:
        """Texts that a run may have; 1 where they all run alone."""
        return self._packed.texts if self._packed else 1

    @property
    def pooled(self) -> frozenset[str]:
        """The vectors that `embed` can give."""
        return self._embed.outputs

    def classify(self, ids: Ids, *, wide: bool = False) -> ClassifyOutput:
        """Logits and [CLS] state of a text, given as token ids int64 [n] with 1 <= n <= max_tokens.

        `wide` asks for a run on `WIDE` cores, for a time when nothing else needs them. It is heard where that is
        faster and gives the same answer, bit for bit.
        Raises EngineError if the run fails or its result is not finite.
        """
        graph = self._wide if wide and self._wide and len(ids) >= self._worth_sharing else self._classify
        return graph.classified(ids)

    def classify_all(self, texts: Sequence[Ids]) -> list[ClassifyOutput | EngineError]:
        """What `classify` says of each of several texts, at most `pack_size`, in one run if that is possible."""
        if self._packed and len(texts) > 1:
            with suppress(EngineError):  # whose fault it is shows when each runs alone
                return list(self._packed.classified_all(texts))
        return [self._outcome(ids) for ids in texts]

    def _outcome(self, ids: Ids) -> ClassifyOutput | EngineError:
        try:
            return self.classify(ids)
        except EngineError as error:
            return error

    def embed(self, ids: Ids, pooled: Sequence[str] = ("mean",)) -> Floats:
        """The last hidden states of token ids as a vector float32 [hidden], not normalized, or several of them, one
        behind the other: their mean, their maximum, [CLS]'s own. Raises as `classify` does."""
        vectors = self._embed.run(pooled, ids)
        return vectors[0] if len(vectors) == 1 else np.concatenate(vectors)

    def give_back(self) -> None:
        """Return to the system what the arena of all sessions holds and no run uses. Raises as `classify` does.

        ONNX Runtime does so at the end of a run that asks for it: here that of the shortest text.
        """
        options = onnxruntime.RunOptions()
        options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        self._classify.run(("logits",), np.zeros(1, np.int64), options)


class _Graph:
    """A graph ready to run. Of a text that runs alone there is nothing to mask, but a graph may ask for the mask."""

    def __init__(
        self,
        path: Path,
        max_tokens: int,
        words: onnxruntime.OrtValue | None,
        threads: int = 1,
        *,
        plan_memory: bool = True,
    ) -> None:
        self.words = words  # a session reads the memory that it was given, and does not keep it
        self._session = session(path, words, threads, plan_memory=plan_memory)
        self.outputs = frozenset(output.name for output in self._session.get_outputs())
        asked = {given.name for given in self._session.get_inputs()}
        self._mask = np.ones((1, max_tokens), np.int64) if "attention_mask" in asked else None

    def classified(self, ids: Ids) -> ClassifyOutput:
        return ClassifyOutput(*self.run(("logits", "cls"), ids))

    def run(self, outputs: Sequence[str], ids: Ids, options: onnxruntime.RunOptions | None = None) -> list[Floats]:
        feed = {"input_ids": ids[np.newaxis]}
        if self._mask is not None:
            feed["attention_mask"] = self._mask[:, : len(ids)]
        return [array[0] for array in self._arrays(outputs, feed, options)]

    def _arrays(
        self, outputs: Sequence[str], feed: dict[str, Ids], options: onnxruntime.RunOptions | None = None
    ) -> list[Floats]:
        try:
            arrays: list[Floats] = self._session.run(outputs, feed, options)
        except Exception as error:
            raise EngineError(f"the run failed: {type(error).__name__}") from error
        if not all(np.isfinite(array).all() for array in arrays):
            raise EngineError("the run gave a value that is not finite")
        return arrays


class _Packed(_Graph):
    """A graph that takes several texts in a run, as many as it was written for: where there are fewer, the shortest
    that there can be stand in."""

    def __init__(self, path: Path, max_tokens: int, words: onnxruntime.OrtValue | None) -> None:
        # Inputs of the same shapes may hold texts of other lengths: what one run took of memory plans no other's.
        super().__init__(path, max_tokens, words, plan_memory=False)
        (self.texts,) = next(given.shape for given in self._session.get_inputs() if given.name == "lengths")
        self._places = np.arange(max_tokens)

    def classified_all(self, texts: Sequence[Ids]) -> list[ClassifyOutput]:
        given = [*texts, *[STAND_IN] * (self.texts - len(texts))]
        feed = {
            "input_ids": np.concatenate(given)[np.newaxis],
            "position_ids": np.concatenate([self._places[: len(ids)] for ids in given]),
            "lengths": np.array([len(ids) for ids in given], np.int64),
        }
        logits, cls = self._arrays(("logits", "cls"), feed)
        return [ClassifyOutput(logits[i], cls[i]) for i in range(len(texts))]


def worth_sharing(seconds: Mapping[int, tuple[float, float]]) -> float:
    """The tokens from which on, of runs timed on one core and on several, all gain; infinite where the longest does
    not."""
    worth = math.inf
    for tokens, (one, several) in sorted(seconds.items(), reverse=True):
        if several > GAIN * one:
            break
        worth = tokens
    return worth


def _seconds(graph: _Graph, ids: Ids) -> float:
    began = time.perf_counter()
    graph.classified(ids)
    return time.perf_counter() - began


def same_bits(one: Sequence[Floats], other: Sequence[Floats]) -> bool:
    """Whether arrays are the same to the last bit."""
    return all(a.tobytes() == b.tobytes() for a, b in zip(one, other, strict=True))


def _words(artifact: Artifact) -> onnxruntime.OrtValue | None:
    """The word table, mapped once for both graphs: each would map it for itself, and so much of it would be resident
    twice as texts have touched. Raises ArtifactError for a file that is too short."""
    table = artifact.manifest.words
    if table is None:
        return None
    path = artifact.path(table.file)
    try:
        mapped = np.memmap(path, table.dtype, "r", table.offset, table.shape)
    except (OSError, ValueError) as error:
        raise ArtifactError(f"{path} does not hold the words that the manifest says: {error}") from error
    return onnxruntime.OrtValue.ortvalue_from_numpy(mapped)


@cache
def share_arena() -> None:
    """Give all sessions of this process one memory arena. With an arena of its own, each would keep the largest run's
    memory for every thread that ever ran it; with none, the process grows to twice the size.
    """
    fix_thresholds()
    memory = onnxruntime.OrtMemoryInfo(
        "Cpu", onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, onnxruntime.OrtMemType.DEFAULT
    )
    onnxruntime.create_and_register_allocator(memory, onnxruntime.OrtArenaCfg(0, -1, -1, -1))


def session(
    path: Path, words: onnxruntime.OrtValue | None = None, threads: int = 1, *, plan_memory: bool = True
) -> onnxruntime.InferenceSession:
    """A session that runs a graph as it is written, on so many threads, its word table given or its own.

    A given one must outlive the session. With `plan_memory`, a run takes what an earlier one of inputs of the same
    shapes took at once, from the arena that sessions share; without it every node asks for its own, of the C library,
    as at the arena threads would wait for each other. Raises ArtifactError if the graph does not load.
    """
    options = onnxruntime.SessionOptions()
    options.enable_mem_pattern = options.enable_cpu_mem_arena = plan_memory
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    # The graphs are shaped by hand and gain nothing from optimization, but the rewrite that x64quantprecision asks for
    # is one of the extended level's.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.log_severity_level = 4
    share_arena()
    options.add_session_config_entry("session.use_env_allocators", "1" if plan_memory else "0")
    # The threads of a run wait for each other at every node, too short a time to sleep; between runs they do.
    options.add_session_config_entry("session.intra_op.allow_spinning", "1" if threads > 1 else "0")
    options.add_session_config_entry("session.force_spinning_stop", "1")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    if words is not None:
        options.add_initializer(WORDS, words)
    if saturates():
        options.add_session_config_entry("session.x64quantprecision", "1")
    try:
        return onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"], disabled_optimizers=SLOWER
        )
    except Exception as error:
        raise ArtifactError(f"{path} is not a graph that this ONNX Runtime loads: {error}") from error
