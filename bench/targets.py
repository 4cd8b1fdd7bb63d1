"""The targets, as ratios within one run, and what the results say of each."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

from bench.peers.ours import NAME as OURS
from bench.results import Results
from bench.scenarios import (
    BASE64,
    BOTH,
    EMBED,
    LISTS,
    NO_RUN,
    ONE,
    PACKED,
    PRODUCT,
    SERVICE,
    SINGLE,
    STOCK,
    THREAD,
    THREADS,
)

INFINITY = "infinity"


@dataclass(frozen=True, slots=True)
class Measured:
    """The results there are; None where that measurement was not made."""

    peers: Results | None
    layers: Results | None
    memory: Results | None
    variants: Results | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """A bound on the median over the rounds; `values` are those of each round."""

    name: str
    bound: float
    values: Callable[[Measured], list[float]]
    at_least: bool = True
    unit: str = ""

    def met(self, values: list[float]) -> bool | None:
        """Whether the median keeps the bound, or None if it was not measured."""
        if not values:
            return None
        median = statistics.median(values)
        return median >= self.bound if self.at_least else median <= self.bound


def against(what: str, part: str = "") -> Callable[[Measured], list[float]]:
    """How many times the best other server whose name has `part` ours is, round by round."""

    def values(measured: Measured) -> list[float]:
        if measured.peers is None:
            return []
        others = [name for name in measured.peers.subjects if name != OURS and part in name]
        rivals = [measured.peers.values(name, what) for name in others]
        found: list[float] = []
        for number, rate in measured.peers.values(OURS, what).items():
            rates = [rival[number] for rival in rivals if number in rival]
            found += [rate / max(rates)] if rates else []
        return found

    return values


def ratio(one: tuple[str, str], other: tuple[str, str]) -> Callable[[Measured], list[float]]:
    """One of our layers as a multiple of another, round by round."""
    return lambda measured: measured.layers.ratios(one, other) if measured.layers else []


def noted(fact: str, subject: str = SERVICE) -> Callable[[Measured], list[float]]:
    """A fact that was noted of our service."""
    return lambda measured: measured.layers.subjects.get(subject, {}).get(fact, []) if measured.layers else []


def cpu_microseconds(layer: tuple[str, str]) -> Callable[[Measured], list[float]]:
    """CPU time of a text in a layer, round by round."""

    def values(measured: Measured) -> list[float]:
        seconds = measured.layers.values(*layer, "cpu_s_per_1000") if measured.layers else {}
        return [1000 * value for value in seconds.values()]

    return values


def product_share(measured: Measured) -> list[float]:
    """Operations a second on the encoder's matrices over those of the large product, on one thread, round by round."""
    layers = measured.layers
    if layers is None or "operations_per_text" not in layers.facts:
        return []
    peak = layers.subjects[PRODUCT]["operations_per_s"]
    rates = layers.values(PACKED, THREAD)
    return [layers.facts["operations_per_text"] * rate / peak[number] for number, rate in rates.items()]


def json_share(measured: Measured) -> list[float]:
    """What of a vector's CPU time is saved by base64, round by round."""
    if measured.layers is None:
        return []
    json, base64 = (
        measured.layers.values(SERVICE, f"{path}, {SINGLE.name}", "cpu_s_per_1000") for path in (EMBED, BASE64)
    )
    return [1 - base64[number] / json[number] for number in sorted(json.keys() & base64.keys())]


def resident(fact: str) -> Callable[[Measured], list[float]]:
    """Megabytes resident as they were last noted under a name in the long run."""
    return lambda measured: measured.memory.subjects[SERVICE].get(fact, [])[-1:] if measured.memory else []


TARGETS = (
    Target("one text a request, 16 connections: times the best peer", 4, against(SINGLE.name)),
    Target("one text a request, 16 connections: times the best of infinity", 6.5, against(SINGLE.name, INFINITY)),
    Target("one text a request, 1 connection: times the best peer", 2.2, against(ONE.name)),
    Target("lists of 32, 4 connections: times the best peer", 5.5, against(LISTS.name)),
    Target("HTTP of the raw engine, single texts, 16 connections", 0.8, ratio((SERVICE, SINGLE.name), (BOTH, THREADS))),
    Target("HTTP of the raw engine, lists of 32", 0.95, ratio((SERVICE, LISTS.name), (BOTH, THREADS))),
    Target("engine: times the stock dynamic int8 full graph", 1.5, ratio((PACKED, THREADS), (STOCK, THREADS))),
    Target("operations on the encoder's matrices, of one large int8 product's", 0.6, product_share),
    Target("2 threads: times 1", 1.9, ratio((BOTH, THREADS), (BOTH, THREAD))),
    Target(
        "time under the interpreter lock a text",
        80,
        noted(f"lock_us_{SINGLE.name}"),
        at_least=False,
        unit=" microseconds",
    ),
    Target(
        "the same bounded from above: CPU time of all but the run",
        80,
        cpu_microseconds((NO_RUN, SINGLE.name)),
        at_least=False,
        unit=" microseconds",
    ),
    Target(
        "resident as the last of 100,000 texts of up to 512 tokens run",
        220,
        resident("resident_mb"),
        at_least=False,
        unit=" MB",
    ),
    Target("resident after them, at rest", 220, resident("resident_mb_at_rest"), at_least=False, unit=" MB"),
    Target("ready after exec", 1.0, noted("ready_s"), at_least=False, unit=" s"),
    Target(
        "/embed?pool=mean: times the time of /classify",
        1.6,
        ratio((SERVICE, SINGLE.name), (SERVICE, f"{EMBED}, {SINGLE.name}")),
        at_least=False,
    ),
    Target("JSON in a 384-vector's CPU time, as what base64 saves", 0.5, json_share, at_least=False),
)
