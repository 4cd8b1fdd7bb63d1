"""The comparison as Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bench.peers.ours import NAME as OURS
from bench.results import Results, spread
from bench.scenarios import LISTS, MANY, MIXED, ONE, SINGLE

WHATS = {"1": ONE.name, "16": SINGLE.name, "64": MANY.name, "4 x 32": LISTS.name, "16, mixed lengths": MIXED.name}


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], right: int = 1) -> str:
    """A Markdown table; columns from `right` on are aligned right, none if that is 0."""
    rules = ["---" if not right or column < right else "---:" for column in range(len(heads))]
    return "\n".join(f"| {' | '.join(row)} |" for row in (heads, rules, *rows))


def rates(peers: Results) -> str:
    """Texts a second, and below the table who is not in it."""
    rows = [
        [shown(peers, name), *(spread(_values(peers, name, what), "{:.0f}".format) for what in WHATS.values())]
        for name in peers.subjects
    ]
    return "\n".join([table(["texts/s", *WHATS], rows), *(f"\n{line}" for line in failures(peers))])


def ratios(peers: Results) -> str:
    """How many times as many texts a second ours answers."""
    rows = [
        [
            shown(peers, name),
            *(spread(peers.ratios((OURS, what), (name, what)), "{:.1f}".format) for what in WHATS.values()),
        ]
        for name in peers.subjects
        if name != OURS
    ]
    return table(["ours, times", *WHATS], rows)


def costs(peers: Results) -> str:
    """Latency, CPU time, memory and start."""
    fields = ("p50_ms", "p95_ms", "p99_ms", "cpu_s_per_1000", "tokens_per_s")
    forms = ("{:.1f}", "{:.1f}", "{:.1f}", "{:.2f}", "{:.0f}")
    rows: list[list[str]] = []
    for name, facts in peers.subjects.items():
        medians = [peers.median(name, SINGLE.name, field) for field in fields]
        cells = ["-" if one is None else form.format(one) for one, form in zip(medians, forms, strict=True)]
        cells += [
            spread(facts.get(fact, []), form)
            for fact, form in (("peak_mb", "{:.0f}".format), ("ready_s", "{:.1f}".format))
        ]
        agreement = facts.get("agreement")
        rows.append([shown(peers, name), *cells, "-" if agreement is None else f"{100 * agreement:.0f} %"])
    heads = ["16 connections", "p50 ms", "p95 ms", "p99 ms", "CPU s/1,000 texts", "tokens/s", "peak MB"]
    return table([*heads, "first answer, s", "labels as ours"], rows)


def circumstances(results: Results) -> str:
    """The machine, the versions and the way it was measured, as a list."""
    facts = results.facts
    lines = [
        *machine(results),
        f"weights: {facts.get('weights', 'no stock graph, ' + facts.get('stock_failed', 'none asked for'))}",
        f"{facts.get('rounds', 1)} rounds, {facts['seconds']} s a load; "
        + "; ".join(
            f"{name}: {one['texts']} texts of {one['mean_tokens']:.1f} tokens on average"
            for name, one in facts["texts"].items()
        ),
    ]
    others = [100 * one["others_share"] for one in results.runs if "others_share" in one]
    if others:
        lines.append(
            f"other processes used {statistics.median(others):.0f} % of the cores during the middle one of the loads, "
            f"{max(others):.0f} % at most"
        )
    return "\n".join(f"- {line}" for line in lines)


def machine(results: Results) -> list[str]:
    """The machine and the versions."""
    facts = results.facts
    return [
        f"{facts['cores']} cores of {facts['cpu']} ({', '.join(facts['flags'])}), {facts['memory_gb']} GB, "
        f"{facts['system']}; load before the start {facts['load_before']}",
        f"{facts['made']}, commit `{facts['commit']}`, Python {facts['python']}, {_listed(facts['versions'])}",
    ]


def versions(peers: Results) -> str:
    """What each server is made of."""
    made = {name: facts.get("versions") for name, facts in peers.subjects.items()}
    return circumstances(peers) + "".join(f"\n- {name}: {_listed(one)}" for name, one in made.items() if one)


def shown(peers: Results, name: str) -> str:
    """A server's name, marked if it is not in the table in full."""
    facts = peers.subjects[name]
    marked = f"{name} *" if "failed" in facts or "failures" in facts else name
    return f"**{marked}**" if name == OURS else marked


def failures(results: Results) -> list[str]:
    """A line for each subject that was not measured, in all or in part."""
    found: list[str] = []
    for name, facts in results.subjects.items():
        if "failed" in facts:
            found.append(f"\\* {name}: {_plain(facts['failed'])}")
        found += [f"\\* {name}, {what}: {_plain(why)}" for what, why in facts.get("failures", {}).items()]
    return found


def _plain(reason: str) -> str:
    return " ".join(reason.replace("|", "/").replace("<", "(").replace(">", ")").split())


def _values(peers: Results, name: str, what: str) -> list[float]:
    return list(peers.values(name, what).values())


def _listed(found: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {version}" for name, version in found.items())


BLOCKS: dict[str, Callable[[Results], str]] = {
    "peers-circumstances": versions,
    "peers": rates,
    "peers-ratios": ratios,
    "peers-costs": costs,
}
