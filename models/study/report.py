"""The tables of docs/cls-or-mean.md, from the results; the words around them are written by hand."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from models.study.record import Row, read

NAMES = {
    "cls": "`[CLS]`",
    "cls-pooler": "`[CLS]` through the pooler",
    "mean": "mean",
    "max": "max",
    "cls-mean": "`[CLS]` and mean, concatenated",
    "cls-last4": "`[CLS]` of the last four layers, concatenated",
    "attention": "attention pooling",
    "cls-only": "`[CLS]`, last layer for it alone",
    "cls-last4-only": "`[CLS]` of the last four layers, last layer for it alone",
}
SETS = ("sst2", "tweets", "trees")
BLOCK = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def write(document: Path, folder: Path) -> None:
    """Fill in every table of a document and draw the pictures."""
    from models.study.plots import draw

    draw(folder)
    document.write_text(filled(document.read_text(encoding="utf-8"), folder), encoding="utf-8")


def filled(text: str, folder: Path) -> str:
    """A document beside a folder of results, with their tables and pictures in its blocks between markers."""

    def table(match: re.Match[str]) -> str:
        part, render = TABLES[match[2]]
        path = folder / f"{part}.json"
        body = render(*read(path)) if path.exists() else "*Not measured yet.*"
        if match[2] in PICTURES and path.with_suffix(".svg").exists():
            body += f"\n\n![{PICTURES[match[2]]}]({folder.name}/{part}.svg)"
        return f"{match[1]}\n{body}\n\n{match[3]}"

    return BLOCK.sub(table, text)


def heads(settings: Row, rows: Sequence[Row]) -> str:
    """Mean and range over seeds, by head."""
    found = []
    for head in dict.fromkeys(row["head"] for row in rows):
        runs = [row for row in rows if row["head"] == head]
        cells = [_spread([run[one] for run in runs]) for one in SETS]
        everything = float(np.mean([run[one] for run in runs for one in SETS]))
        found.append([NAMES[head], str(len(runs)), *cells, f"{everything:.1f}"])
    return _table(["head", "runs", "SST-2", "tweets", "treebank", "mean of the three"], found)


def seeds(settings: Row, rows: Sequence[Row]) -> str:
    """What each head gains on [CLS] in the runs of the same seed, which saw the same texts in the same order."""
    base = {row["seed"]: row for row in rows if row["head"] == "cls"}
    found = []
    for head in dict.fromkeys(row["head"] for row in rows if row["head"] != "cls"):
        gains = [
            float(np.mean([row[one] - base[row["seed"]][one] for one in SETS]))
            for row in rows
            if row["head"] == head and row["seed"] in base
        ]
        found.append([NAMES[head], ", ".join(f"{gain:+.1f}" for gain in gains), f"{np.mean(gains):+.1f}"])
    return _table(["head", "points above `[CLS]`, by seed", "mean"], found)


def probes(settings: Row, rows: Sequence[Row]) -> str:
    """The last layer's probes."""
    last = max(row["layer"] for row in rows)
    found = [
        [row["encoder"], NAMES[row["pool"]], *(f"{row[one]:.1f}" for one in SETS), f"{row['penalty']:g}"]
        for row in rows
        if row["layer"] == last
    ]
    return _table(["encoder, frozen", "probe on", "SST-2", "tweets", "treebank", "penalty"], found)


def layers(settings: Row, rows: Sequence[Row]) -> str:
    """Each layer's probes on SST-2."""
    columns = list(dict.fromkeys((row["encoder"], row["pool"]) for row in rows))
    found = []
    for layer in sorted({row["layer"] for row in rows}):
        cells = {(row["encoder"], row["pool"]): f"{row['sst2']:.1f}" for row in rows if row["layer"] == layer}
        found.append([str(layer), *(cells[column] for column in columns)])
    return _table(["layer", *(f"{encoder}, {NAMES[pool]}" for encoder, pool in columns)], found)


def length(settings: Row, rows: Sequence[Row]) -> str:
    """Accuracy in three classes by number of words."""
    of_length = [row for row in rows if row["measure"] == "length"]
    models = list(dict.fromkeys(row["model"] for row in of_length))
    found = []
    for low, high in dict.fromkeys(tuple(row["words"]) for row in of_length):
        inside = [row for row in of_length if row["words"] == [low, high]]
        cells = [_spread([row["accuracy"] for row in inside if row["model"] == model]) for model in models]
        found.append([f"{low} to {high}" if high else f"{low} and more", str(inside[0]["texts"]), *cells])
    return _table(["words", "texts", *(_model(model) for model in models)], found)


def dilution(settings: Row, rows: Sequence[Row]) -> str:
    """What is left of an opinion, by the number of neutral sentences; means over places and seeds."""
    found = []
    for count in settings["counts"]:
        cells = [str(count)]
        for model in ("cls", "mean", "served"):
            some = [r for r in rows if (r["measure"], r["model"], r.get("sentences")) == ("dilution", model, count)]
            cells += [f"{100 * np.mean([row[key] for row in some]):.0f} %" for key in ("label", "side")]
            cells += [f"{np.mean([row['probability'] for row in some]):.2f}"]
            cells += [" / ".join(f"{np.mean([row['cosine'][pool] for row in some]):.2f}" for pool in some[0]["cosine"])]
        found.append(cells)
    heads = [f"{_model(m)}: {what}" for m in ("cls", "mean", "served") for what in ("label", "side", "P", "cosine")]
    return _table(["neutral sentences", *heads], found)


def places(settings: Row, rows: Sequence[Row]) -> str:
    """How often the label is kept by where the opinion stands, over all counts from 1."""
    some = [row for row in rows if row["measure"] == "dilution" and row["sentences"]]
    models = ("cls", "mean", "served")
    found = [
        [place]
        + [
            f"{100 * np.mean([r['label'] for r in some if (r['model'], r['place']) == (m, place)]):.0f} %"
            for m in models
        ]
        for place in dict.fromkeys(row["place"] for row in some)
    ]
    return _table(["the opinion stands", *(_model(model) for model in models)], found)


def cost(settings: Row, rows: Sequence[Row]) -> str:
    """Microseconds by length, and against [CLS] with the full last layer."""
    lengths = sorted({row["tokens"] for row in rows})
    base = {row["tokens"]: row for row in rows if row["pooling"] == "cls"}
    found = []
    for name in dict.fromkeys(row["pooling"] for row in rows):
        of = {row["tokens"]: row for row in rows if row["pooling"] == name}
        cells = [
            f"{of[n]['microseconds']:,.0f} ({of[n]['microseconds'] / base[n]['microseconds']:.2f})" for n in lengths
        ]
        found.append([NAMES[name], *cells])
    return _table(["vector", *(f"{n} tokens" for n in lengths)], found)


def flops(settings: Row, rows: Sequence[Row]) -> str:
    """Millions of operations by length, and what the pooling itself adds."""
    lengths = sorted({row["tokens"] for row in rows})
    base = {row["tokens"]: row["flops"] for row in rows if row["pooling"] == "cls"}
    found = []
    for name in dict.fromkeys(row["pooling"] for row in rows):
        of = {row["tokens"]: row["flops"] for row in rows if row["pooling"] == name}
        cells = [f"{of[n] / 1e6:,.0f} ({100 * (of[n] / base[n] - 1):+.3f} %)" for n in lengths]
        found.append([NAMES[name], *cells])
    return _table(["vector", *(f"{n} tokens" for n in lengths)], found)


def attention(settings: Row, rows: Sequence[Row]) -> str:
    """Each layer's shares, averaged over the sentences, and those that equal attention to every token would give."""
    targets = ("cls", "sep", "opinion", "other")
    found = []
    for encoder in dict.fromkeys(row["encoder"] for row in rows):
        of = [row for row in rows if row["encoder"] == encoder]
        for layer in sorted({row["layer"] for row in of}):
            cells = [f"{100 * np.mean([r[t] for r in of if r['layer'] == layer]):.0f} %" for t in targets]
            found.append([encoder, str(layer), *cells])
    first = [row for row in rows if row["layer"] == 1 and row["encoder"] == rows[0]["encoder"]]
    special = float(np.mean([1 / row["tokens"] for row in first]))
    words = float(np.mean([row["opinion_tokens"] / row["tokens"] for row in first]))
    even = [special, special, words, 1 - 2 * special - words]
    found.append(["equal attention", "", *(f"{100 * share:.0f} %" for share in even)])
    return _table(["encoder", "layer", "`[CLS]` itself", "`[SEP]`", "opinion words", "other words"], found)


TABLES: dict[str, tuple[str, Callable[[Row, Sequence[Row]], str]]] = {
    "heads": ("heads", heads),
    "seeds": ("heads", seeds),
    "probes": ("probes", probes),
    "layers": ("probes", layers),
    "length": ("length", length),
    "dilution": ("length", dilution),
    "places": ("length", places),
    "cost": ("cost", cost),
    "flops": ("cost", flops),
    "attention": ("attention", attention),
}

# Behind which table the part's picture stands, and what it shows.
PICTURES = {
    "seeds": "Each run of each head as a dot, their means as lines",
    "layers": "What probes of each layer get right",
    "places": "What is left of an opinion among neutral sentences",
    "attention": "Shares of the attention of [CLS], by layer and sentence, before and after fine-tuning",
}


def _model(model: str) -> str:
    return {"cls": "`[CLS]` head", "mean": "mean head"}.get(model, model)


def _spread(values: Sequence[float]) -> str:
    """The mean, with the lowest and the highest of several."""
    middle = f"{np.mean(values):.1f}"
    return middle if len(values) == 1 else f"{middle} ({min(values):.1f} to {max(values):.1f})"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    left = 2 if columns[0] == "encoder, frozen" else 1
    lines = [columns, ["---"] * left + ["---:"] * (len(columns) - left), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
