"""A load on a server, and what it came to."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench import texts, wrk
from bench.processes import Server
from bench.results import Run
from bench.scenarios import Scenario


class Bodies:
    """The texts as requests of one server, written to files once."""

    def __init__(self, folder: Path, body: Callable[[Sequence[str]], object]) -> None:
        self._folder = folder
        self._body = body
        self._files: dict[tuple[str, int], tuple[Path, float]] = {}

    def file(self, name: str, size: int) -> tuple[Path, float]:
        """A file of lists of `size` texts, a request a line, and the mean number of tokens of its texts."""
        if (name, size) not in self._files:
            self._files[name, size] = self._write(name, size)
        return self._files[name, size]

    def _write(self, name: str, size: int) -> tuple[Path, float]:
        chosen = texts.read(name)
        lists = [chosen[start : start + size] for start in range(0, len(chosen) - size + 1, size)]
        path = self._folder / f"{name}-{size}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(self._body(one)) + "\n" for one in lists), encoding="utf-8")
        counts = texts.tokens([text for one in lists for text in one])
        return path, sum(counts) / len(counts)


def measure(server: Server, path: str, bodies: Bodies, scenario: Scenario, seconds: float) -> dict[str, float]:
    """The figures of a Run. Raises LoadError if a request failed."""
    file, tokens = bodies.file(scenario.texts, scenario.size)
    server.settle()
    cpu = server.cpu_s()
    load = wrk.run(server.url + path, file, scenario.connections, seconds)
    cpu = server.cpu_s() - cpu
    figures = asdict(load)
    asked = figures.pop("requests") * scenario.size
    rate = asked / figures.pop("seconds")
    figures |= {"texts_per_s": rate, "tokens_per_s": rate * tokens, "cpu_s_per_1000": 1000 * cpu / asked}
    return {name: round(value, 4) for name, value in figures.items()}


def run(round_: int, subject: str, what: str, figures: dict[str, float]) -> Run:
    """A Run of figures."""
    found: Any = {"round": round_, "subject": subject, "what": what, **figures}
    made: Run = found
    return made
