"""Ways to make the graphs small and fast, each measured; the fastest within the bounds is written."""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from models import calibration, data, evaluation, storage
from models.checkpoint import Bert
from models.evaluation import Answers, DevSets, Served
from models.export import CLASSIFY, EMBED, FLOAT32, PACKED
from models.graph import Product, classify_graph, embed_graph
from models.manifest import BOUNDS, broken, checksums, draft, write
from models.packed import packed_graph
from models.products import Blocks8Bit, DynamicInt8, Either, StaticInt8, float32
from service.artifact import Artifact, Quantization
from service.engine import Engine, Ids, session
from service.errors import InputError
from service.tokenizer import Tokenizer

CALIBRATION_FILES = (
    "tweets_train.tsv",
    "sst_trees_train.txt",
    "rated_editorial_snippets_train.tsv",
    "product_reviews_train.tsv",
)
CALIBRATION_TEXTS = 1200
TOKENWISE_TEXTS = 300
SPLITTING_TEXTS = 100
COPIES = 32
LENGTHS = (8, 25, 64, 200, 512)
ROUNDS = 20
LONG, LONG_ROUNDS = 200, 8
ALIKE = 1.03
EXACT = "float32"
TABLE = "quantization"


Row = dict[str, Any]
Way = tuple[Bert, Product]


def ways(bert: Bert, texts: Sequence[Ids]) -> dict[str, Way]:
    """Every way to store and multiply, by the name it has in tables and manifests; int8 is calibrated on the texts."""
    split = calibration.split_channels(bert, texts[:SPLITTING_TEXTS], COPIES)
    seen = calibration.calibrate(split, texts, TOKENWISE_TEXTS)
    fitted = calibration.int8(seen, fitted=True)
    lean = calibration.int8(seen, fitted=True, even=calibration.EVEN + calibration.TOKENS)
    return {
        EXACT: (bert, float32),
        "int8-dynamic": (split, DynamicInt8(calibration.int8(seen, fitted=False))),
        "int8-dynamic-7bit": (split, DynamicInt8(calibration.int8(seen, fitted=False, bits=7))),
        "int8-dynamic-fitted": (split, DynamicInt8(fitted)),
        "int8-dynamic-fitted-lean": (split, DynamicInt8(lean)),
        "int8-static-fitted": (split, StaticInt8(fitted)),
        "int8-dynamic-fitted-down-blocks32": (split, Either((".down",), Blocks8Bit(32), DynamicInt8(fitted))),
        "blocks128": (bert, Blocks8Bit(128)),
        "blocks32": (bert, Blocks8Bit(32)),
    }


def quantize(
    out: Path,
    folder: Path,
    classify: str | None = None,
    embed: str | None = None,
    bounds: Mapping[str, float] = BOUNDS,
    seed: int = 0,
) -> None:
    """Measure every way on the dev sets of a data folder and write the fastest within the bounds to `out`, classify and
    embed chosen apart unless they are named. The measurements go to `out/fp32/quantization.json` and `.md`.

    Raises ValueError if no way keeps within the bounds, or a named one does not exist.
    """
    console = Console(stderr=True)
    work = out / FLOAT32
    bert = Bert.read(work)
    manifest = draft(out, bert)
    tokenizer = Tokenizer(out / "tokenizer.json", manifest.max_tokens, manifest.cleanup)
    sets = DevSets.read(folder, rated=False)
    console.print("calibrating")
    found = ways(bert, _calibration_texts(tokenizer, folder, seed))
    folders = {name: work / name for name in found}
    answers: dict[str, Answers] = {}
    for name, place in folders.items():
        console.print(f"answering the dev sets: {name}")
        _write(place, found[name], found[name], half_words=name != EXACT)
        answers[name] = evaluation.answer(Served(Engine(Artifact(place, manifest))), tokenizer, sets)
    times = {
        graph: _times({name: place / graph for name, place in folders.items()}, bert) for graph in (CLASSIFY, EMBED)
    }
    rows = {
        name: _row(answers[name], answers[EXACT], sets, {graph: times[graph][name] for graph in times})
        for name in found
    }
    _relate(rows)
    chosen = Quantization(
        classify=classify or choose(rows, "classify", bounds), embed=embed or choose(rows, "embed", bounds)
    )
    # A run's own scales would be found over all its texts.
    packed = isinstance(found[chosen.classify][1], StaticInt8)
    _write(out, found[chosen.classify], found[chosen.embed], half_words=True, packed=packed)
    graphs = manifest.graphs.model_copy(update={"packed": PACKED if packed else None})
    update = {
        "graphs": graphs,
        "quantization": chosen,
        "words": storage.words(out, graphs.files),
        "files": checksums(out, graphs),
        "bounds": dict(bounds),
    }
    write(out, manifest.model_copy(update=update))
    text = table(rows, chosen)
    (work / f"{TABLE}.json").write_text(
        json.dumps({"chosen": chosen.model_dump(), "ways": rows}, indent=1) + "\n", encoding="utf-8"
    )
    (work / f"{TABLE}.md").write_text(text, encoding="utf-8")
    for place in folders.values():
        shutil.rmtree(place)
    console.print(text, markup=False, soft_wrap=True)


def choose(rows: Mapping[str, Row], graph: str, bounds: Mapping[str, float]) -> str:
    """The way whose graph is the fastest within the bounds; of those as fast within 3 %, the most faithful.

    Raises ValueError if there is none.
    """
    allowed = [name for name in rows if name != EXACT and not broken(bounds, rows[name][graph])]
    if not allowed:
        raise ValueError(f"no way to quantize {graph} keeps within the bounds")
    fastest = min(rows[name][graph]["relative_time"] for name in allowed)
    closest = "agreement" if graph == "classify" else "cosine_mean"
    alike = [name for name in allowed if rows[name][graph]["relative_time"] <= ALIKE * fastest]
    return max(alike, key=lambda name: float(rows[name][graph][closest]))


def table(rows: Mapping[str, Row], chosen: Quantization) -> str:
    """Both graphs' measurements as Markdown, the chosen way in bold."""
    lengths = list(rows[EXACT]["classify"]["microseconds"])
    heads = {
        "classify": {"SST-2": "sst2", "trees": "trees", "tweets": "tweets", "labels as float32": "agreement"},
        "embed": {"STS-B": "stsb", "cosine to float32": "cosine_mean", "worst": "cosine_worst"},
    }
    lines: list[str] = []
    for graph, columns in heads.items():
        names = [graph, *columns, *(f"ms, {length} tokens" for length in lengths), "times float32"]
        lines += [f"| {' | '.join(names)} |", f"|---{'|---:' * (len(names) - 1)}|"]
        for name, row in rows.items():
            measured = row[graph]
            cells = [f"**{name}**" if name == getattr(chosen, graph) else name]
            cells += [f"{measured[c]:.5f}" if "cosine" in c else f"{100 * measured[c]:.2f}" for c in columns.values()]
            cells += [f"{value / 1000:.2f}" for value in measured["microseconds"].values()]
            lines.append(f"| {' | '.join(cells)} | {1 / measured['relative_time']:.2f} |")
        lines.append("")
    return "\n".join(lines)


def _calibration_texts(tokenizer: Tokenizer, folder: Path, seed: int) -> list[Ids]:
    """Token ids of training texts of every kind, in equal parts, in random order."""
    rng = random.Random(seed)
    texts: list[str] = []
    for file in CALIBRATION_FILES:
        whole = [example.text for example in data.load(folder / file) if example.whole]
        texts += rng.sample(whole, min(CALIBRATION_TEXTS // len(CALIBRATION_FILES), len(whole)))
    rng.shuffle(texts)
    found: list[Ids] = []
    for text in texts:
        with suppress(InputError):
            found.append(tokenizer.read(text).first().ids)
    return found


def _write(folder: Path, classify: Way, embed: Way, *, half_words: bool, packed: bool = False) -> None:
    graphs = {
        CLASSIFY: classify_graph(*classify, half_words=half_words),
        EMBED: embed_graph(*embed, half_words=half_words),
    }
    if packed:
        graphs[PACKED] = packed_graph(*classify, half_words=half_words)
    else:
        (folder / PACKED).unlink(missing_ok=True)
    storage.save(folder, graphs)


def _times(graphs: Mapping[str, Path], bert: Bert) -> dict[str, dict[int, float]]:
    """Microseconds a text by length for each graph: the best of interleaved rounds, so that other work on the machine
    weighs on all alike."""
    sessions = {name: session(path) for name, path in graphs.items()}
    best: dict[str, dict[int, float]] = {name: {} for name in graphs}
    for length in (length for length in LENGTHS if length <= len(bert.positions)):
        ids = np.random.default_rng(length).integers(0, len(bert.words), (1, length))
        feed = {"input_ids": ids}
        for _ in range(ROUNDS if length < LONG else LONG_ROUNDS):
            for name, graph in sessions.items():
                graph.run(None, feed)
                began = time.perf_counter()
                graph.run(None, feed)
                took = 1e6 * (time.perf_counter() - began)
                best[name][length] = min(took, best[name].get(length, took))
    return best


def _relate(rows: Mapping[str, Row]) -> None:
    """Add each way's time as a share of float32's: the geometric mean over the lengths."""
    for graph in ("classify", "embed"):
        exact = np.array(list(rows[EXACT][graph]["microseconds"].values()))
        for row in rows.values():
            ratios = np.array(list(row[graph]["microseconds"].values())) / exact
            row[graph]["relative_time"] = float(np.exp(np.log(ratios).mean()))


def _row(answers: Answers, exact: Answers, sets: DevSets, times: Mapping[str, dict[int, float]]) -> Row:
    ours, theirs = evaluation.scores(answers, sets), evaluation.scores(exact, sets)
    far = evaluation.fidelity(answers, exact)
    labelled = {name: ours[name] for name in evaluation.LABELLED}
    return {
        "classify": labelled
        | evaluation.points_lost(labelled, theirs)
        | {name: far[name] for name in ("agreement", "logit_difference")}
        | {"microseconds": times[CLASSIFY]},
        "embed": {"stsb": ours["stsb"]}
        | evaluation.points_lost({"stsb": ours["stsb"]}, theirs)
        | {name: far[name] for name in ("cosine_mean", "cosine_worst")}
        | {"microseconds": times[EMBED]},
    }
