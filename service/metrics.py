"""What an operator can watch: one object holding every Prometheus metric, on a registry of its own."""

from __future__ import annotations

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_TOKENS = (4, 8, 16, 32, 64, 128, 256, 512)
_TEXTS = (1, 2, 3, 4)
_SHARES = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)


class Metrics:
    """All metrics of one service. Labels are bounded: route templates, never paths; label names of the model."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        self.requests = self._counter("requests", "HTTP requests.", "method", "route", "status")
        self.request_seconds = self._histogram(
            "request_seconds", "Time from a request's first byte to its answer's last.", _SECONDS, "route"
        )
        self.texts = self._counter("texts", "Texts answered or refused.", "model", "operation", "outcome")
        self.tokens = self._counter("tokens", "Tokens read by the encoder.", "model", "operation")
        self.text_tokens = self._histogram("text_tokens", "Tokens of a text, those left out included.", _TOKENS)
        self.unknown = self._counter("unknown_tokens", "Tokens that the vocabulary has no word for, as [UNK].")
        self.truncated = self._counter("truncated_texts", "Texts of which not every token was read.")
        self.windowed = self._counter("windowed_texts", "Texts read in several windows.")
        self.queue_seconds = self._histogram("queue_seconds", "Time a text waited for a worker.", _SECONDS)
        self.tokenize_seconds = self._histogram("tokenize_seconds", "Clean-up and tokenization of a text.", _SECONDS)
        self.inference_seconds = self._histogram("inference_seconds", "One run of a graph.", _SECONDS, "graph")
        self.run_texts = self._histogram("run_texts", "Texts that shared a run of a graph.", _TEXTS, "graph")
        self.predictions = self._counter("predictions", "Texts by predicted label.", "model", "label")
        self.confidence = self._histogram("confidence", "Probability of the predicted label.", _SHARES)
        self.rejected = self._counter("rejected_requests", "Requests refused by admission.", "reason")
        self.dropped = self._counter(
            "dropped_texts", "Texts dropped before all of them had run: their caller left or timed out.", "reason"
        )
        self.queue_depth = self._gauge("queue_depth", "Texts waiting for a worker.")
        self.in_flight = self._gauge("requests_in_flight", "HTTP requests being answered.")
        self.running = self._gauge("running_texts", "Texts being worked on.")
        self.model_info = self._gauge("model_info", "1 for each model that is loaded.", "model", "digest")
        self.workers = self._gauge("workers_alive", "Worker threads that can take work.")
        self.ready = self._gauge("ready", "1 when the service takes work, else 0.")
        # A series that appears with its first event has no rate until the second.
        for reason in ("deadline", "disconnect", "other"):
            self.dropped.labels(reason)
        for reason in ("overloaded", "unavailable", "too_much_work"):
            self.rejected.labels(reason)

    def render(self) -> bytes:
        """Every metric in Prometheus' text format."""
        return generate_latest(self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"sentiment_{name}", text, labels, registry=self.registry)

    def model_loaded(self, name: str, digest: str) -> None:
        """A model answers under a name, in the place of one that had it before."""
        _remove(self.model_info, name)
        self.model_info.labels(name, digest).set(1)

    def forget_model(self, name: str) -> None:
        """Nothing answers under a name any more: its series end."""
        for metric in (self.model_info, self.texts, self.tokens, self.predictions):
            _remove(metric, name)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"sentiment_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(f"sentiment_{name}", text, labels, registry=self.registry, buckets=buckets)


def _remove(metric: Counter | Gauge, model: str) -> None:
    """Take away a metric's series of a model."""
    found = [sample.labels for family in metric.collect() for sample in family.samples]
    for labels in {tuple(each.values()) for each in found if each["model"] == model}:
        metric.remove(*labels)
