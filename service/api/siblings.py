"""Several processes on one socket: whichever is asked tells of all of them, which tell each other over Unix sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from service.metrics import Metrics

PATIENCE = 2.0
"""Seconds in which a process tells of itself; one that does not is taken for dead."""

SMALLEST = ("sentiment_ready", "process_start_time_seconds", "process_max_fds")
LARGEST = ("sentiment_model_info", "python_info")
"""What all processes tell alike or of a moment. Everything else is summed."""


@dataclass(frozen=True)
class Place:
    """Which of `count` processes one is, and the folder of their sockets."""

    folder: Path
    index: int
    count: int

    def socket(self, index: int) -> str:
        """Where a process tells of itself."""
        return str(self.folder / str(index))


class Siblings:
    """All processes of the service, as one of them sees them."""

    def __init__(self, place: Place, own: Metrics) -> None:
        self._place = place
        self._own = own

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Tell the others whenever they ask."""
        server = await asyncio.start_unix_server(self._tell, self._place.socket(self._place.index))
        async with server:
            yield

    async def render(self) -> bytes:
        """The metrics of all processes in one, those of a process that does not answer left out."""
        told = [text.decode() for text in await self._all() if text]
        registry = CollectorRegistry()
        registry.register(_Summed(told))
        return generate_latest(registry)

    async def not_ready(self) -> str | None:
        """Which of the processes takes no work, or None."""
        for index, text in enumerate(await self._all()):
            if text is None:
                return f"process {index + 1} of {self._place.count} does not answer"
            if b"\nsentiment_ready 1.0\n" not in text:
                return f"process {index + 1} of {self._place.count} is not ready"
        return None

    async def _tell(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(self._own.render())
            await writer.drain()
        finally:
            writer.close()

    async def _all(self) -> list[bytes | None]:
        return await asyncio.gather(*(self._told(index) for index in range(self._place.count)))

    async def _told(self, index: int) -> bytes | None:
        if index == self._place.index:
            return self._own.render()
        try:
            async with asyncio.timeout(PATIENCE):
                reader, writer = await asyncio.open_unix_connection(self._place.socket(index))
                try:
                    return await reader.read() or None
                finally:
                    writer.close()
        except OSError:  # a TimeoutError is one
            return None


class _Summed(Collector):
    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = texts

    def collect(self) -> Iterator[Metric]:
        """Each metric once, with the samples of all texts put together."""
        found: dict[str, Metric] = {}
        values: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = {}
        for text in self._texts:
            for metric in text_string_to_metric_families(text):
                found.setdefault(metric.name, metric)
                summed = values.setdefault(metric.name, {})
                for sample in metric.samples:
                    key = sample.name, tuple(sample.labels.items())
                    summed[key] = _together(sample.name, summed[key], sample.value) if key in summed else sample.value
        for name, metric in found.items():
            metric.samples = []
            for (sample_name, labels), value in values[name].items():
                metric.add_sample(sample_name, dict(labels), value)
            yield metric


def _together(name: str, one: float, other: float) -> float:
    if name in SMALLEST or name.endswith("_created"):
        return min(one, other)
    return max(one, other) if name in LARGEST else one + other
