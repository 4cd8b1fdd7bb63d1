"""The study's pictures, as SVG, from its results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from models.study.attention import TARGETS
from models.study.heads import HEADS
from models.study.record import Row, read

SETS = {"sst2": "SST-2 dev", "tweets": "tweets dev", "trees": "treebank dev"}
COLOURS = {"cls": "#1f77b4", "mean": "#d62728"}
ATTENTION = {"cls": "#1f77b4", "sep": "#c7c7c7", "opinion": "#2ca02c", "other": "#ffbb78"}


def draw(folder: Path) -> None:
    """Draw every part whose results are there."""
    mpl.rcParams |= {"svg.hashsalt": "study", "svg.fonttype": "none"}
    for name, picture in {"heads": _heads, "probes": _probes, "length": _length, "attention": _attention}.items():
        if (folder / f"{name}.json").exists():
            figure = picture(*read(folder / f"{name}.json"))
            figure.savefig(folder / f"{name}.svg", metadata={"Date": None})


def _heads(settings: Row, rows: Sequence[Row]) -> Figure:
    """Each run a dot, each head's mean a line."""
    figure = Figure(figsize=(9, 3), layout="constrained")
    names = [name for name in HEADS if any(row["head"] == name for row in rows)]
    for axes, (key, title) in zip(_panels(figure, 1, len(SETS)), SETS.items(), strict=True):
        for place, name in enumerate(names):
            values = [row[key] for row in rows if row["head"] == name]
            axes.plot(values, [place] * len(values), "o", color="#1f77b4", alpha=0.6)
            axes.plot([np.mean(values)] * 2, [place - 0.3, place + 0.3], color="black")
        axes.set(title=title, xlabel="%")
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.label_outer()
    return figure


def _probes(settings: Row, rows: Sequence[Row]) -> Figure:
    """Accuracy by layer, a line for each encoder and pooling."""
    figure = Figure(figsize=(9, 3), layout="constrained")
    panels = _panels(figure, 1, len(SETS))
    for axes, (key, title) in zip(panels, SETS.items(), strict=True):
        for name, style in (("start", ":"), ("fine-tuned", "-")):
            for pool, colour in COLOURS.items():
                line = [(row["layer"], row[key]) for row in rows if (row["encoder"], row["pool"]) == (name, pool)]
                axes.plot(*zip(*line, strict=True), style, color=colour, marker=".", label=f"{name}, {pool}")
        axes.set(title=title, xlabel="layer", ylabel="%" if axes is panels[0] else "")
    panels[-1].legend(fontsize="small")
    return figure


def _length(settings: Row, rows: Sequence[Row]) -> Figure:
    """What is left of an opinion by the number of neutral sentences around it, averaged over places and seeds."""
    figure = Figure(figsize=(9, 3), layout="constrained")
    panels = _panels(figure, 1, 3)
    counts = settings["counts"]
    for axes, (key, title) in zip(
        panels, (("label", "label kept"), ("side", "side kept"), ("cosine", "cosine to the opinion alone")), strict=True
    ):
        for model, style in (("cls", "-"), ("mean", "-"), ("served", "--")):
            of_model = [row for row in rows if row["measure"] == "dilution" and row["model"] == model]
            pools = ("cls", "mean") if (key, model) == ("cosine", "served") else (model,)
            for pool in pools:
                values = [
                    np.mean(
                        [row[key][pool] if key == "cosine" else row[key] for row in of_model if row["sentences"] == n]
                    )
                    for n in counts
                ]
                label = f"served, {pool}" if model == "served" and len(pools) > 1 else model
                axes.plot(range(len(counts)), values, style, marker=".", color=COLOURS.get(pool, "black"), label=label)
        axes.set(title=title, xlabel="neutral sentences", ylim=(0, 1.05))
        axes.set_xticks(range(len(counts)), [str(n) for n in counts])
        axes.legend(fontsize="small")
    return figure


def _attention(settings: Row, rows: Sequence[Row]) -> Figure:
    """A bar for each layer of each sentence, start above and fine-tuned below."""
    sentences = settings["sentences"]
    figure = Figure(figsize=(2.1 * len(sentences), 4.6), layout="constrained")
    panels = np.reshape(_panels(figure, 2, len(sentences)), (2, -1))
    for across, name in zip(panels, ("start", "fine-tuned"), strict=True):
        for number, axes in enumerate(across):
            found = [row for row in rows if (row["encoder"], row["sentence"]) == (name, number)]
            bottom = np.zeros(len(found))
            for target in TARGETS:
                heights = np.array([row[target] for row in found])
                axes.bar(range(1, len(found) + 1), heights, bottom=bottom, color=ATTENTION[target], label=target)
                bottom += heights
            axes.set(ylim=(0, 1), ylabel=name if number == 0 else "", xlabel="layer" if name != "start" else "")
            if name == "start":
                axes.set_title(_wrapped(sentences[number]), fontsize="x-small")
            axes.label_outer()
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=len(TARGETS))
    return figure


def _wrapped(sentence: str) -> str:
    import textwrap

    return textwrap.fill(sentence.replace(" .", ".").replace(" ,", ","), 24)


def _panels(figure: Figure, down: int, across: int) -> list[Any]:
    return [figure.add_subplot(down, across, number + 1) for number in range(down * across)]
