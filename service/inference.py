"""What the service answers: texts to labels and vectors, on the scheduler's workers, at each text's own length."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from service.artifact import Artifact
from service.engine import Engine
from service.errors import ArtifactError, EngineError, InputError, RequestError, ServiceError
from service.metrics import Metrics
from service.scheduler import Scheduler, Task
from service.tokenizer import Tokenized, Tokenizer

Pool = Literal["cls", "mean"]
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Classification:
    """One text's answer: calibrated probabilities float64 [labels] and the raw logits float32 [labels] behind them."""

    label: str
    probabilities: NDArray[np.float64]
    logits: Floats
    valence: float
    tokens: int
    left_out: int


@dataclass(frozen=True, slots=True)
class Embedding:
    """One text's vector, float32 [dimensions]."""

    vector: Floats
    tokens: int
    left_out: int


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request may ask for."""

    texts: int
    characters: int


class Inference:
    """One model, ready to be asked. Its methods queue work and return at once."""

    def __init__(self, artifact: Artifact, scheduler: Scheduler, metrics: Metrics, limits: Limits) -> None:
        self.manifest = artifact.manifest
        self.limits = limits
        self._tokenizer = Tokenizer(artifact.path("tokenizer.json"), self.manifest.max_tokens, self.manifest.cleanup)
        self._engine = Engine(artifact)
        self._scheduler = scheduler
        self._metrics = metrics

    @classmethod
    def open(cls, folder: Path, scheduler: Scheduler, metrics: Metrics, limits: Limits) -> Inference:
        """Open a model folder and check its golden texts. Raises ArtifactError if it cannot be trusted."""
        inference = cls(Artifact.open(folder), scheduler, metrics, limits)
        inference.check_golden()
        return inference

    def classify(self, texts: Sequence[str]) -> Future[list[Classification | ServiceError]]:
        """Label texts, in order; a text at fault gets its error in its place.

        Raises RequestError, OverloadedError or UnavailableError for the request as a whole.
        """
        return self._submit(texts, "classify", self._classify)

    def embed(
        self, texts: Sequence[str], pool: Pool = "cls", *, normalize: bool = False, dimensions: int | None = None
    ) -> Future[list[Embedding | ServiceError]]:
        """Vectors of texts, in order: the last hidden state of [CLS], or the mean over all tokens' hidden states.

        `dimensions` keeps the first so many values; `normalize` then scales to unit length. Raises as `classify` does.
        """
        if dimensions is not None and not 1 <= dimensions <= self.manifest.hidden_size:
            raise RequestError(
                f"dimensions is {dimensions}; this model has 1 to {self.manifest.hidden_size}", param="dimensions"
            )
        return self._submit(
            texts, "embed", lambda text: self._embed(text, pool, normalize=normalize, dimensions=dimensions)
        )

    def check_golden(self) -> None:
        """Answer the manifest's golden texts. Raises ArtifactError when a value is further off than its tolerance."""
        for golden in self.manifest.golden:
            ids = self._tokenizer.encode(golden.text).ids
            for graph, values, expected in (
                ("classify", self._engine.classify(ids).logits, golden.logits),
                ("embed", self._engine.embed(ids)[: len(golden.mean)], golden.mean),
            ):
                error = float(np.abs(values - np.array(expected)).max())
                if not error <= self.manifest.tolerance:
                    raise ArtifactError(
                        f"golden text {golden.text!r}: {graph} is off by {error:.4f}, allowed {self.manifest.tolerance}"
                    )

    def _submit(self, texts: Sequence[str], operation: str, run: Callable[[str], object]) -> Future[list[Any]]:
        if not 1 <= len(texts) <= self.limits.texts:
            raise RequestError(
                f"{len(texts)} texts in one request; 1 to {self.limits.texts} are allowed",
                code="too_many_texts" if texts else "no_texts",
                param="inputs",
            )
        return self._scheduler.submit([self._task(text, operation, run) for text in texts])

    def _task(self, text: str, operation: str, run: Callable[[str], object]) -> Task:
        def task() -> object:
            outcome = "error"
            try:
                answer = run(text)
                outcome = "ok"
            except InputError:
                outcome = "invalid"
                raise
            finally:
                self._metrics.texts.labels(operation, outcome).inc()
            return answer

        return task

    def _classify(self, text: str) -> Classification:
        tokenized = self._tokenize(text, "classify")
        began = time.perf_counter()
        logits = self._engine.classify(tokenized.ids).logits
        self._metrics.inference_seconds.labels("classify").observe(time.perf_counter() - began)
        probabilities = softmax(logits, self.manifest.temperature)
        best = int(probabilities.argmax())
        label = self.manifest.labels[best]
        self._metrics.predictions.labels(label).inc()
        self._metrics.confidence.observe(float(probabilities[best]))
        by_label = dict(zip(self.manifest.labels, probabilities.tolist(), strict=True))
        return Classification(
            label=label,
            probabilities=probabilities,
            logits=logits,
            valence=by_label.get("positive", 0.0) - by_label.get("negative", 0.0),
            tokens=len(tokenized.ids),
            left_out=tokenized.left_out,
        )

    def _embed(self, text: str, pool: Pool, *, normalize: bool, dimensions: int | None) -> Embedding:
        tokenized = self._tokenize(text, "embed")
        began = time.perf_counter()
        graph = "classify" if pool == "cls" else "embed"
        vector = self._engine.classify(tokenized.ids).cls if pool == "cls" else self._engine.embed(tokenized.ids)
        self._metrics.inference_seconds.labels(graph).observe(time.perf_counter() - began)
        vector = vector[:dimensions]
        if normalize:
            length = np.linalg.norm(vector)
            if not length:
                raise EngineError("the vector has no length: it cannot be normalized")
            vector = vector / length
        return Embedding(vector, len(tokenized.ids), tokenized.left_out)

    def _tokenize(self, text: str, operation: str) -> Tokenized:
        if len(text) > self.limits.characters:
            raise InputError(
                f"the text has {len(text)} characters; {self.limits.characters} are allowed", code="text_too_long"
            )
        began = time.perf_counter()
        tokenized = self._tokenizer.encode(text)
        self._metrics.tokenize_seconds.observe(time.perf_counter() - began)
        self._metrics.tokens.labels(operation).inc(len(tokenized.ids))
        self._metrics.text_tokens.observe(len(tokenized.ids) + tokenized.left_out)
        if tokenized.left_out:
            self._metrics.truncated.inc()
        return tokenized


def softmax(logits: Floats, temperature: float) -> NDArray[np.float64]:
    """Calibrated probabilities, float64 [labels]: softmax of logits over a fitted temperature (Guo et al. 2017)."""
    scaled = logits.astype(np.float64) / temperature
    exponents = np.exp(scaled - scaled.max())
    return np.asarray(exponents / exponents.sum())
