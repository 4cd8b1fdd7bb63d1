"""What each layer of this service costs, and how it grows: `make bench`, 8 minutes at most on 2 idle cores.

Writes bench/results/layers.json and what docs/performance.md shows of it. What is measured so far is in
build/bench/layers.json after every round.
"""

from __future__ import annotations

import json
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from bench import environments, http_layers, report, texts, wrk
from bench.compare import described
from bench.environments import BUILD, ROOT, WEIGHTS, InstallError
from bench.inprocess import LargeProduct, Ours, Pass, Stock, milliseconds, over
from bench.load import run
from bench.machine import facts
from bench.operations import Shape
from bench.results import FOLDER, Results
from bench.scenarios import BOTH, ENGINE, LENGTHS, MEAN, PACKED, PRODUCT, SHARED, STOCK, THREAD, THREADS, TOKENIZER

PARTIAL = BUILD / "layers.json"


def main(
    checkpoint: Annotated[
        Path | None, typer.Option(exists=True, file_okay=False, help="As for bench.compare; unset: random values.")
    ] = None,
    model: Annotated[Path, typer.Option(exists=True, file_okay=False, help="Our model.")] = ROOT
    / "models/sentiment-en",
    rounds: Annotated[int, typer.Option(min=1)] = 3,
    seconds: Annotated[int, typer.Option(min=1, help="Seconds of each load over HTTP.")] = 4,
    out: Annotated[Path, typer.Option(help="Results to write.")] = FOLDER / "layers.json",
) -> None:
    """Measure, and write the results and the report."""
    wrk.check()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    results = Results(facts() | {"rounds": rounds, "seconds": seconds, "texts": described()})
    try:
        results.facts |= environments.weights(checkpoint)
    except InstallError as error:
        results.facts["stock_failed"] = str(error)
        typer.echo(f"no stock graph to compare with: {error}")
    http = http_layers.Http(results, model, seconds)
    layers = Layers(results, model)
    http.starts()
    for number in range(rounds):
        layers.measure(number)
        http.measure(number)
        results.save(PARTIAL)
    http.interpreter_lock()
    results.save(out)
    if out.parent == FOLDER:
        report.write()
    if any("failures" in facts for facts in results.subjects.values()):
        raise typer.Exit(1)


class Layers:
    """The layers in this process, each over all of the short texts, in turn in every round."""

    def __init__(self, results: Results, model: Path) -> None:
        self._results = results
        self._ours = Ours(model)
        self._texts = texts.read("short")
        self._ids = [self._ours.tokenize(text) for text in self._texts]
        self._packs = self._ours.packs(self._ids)
        words = iter(self._texts)
        self._together = [[next(words) for _ in pack] for pack in self._packs]
        self._product = LargeProduct()
        self._stock = None
        if "stock_failed" not in results.facts:
            self._stock = Stock(WEIGHTS / "int8.onnx")
            shape = json.loads((WEIGHTS / "config.json").read_text(encoding="utf-8"))
            sizes = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size")
            tokens = sum(len(ids) for ids in self._ids) / len(self._ids)
            results.facts["operations_per_text"] = Shape(*(shape[size] for size in sizes)).classify(tokens)

    def measure(self, number: int) -> None:
        """One round."""
        engine, stock = self._ours.engine, self._stock
        self._results.note(PRODUCT, "operations_per_s", self._product.operations_per_s())
        for threads in (1, 2):
            self._note(number, ENGINE, threads, over(engine.classify, self._ids, threads))
            self._note(number, PACKED, threads, self._each(over(engine.classify_all, self._packs, threads)))
            if stock:
                self._note(number, STOCK, threads, over(stock.classify, self._ids, threads))
            self._note(number, BOTH, threads, self._each(over(self._ours.label, self._together, threads)))
        shared = partial(engine.classify, wide=True)
        self._note(number, SHARED, 1, over(shared, self._ids))
        self._note(number, MEAN, 1, over(engine.embed, self._ids))
        self._note(number, TOKENIZER, 1, over(self._ours.tokenize, self._texts))
        for length in LENGTHS:
            self._results.note(ENGINE, f"ms_{length}_tokens", milliseconds(engine.classify, length))
            self._results.note(SHARED, f"ms_{length}_tokens", milliseconds(shared, length))
            if stock:
                self._results.note(STOCK, f"ms_{length}_tokens", milliseconds(stock.classify, length))

    def _each(self, done: Pass) -> Pass:
        """A pass over texts that share runs, by texts."""
        texts = len(self._ids) / len(self._packs)
        return Pass(done.texts_per_s * texts, done.cpu_s_per_1000 / texts)

    def _note(self, number: int, subject: str, threads: int, done: Pass) -> None:
        what = THREADS if threads > 1 else THREAD
        rates = {"texts_per_s": round(done.texts_per_s, 2), "cpu_s_per_1000": round(done.cpu_s_per_1000, 4)}
        self._results.runs.append(run(number, subject, what, rates))
        typer.echo(f"{number + 1} {subject:42} {what:30} {done.texts_per_s:8.1f} texts/s")


if __name__ == "__main__":
    typer.run(main)
