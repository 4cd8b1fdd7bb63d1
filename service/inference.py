"""What the service answers: texts to labels, vectors and explanations, on the scheduler's workers."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypedDict, TypeVar

import numpy as np
from numpy.typing import NDArray
from prometheus_client import Histogram

from service.artifact import Artifact, Golden
from service.engine import PACK_TOKENS, WIDE, WORTH_PACKING, ClassifyOutput, Engine
from service.errors import ArtifactError, EngineError, InputError, RequestError, ServiceError
from service.heads import Head
from service.metrics import Metrics
from service.reading import Piece, Reading
from service.scheduler import Run, Scheduler, Share, Split, Ticket
from service.timings import Timings
from service.tokenizer import Tokenizer

Pool = Literal["cls", "mean", "max", "cls,mean"]
LongText = Literal["window", "truncate", "error"]
Detail = Literal["windows", "sentences"]
Floats = NDArray[np.float32]
Result = TypeVar("Result")

OPERATIONS = ("classify", "embed", "explain")

POOLED: dict[Pool, tuple[str, ...]] = {"mean": ("mean",), "max": ("max",), "cls,mean": ("cls", "mean")}
"""What the embed graph is asked for, by pool. [CLS] alone is had cheaper from the classify graph."""

CHARACTERS = {"window": 2000, "sentence": 80, "word": 6}
"""How many characters of English a window, a sentence and a word have, about: what admission estimates runs by."""


@dataclass(frozen=True, slots=True)
class Scores:
    """A label with the calibrated probabilities float64 [labels] and the raw logits float32 [labels] behind it.

    Where labels do not exclude each other, `labels` are all that hold, and `label` is the most probable. A regression
    has a `value`, no probabilities (float64 [0]), and for its label what the value is called. `valence` is in [-1, 1],
    None where the labels have none.
    """

    label: str
    labels: tuple[str, ...] | None
    probabilities: NDArray[np.float64]
    logits: Floats
    value: float | None
    valence: float | None

    @property
    def score(self) -> float:
        """The probability of the label; NaN for a value."""
        return float(self.probabilities.max()) if self.probabilities.size else math.nan

    @property
    def outputs(self) -> NDArray[np.float64]:
        """A number for each label, float64 [labels]: its probability, or the value."""
        return self.probabilities if self.value is None else np.array([self.value])


@dataclass(frozen=True, slots=True)
class Part(Scores):
    """The scores of the code points `start` to `end` of a text."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Classification(Scores):
    """One text's answer: its scores, and those of its parts if they were asked for.

    `tokens` were read, special ones included, in so many `windows`; `left_out` were not.
    """

    tokens: int
    windows: int
    left_out: int
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True, slots=True)
class Embedding:
    """One text's vector, float32 [dimensions]; `tokens`, `windows` and `left_out` as in a Classification."""

    vector: Floats
    tokens: int
    windows: int
    left_out: int


@dataclass(frozen=True, slots=True)
class WordEffect:
    """What masking the word at code points `start` to `end` takes from the label's probability, or from the value."""

    start: int
    end: int
    effect: float


@dataclass(frozen=True, slots=True)
class Explanation(Scores):
    """One text's scores with the effect of each of its words on the label's probability."""

    tokens: int
    words: tuple[WordEffect, ...]


class _Read(TypedDict):
    """How much of a text is read: the fields that a Classification and an Embedding share."""

    tokens: int
    windows: int
    left_out: int


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request may ask for, and one text may cost."""

    texts: int
    characters: int
    windows: int
    sentences: int
    words: int


class Inference:
    """One model, ready to be asked. Its methods queue work and return at once."""

    def __init__(
        self, artifact: Artifact, scheduler: Scheduler, metrics: Metrics, limits: Limits, name: str | None = None
    ) -> None:
        """Serve a model under a name, or its manifest's."""
        self.manifest = artifact.manifest
        self.name = name or self.manifest.name
        self.digest = artifact.digest
        self.limits = limits
        self._tokenizer = Tokenizer(artifact.path("tokenizer.json"), self.manifest.max_tokens, self.manifest.cleanup)
        self._engine = Engine(artifact)
        self._head = Head(self.manifest)
        self._scheduler = scheduler
        self._metrics = metrics
        # Looked up once: a lookup by labels costs as much as what it counts.
        self._infer_seconds = {graph: metrics.inference_seconds.labels(graph) for graph in ("classify", "embed")}
        self._run_texts = {graph: metrics.run_texts.labels(graph) for graph in ("classify", "embed")}
        self._shared: Run | None = None
        self._ended = {
            (operation, outcome): metrics.texts.labels(self.name, operation, outcome)
            for operation in OPERATIONS
            for outcome in ("ok", "invalid", "error")
        }
        self._tokens = {operation: metrics.tokens.labels(self.name, operation) for operation in OPERATIONS}
        self._predicted = {label: metrics.predictions.labels(self.name, label) for label in self.manifest.labels}

    @classmethod
    def open(
        cls, folder: Path, scheduler: Scheduler, metrics: Metrics, limits: Limits, name: str | None = None
    ) -> Inference:
        """Open a model folder and check its golden texts. Raises ArtifactError if it cannot be trusted."""
        inference = cls(Artifact.open(folder), scheduler, metrics, limits, name)
        inference.check_golden()
        return inference

    def hasten(self) -> None:
        """Make ready what only makes answers come sooner: texts that wait share runs; one that is alone is classified
        on two cores, where this process has two workers and gains by it."""
        self._engine.pack()
        if self._engine.pack_size > 1:
            # Not a method: the model would hold itself then, and be kept until the garbage collector finds that out.
            run = partial(_classify_all, self._engine, self._infer_seconds["classify"], self._run_texts["classify"])
            self._shared = Run(run, self._engine.pack_size, PACK_TOKENS)
        if self._scheduler.size >= WIDE:
            self._engine.widen()
            self._engine.measure_wide()

    def give_back(self) -> None:
        """Return the memory that runs took to the system; the next ones take it again. Raises EngineError."""
        self._engine.give_back()

    @property
    def pools(self) -> list[Pool]:
        """The ways to pool that this model's graphs have."""
        return ["cls", *(pool for pool, parts in POOLED.items() if self._engine.pooled.issuperset(parts))]

    def width(self, pool: Pool) -> int:
        """Values in a vector."""
        return self.manifest.hidden_size * len(POOLED.get(pool, ("cls",)))

    def classify(
        self, texts: Sequence[str], long_text: LongText = "window", detail: Detail | None = None
    ) -> Ticket[list[Classification | ServiceError]]:
        """Label texts, in order; a text at fault gets its error in its place.

        Raises RequestError, OverloadedError or UnavailableError for the request as a whole.
        """
        run = partial(self._classify, long_text=long_text, detail=detail)
        return self._submit(texts, "classify", run, CHARACTERS["sentence" if detail == "sentences" else "window"])

    def embed(
        self,
        texts: Sequence[str],
        pool: Pool = "cls",
        long_text: LongText = "window",
        *,
        normalize: bool = False,
        dimensions: int | None = None,
    ) -> Ticket[list[Embedding | ServiceError]]:
        """Vectors of texts, in order: the last hidden state of [CLS], the mean or the maximum over all tokens' hidden
        states, or [CLS]'s and behind it the mean.

        `dimensions` keeps the first so many values; `normalize` then scales to unit length. Raises as `classify` does,
        and RequestError for a pool that this model's graphs do not have.
        """
        if pool not in self.pools:
            raise RequestError(f"this model has no pool {pool}; its pools: {'; '.join(self.pools)}", param="pool")
        if dimensions is not None and not 1 <= dimensions <= self.width(pool):
            raise RequestError(f"dimensions is {dimensions}; this pool has 1 to {self.width(pool)}", param="dimensions")
        run = partial(self._embed, pool=pool, long_text=long_text, normalize=normalize, dimensions=dimensions)
        return self._submit(texts, "embed", run, CHARACTERS["window"])

    def explain(self, texts: Sequence[str]) -> Ticket[list[Explanation | ServiceError]]:
        """Label texts and say which words carried the label, by masking each in turn.

        Leave-one-out erasure: Li et al. 2016, "Understanding Neural Networks through Representation Erasure".
        Raises as `classify` does, and RequestError for a model without a mask token.
        """
        mask = self._tokenizer.mask
        if mask is None:
            raise RequestError("this model's vocabulary has no mask token: it cannot explain")
        return self._submit(texts, "explain", partial(self._explain, mask=mask), CHARACTERS["word"])

    def check_golden(self) -> None:
        """Answer the manifest's golden texts, of which there is one at least.

        Raises ArtifactError when one cannot be read or run, has another label than it should, or a value that is
        further off than the tolerance.
        """
        if not self.manifest.golden:
            raise ArtifactError("the manifest has no golden text: nothing shows that the model answers as it should")
        with ThreadPoolExecutor(self._scheduler.size) as pool:  # the long ones are a good part of a start
            problems = pool.map(self._problem, self.manifest.golden)
            for golden, problem in zip(self.manifest.golden, problems, strict=True):
                if problem:
                    raise ArtifactError(f"golden text {golden.text[:40]!r}: {problem.message}") from problem

    def _problem(self, golden: Golden) -> ServiceError | None:
        try:
            self._check(golden)
        except ServiceError as error:
            return error
        return None

    def _check(self, golden: Golden) -> None:
        ids = self._tokenizer.read(golden.text).first().ids
        logits, mean = self._engine.classify(ids).logits, self._engine.embed(ids)[: len(golden.mean)]
        if not len(logits) == len(golden.logits) == len(self.manifest.labels):
            raise ArtifactError(
                f"the graph gives {len(logits)} logits, the manifest {len(golden.logits)} and has "
                f"{len(self.manifest.labels)} labels"
            )
        label = self.manifest.labels[int(logits.argmax())]
        if golden.label not in (None, label):
            raise ArtifactError(f"its label is {label} and should be {golden.label}")
        for graph, values, expected in (("classify", logits, golden.logits), ("embed", mean, golden.mean)):
            error = float(np.abs(values - np.array(expected)).max())
            if not error <= self.manifest.tolerance:
                raise ArtifactError(f"{graph} is off by {error:.4f}, allowed {self.manifest.tolerance}")

    def _submit(
        self, texts: Sequence[str], operation: str, run: Callable[[Reading, Timings], object], characters: int
    ) -> Ticket[list[Any]]:
        """Queue texts, each thought to take a run for so many of its characters."""
        if not 1 <= len(texts) <= self.limits.texts:
            raise RequestError(
                f"{len(texts)} texts in one request; 1 to {self.limits.texts} are allowed",
                code="too_many_texts" if texts else "no_texts",
                param="inputs",
            )
        units = [1 + min(len(text), self.limits.characters) // characters for text in texts]
        timings = Timings()
        tasks = [partial(self._task, text, run, timings) for text in texts]
        future = self._scheduler.submit(tasks, units, timings)
        future.add_done_callback(partial(self._count, operation))
        return future

    def _task(self, text: str, run: Callable[[Reading, Timings], object], timings: Timings) -> object:
        return run(self._read(text, timings), timings)

    def _count(self, operation: str, future: Future[list[Any]]) -> None:
        """Count how each text of a request ended and what was read of it, unless its caller left."""
        if future.cancelled() or future.exception():
            return
        answers = future.result()
        for outcome, count in Counter(map(_outcome, answers)).items():
            self._ended[operation, outcome].inc(count)
        tokens = sum(answer.tokens for answer in answers if not isinstance(answer, ServiceError))
        self._tokens[operation].inc(tokens)

    def _read(self, text: str, timings: Timings) -> Reading:
        if len(text) > self.limits.characters:
            raise InputError(
                f"the text has {len(text)} characters; {self.limits.characters} are allowed", code="text_too_long"
            )
        began = time.monotonic()
        reading = self._tokenizer.read(text)
        self._metrics.tokenize_seconds.observe(timings.done(timings.tokenize, began))
        self._metrics.text_tokens.observe(reading.tokens)
        if unknown := self._tokenizer.unknown(reading):
            self._metrics.unknown.inc(unknown)
        return reading

    def _pieces(self, reading: Reading, long_text: LongText) -> tuple[list[Piece], _Read]:
        """What of a text is run. Raises InputError for a text that is longer than `long_text` or the limits allow."""
        maximum = self.manifest.max_tokens
        if reading.fits:
            return [reading.first()], {"tokens": reading.tokens, "windows": 1, "left_out": 0}
        if long_text == "error":
            raise InputError(
                f"the text has {reading.tokens} tokens and the model reads {maximum}", code="too_many_tokens"
            )
        if long_text == "truncate":
            self._metrics.truncated.inc()
            return [reading.first()], {"tokens": maximum, "windows": 1, "left_out": reading.tokens - maximum}
        windows = reading.windows()
        self._bound(len(windows), self.limits.windows, "windows")
        self._metrics.windowed.inc()
        return windows, {"tokens": reading.tokens, "windows": len(windows), "left_out": 0}

    def _bound(self, count: int, limit: int, what: str) -> None:
        if count > limit:
            raise InputError(f"the text has {count} {what}; {limit} are allowed", code=f"too_many_{what}")

    def _classify(
        self, reading: Reading, timings: Timings, long_text: LongText, detail: Detail | None
    ) -> Classification | Share | Split:
        pieces, read = self._pieces(reading, long_text)
        sentences = reading.sentences() if detail == "sentences" else []
        self._bound(len(sentences), self.limits.sentences, "sentences")
        run = [*pieces, *sentences]

        def join(logits: list[Floats]) -> Classification:
            whole = self._head.read(weighted_mean(logits[: len(pieces)], pieces))
            parts = [
                Part(**self._head.read(one), start=piece.start, end=piece.end)
                for piece, one in zip(run, logits, strict=True)
                if detail
            ]
            shown = parts[: len(pieces)] if detail == "windows" else parts[len(pieces) :]
            answer = Classification(**whole, **read, parts=tuple(shown))
            if answer.value is None:
                self._predicted[answer.label].inc()
                self._metrics.confidence.observe(answer.score)
            return answer

        return _run([partial(self._logits, timings, piece.ids) for piece in run], join)

    def _embed(
        self,
        reading: Reading,
        timings: Timings,
        pool: Pool,
        long_text: LongText,
        *,
        normalize: bool,
        dimensions: int | None,
    ) -> Embedding | Share | Split:
        pieces, read = self._pieces(reading, long_text)

        def join(vectors: list[Floats]) -> Embedding:
            whole = np.max(vectors, axis=0) if pool == "max" else weighted_mean(vectors, pieces)
            vector = whole[:dimensions]
            return Embedding(_unit(vector) if normalize else vector, **read)

        run = self._cls if pool == "cls" else partial(self._vectors, POOLED[pool])
        return _run([partial(run, timings, piece.ids) for piece in pieces], join)

    def _explain(self, reading: Reading, timings: Timings, mask: int) -> Explanation | Share | Split:
        (piece,), read = self._pieces(reading, "error")
        words = reading.words()
        self._bound(len(words), self.limits.words, "words")

        def join(logits: list[Floats]) -> Explanation:
            read_of = [self._head.read(one) for one in logits]
            whole, *without = (Scores(**one).outputs for one in read_of)
            label = int(whole.argmax())
            effects = (float(whole[label] - one[label]) for one in without)
            shown = tuple(WordEffect(*word, effect) for word, effect in zip(words, effects, strict=True))
            return Explanation(**read_of[0], tokens=read["tokens"], words=shown)

        variants = [piece.ids, *(reading.masked(word, mask) for word in words)]
        return _run([partial(self._logits, timings, ids) for ids in variants], join)

    def _logits(self, timings: Timings, ids: NDArray[np.int64]) -> Floats | Share:
        return self._classified(_logits, timings, ids)

    def _cls(self, timings: Timings, ids: NDArray[np.int64]) -> Floats | Share:
        return self._classified(_cls, timings, ids)

    def _classified(
        self, part: Callable[[ClassifyOutput], Floats], timings: Timings, ids: NDArray[np.int64]
    ) -> Floats | Share:
        """Run on all cores if nothing else wants them, else with others that wait if that is worth it, else alone."""
        calm = self._scheduler.calm
        if self._shared and not calm and len(ids) <= WORTH_PACKING:
            return Share(self._shared, (timings, ids), len(ids), part)
        return part(self._timed(partial(self._engine.classify, wide=calm), "classify", timings, ids))

    def _vectors(self, pooled: tuple[str, ...], timings: Timings, ids: NDArray[np.int64]) -> Floats:
        return self._timed(partial(self._engine.embed, pooled=pooled), "embed", timings, ids)

    def _timed(
        self, run: Callable[[NDArray[np.int64]], Result], graph: str, timings: Timings, ids: NDArray[np.int64]
    ) -> Result:
        began = time.monotonic()
        result = run(ids)
        self._infer_seconds[graph].observe(timings.done(timings.infer, began))
        self._run_texts[graph].observe(1)
        return result


def _classify_all(
    engine: Engine, seconds: Histogram, texts: Histogram, items: Sequence[tuple[Timings, NDArray[np.int64]]]
) -> list[ClassifyOutput | EngineError]:
    """Outcomes of texts that share a run, and the time that each takes part of it."""
    began = time.monotonic()
    results = engine.classify_all([ids for _, ids in items])
    for timings, _ in items:
        timings.done(timings.infer, began, 1 / len(items))
    seconds.observe(time.monotonic() - began)
    texts.observe(len(items))
    return results


def _logits(output: ClassifyOutput) -> Floats:
    return output.logits


def _cls(output: ClassifyOutput) -> Floats:
    return output.cls


def _outcome(answer: object) -> str:
    if isinstance(answer, InputError):
        return "invalid"
    return "error" if isinstance(answer, ServiceError) else "ok"


def _run(
    tasks: Sequence[Callable[[], Floats | Share]], join: Callable[[list[Floats]], Result]
) -> Result | Share | Split:
    """One task is run at once, on the worker that is at it; several take their turns."""
    if len(tasks) > 1:
        return Split(tasks, join)
    made = tasks[0]()
    if isinstance(made, Share):
        return Share(made.run, made.item, made.size, lambda result: join([made.then(result)]))
    return join([made])


def weighted_mean(rows: Sequence[Floats], pieces: Sequence[Piece]) -> Floats:
    """The mean of float32 rows [size], each weighted by its piece's tokens; a single row is returned as it is."""
    if len(rows) == 1:
        return rows[0]
    weights = np.array([piece.weight for piece in pieces], np.float32)
    return np.asarray(weights @ np.stack(rows) / weights.sum(), np.float32)


def _unit(vector: Floats) -> Floats:
    length = np.linalg.norm(vector)
    if not length:
        raise EngineError("the vector has no length: it cannot be normalized")
    return np.asarray(vector / length, np.float32)
