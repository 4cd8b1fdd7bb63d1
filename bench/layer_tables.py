"""What each layer costs and how it grows, as Markdown."""

from __future__ import annotations

from collections.abc import Callable

from bench.peer_tables import circumstances, failures, machine, table
from bench.results import Results, spread
from bench.scenarios import (
    BASE64,
    BOTH,
    CONNECTIONS,
    EMBED,
    ENGINE,
    HTTP,
    LENGTHS,
    LISTS,
    MANY,
    MEAN,
    NO_RUN,
    ONE,
    ONE_WORKER,
    PACKED,
    PRODUCT,
    SCENARIOS,
    SERVICE,
    SHARED,
    SINGLE,
    SIZES,
    STOCK,
    THREAD,
    THREADS,
    TOKENIZER,
)

IN_PROCESS = {
    "tokenizer, 1 thread": (TOKENIZER, THREAD),
    "engine, 1 thread": (ENGINE, THREAD),
    "engine, 2 threads": (ENGINE, THREADS),
    "engine, texts sharing runs, 1 thread": (PACKED, THREAD),
    "engine, texts sharing runs, 2 threads": (PACKED, THREADS),
    "engine, 1 text at a time on 2 threads": (SHARED, THREAD),
    "engine, mean of all tokens, 1 thread": (MEAN, THREAD),
    "tokenizer + engine, sharing runs, 1 thread": (BOTH, THREAD),
    "tokenizer + engine, sharing runs, 2 threads": (BOTH, THREADS),
    "stock dynamic int8 full graph, 1 thread": (STOCK, THREAD),
    "stock dynamic int8 full graph, 2 threads": (STOCK, THREADS),
}
OVER_HTTP = {
    **{f"service, {scenario.name}": (SERVICE, scenario.name) for scenario in SCENARIOS},
    f"service with 1 worker, {SINGLE.name}": (ONE_WORKER, SINGLE.name),
    **{f"HTTP alone, {scenario.name}": (HTTP, scenario.name) for scenario in (SINGLE, LISTS)},
    **{f"all but the run, {scenario.name}": (NO_RUN, scenario.name) for scenario in (SINGLE, LISTS)},
    **{
        f"`{path}`, {scenario.name}": (SERVICE, f"{path}, {scenario.name}")
        for path in (EMBED, BASE64)
        for scenario in (SINGLE, LISTS)
    },
}


def rates(layers: Results) -> str:
    """Texts a second and CPU time of each layer."""
    rows = [
        [
            name,
            _rate(layers, *key),
            _number(layers, *key, "tokens_per_s", 1),
            _number(layers, *key, "cpu_s_per_1000", 1000),
        ]
        for name, key in {**IN_PROCESS, **OVER_HTTP}.items()
    ]
    shown = table(["layer", "texts/s", "tokens/s", "CPU, microseconds a text"], rows)
    return "\n".join([shown, *(f"\n{line}" for line in failures(layers))])


def lengths(layers: Results) -> str:
    """Milliseconds of one run by tokens."""
    rows: list[list[str]] = []
    for subject in (ENGINE, SHARED, STOCK):
        facts = layers.subjects.get(subject, {})
        rows.append([f"{subject}, ms", *(spread(facts.get(f"ms_{n}_tokens", [])[:], "{:.2f}".format) for n in LENGTHS)])
    return table(["tokens", *(str(length) for length in LENGTHS)], rows)


def connections(layers: Results) -> str:
    """Texts a second and latency by connections."""
    singles = sorted((ONE, SINGLE, MANY, *CONNECTIONS), key=lambda scenario: scenario.connections)
    rows = [
        [str(scenario.connections), _rate(layers, SERVICE, scenario.name)]
        + [_number(layers, SERVICE, scenario.name, field, 1, 1) for field in ("p50_ms", "p95_ms", "p99_ms")]
        for scenario in singles
    ]
    return table(["connections", "texts/s", "p50 ms", "p95 ms", "p99 ms"], rows, right=0)


def sizes(layers: Results) -> str:
    """Texts a second by size of the list."""
    lists = sorted((*SIZES, LISTS), key=lambda scenario: scenario.size)
    rows = [
        [str(one.size), _rate(layers, SERVICE, one.name), _number(layers, SERVICE, one.name, "p50_ms", 1, 1)]
        for one in lists
    ]
    return table(["texts in a request", "texts/s, 4 connections", "p50 ms"], rows, right=0)


def process(layers: Results) -> str:
    """Start, memory and the interpreter lock."""
    facts = layers.subjects.get(SERVICE, {})
    lines = {
        "from exec to ready": ("ready_s", "{:.2f} s"),
        "resident when ready": ("resident_mb_ready", "{:.0f} MB"),
        "peak resident memory under these loads": ("peak_mb", "{:.0f} MB"),
        "under the interpreter lock, single texts": (f"lock_us_{SINGLE.name}", "{:.0f} microseconds a text"),
        "under the interpreter lock, lists of 32": (f"lock_us_{LISTS.name}", "{:.0f} microseconds a text"),
    }
    rows = [[name, spread(facts.get(fact, []), form.format)] for name, (fact, form) in lines.items()]
    rows.append(["one large int8 product on one core", spread(_peak(layers), "{:.0f} G operations/s".format)])
    return table(["process", "measured"], rows, right=0)


def memory(results: Results) -> str:
    """Resident memory as texts are answered."""
    facts = results.subjects[SERVICE]
    points = list(zip(facts["texts"], facts["resident_mb"], strict=True))
    kept = points[:: max(1, len(points) // 8)]
    kept += [] if kept[-1] == points[-1] else [points[-1]]
    rows = [["0", f"{facts['resident_mb_ready'][0]:.0f}"], *([f"{texts:,.0f}", f"{mb:.0f}"] for texts, mb in kept)]
    shown = table(["texts answered", "resident MB"], rows, right=0)
    rest = f"{facts['resident_mb_at_rest'][0]:.0f} MB at rest, {results.facts['rest_seconds']:.0f} s after the last"
    return f"{circumstances(results)}\n\n{shown}\n\nAt most: {facts['peak_mb'][0]:.0f} MB; {rest}."


def variants(results: Results) -> str:
    """The time of each shape of the graph, as a multiple of that of the one that is made."""
    names: list[str] = results.facts["variants"]
    whats = list(dict.fromkeys(run["what"] for run in results.runs))
    rows = [
        [name, *(spread(results.ratios((names[0], what), (name, what)), "{:.2f}".format) for what in whats)]
        for name in names
    ]
    lines = [*machine(results), f"{results.facts['rounds']} rounds"]
    return "\n".join(f"- {line}" for line in lines) + f"\n\n{table(['the graph', *whats], rows)}"


def _peak(layers: Results) -> list[float]:
    return [value / 1e9 for value in layers.subjects.get(PRODUCT, {}).get("operations_per_s", [])]


def _rate(layers: Results, subject: str, what: str) -> str:
    return spread(list(layers.values(subject, what).values()), "{:.0f}".format)


def _number(layers: Results, subject: str, what: str, field: str, factor: float, digits: int = 0) -> str:
    median = layers.median(subject, what, field)
    return "-" if median is None else f"{factor * median:.{digits}f}"


BLOCKS: dict[str, Callable[[Results], str]] = {
    "layers-circumstances": circumstances,
    "layers": rates,
    "lengths": lengths,
    "connections": connections,
    "sizes": sizes,
    "process": process,
}
