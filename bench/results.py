"""What a measurement writes: JSON with the machine, the subjects and every run, saved as it goes."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NotRequired

from typing_extensions import TypedDict

FOLDER = Path(__file__).parent / "results"


class Run(TypedDict):
    """One subject doing one thing in one round.

    Milliseconds are those of a request; `others_share` is what other processes had of the machine's CPU time meanwhile.
    """

    round: int
    subject: str
    what: str
    texts_per_s: float
    tokens_per_s: NotRequired[float]
    mean_ms: NotRequired[float]
    p50_ms: NotRequired[float]
    p95_ms: NotRequired[float]
    p99_ms: NotRequired[float]
    cpu_s_per_1000: NotRequired[float]
    others_share: NotRequired[float]


class Results:
    """Measurements under way or read back. `facts` are of the whole, `subjects` of each server or layer."""

    def __init__(
        self, facts: Mapping[str, Any], subjects: dict[str, dict[str, Any]] | None = None, runs: list[Run] | None = None
    ) -> None:
        self.facts = dict(facts)
        self.subjects = {} if subjects is None else subjects
        self.runs = [] if runs is None else runs

    @classmethod
    def read(cls, path: Path) -> Results | None:
        """Those in a file, or None if there is none."""
        if not path.exists():
            return None
        found = json.loads(path.read_text(encoding="utf-8"))
        return cls(found["facts"], found["subjects"], found["runs"])

    def save(self, path: Path) -> None:
        """Write all there is so far."""
        path.parent.mkdir(parents=True, exist_ok=True)
        found = {"facts": self.facts, "subjects": self.subjects, "runs": self.runs}
        part = path.with_suffix(".part")
        part.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        part.replace(path)

    def subject(self, name: str) -> dict[str, Any]:
        """The facts about a subject, to be added to."""
        return self.subjects.setdefault(name, {})

    def note(self, name: str, fact: str, value: float) -> None:
        """Add one round's value of a fact about a subject."""
        self.subject(name).setdefault(fact, []).append(round(value, 4))

    def values(self, subject: str, what: str, field: str = "texts_per_s") -> dict[int, float]:
        """A figure by round."""
        rows: list[Any] = [run for run in self.runs if run["subject"] == subject and run["what"] == what]
        return {row["round"]: row[field] for row in rows if field in row}

    def median(self, subject: str, what: str, field: str = "texts_per_s") -> float | None:
        """The median over the rounds, or None if it was not measured."""
        values = self.values(subject, what, field).values()
        return statistics.median(values) if values else None

    def ratios(self, one: tuple[str, str], other: tuple[str, str]) -> list[float]:
        """How many times the texts a second of `other` those of `one` are, each in the same round."""
        ours, theirs = self.values(*one), self.values(*other)
        return [ours[number] / theirs[number] for number in sorted(ours.keys() & theirs.keys())]


def spread(values: list[float], show: Callable[[float], str]) -> str:
    """A median with the smallest and the largest value."""
    if not values:
        return "-"
    low, high = show(min(values)), show(max(values))
    return show(statistics.median(values)) + (f" ({low} to {high})" if low != high else "")
