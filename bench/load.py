"""A load on a server, and what it came to."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench import texts, wrk
from bench.processes import TICKS, Server
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
    used, cpu, began = busy_s(), server.cpu_s(), time.perf_counter()
    own = _own_s()
    load = wrk.run(server.url + path, file, scenario.connections, seconds)
    cpu = server.cpu_s() - cpu
    # Others' CPU time is what is left of the machine's without the server's, the load generator's and ours.
    others = busy_s() - used - cpu - (_own_s() - own)
    took = time.perf_counter() - began
    figures = asdict(load)
    asked = figures.pop("requests") * scenario.size
    rate = asked / figures.pop("seconds")
    figures |= {"texts_per_s": rate, "tokens_per_s": rate * tokens, "cpu_s_per_1000": 1000 * cpu / asked}
    figures["others_share"] = max(0.0, others / (took * (os.cpu_count() or 1)))
    return {name: round(value, 4) for name, value in figures.items()}


def busy_s() -> float:
    """CPU seconds that this machine was not idle for since it started, waiting for disks not counted."""
    fields = Path("/proc/stat").read_text(encoding="utf-8").splitlines()[0].split()[1:9]
    user, nice, system, _idle, _wait, *interrupts = (int(field) for field in fields)
    return (user + nice + system + sum(interrupts[:2])) / TICKS


def _own_s() -> float:
    """CPU seconds of this process and of its children that ended, wrk among them."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def run(round_: int, subject: str, what: str, figures: dict[str, float]) -> Run:
    """A Run of figures."""
    found: Any = {"round": round_, "subject": subject, "what": what, **figures}
    made: Run = found
    return made
