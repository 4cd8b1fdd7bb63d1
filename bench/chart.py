"""The comparison as a picture: texts a second of every server, by kind of load."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from bench.peers.ours import NAME as OURS
from bench.results import Results
from bench.scenarios import LISTS, MANY, ONE, SINGLE

WHATS = [scenario.name for scenario in (ONE, SINGLE, MANY, LISTS)]


def draw(peers: Results, source: Path, out: Path) -> None:
    """Write an SVG of bars, medians over the rounds with the range as a line. It says which results it shows."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams["svg.hashsalt"] = "peers"
    names = [name for name in peers.subjects if any(peers.median(name, what) for what in WHATS)]
    names.sort(key=lambda name: peers.median(name, WHATS[1]) or 0)
    figure = Figure(figsize=(9, 1 + 0.28 * len(names) * 2), layout="constrained")
    axes: Any = figure.subplots(2, 2, sharey=True)
    for place, what in zip(axes.flat, WHATS, strict=True):
        place.set_title(what, fontsize=9)
        for row, name in enumerate(names):
            values = list(peers.values(name, what).values())
            if values:
                median = peers.median(name, what) or 0
                place.barh(row, median, color="#1f6f4a" if name == OURS else "#b8bfc4")
                place.plot([min(values), max(values)], [row, row], color="black", linewidth=1)
                place.text(max(values), row, f" {median:.0f}", va="center", fontsize=7)
        place.set_yticks(range(len(names)), names, fontsize=8)
        place.margins(x=0.12)
        place.tick_params(axis="x", labelsize=7)
    figure.supxlabel("texts a second", fontsize=9)
    figure.savefig(out, metadata={"Date": None, "Description": digest(source)})


def digest(source: Path) -> str:
    """What stands in a picture for the results it was made of."""
    return f"made of {source.name}, SHA-256 {hashlib.sha256(source.read_bytes()).hexdigest()}"
