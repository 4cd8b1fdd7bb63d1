"""All servers side by side, in turn, on the same texts and weights: `make bench-peers`, 20 minutes at most.

Writes bench/results/peers.json and what docs/performance.md shows of it. What is measured so far is in
build/bench/peers.json after every server. A server that cannot be installed, started or asked is said so in the table.
"""

from __future__ import annotations

import random
import re
import signal
import sys
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from bench import environments, report, texts, wrk
from bench.environments import BUILD, ROOT, WEIGHTS, InstallError
from bench.load import Bodies, measure, run
from bench.machine import facts
from bench.peers import (
    Peer,
    Place,
    bentoml_onnxruntime,
    fastapi_onnxruntime,
    fastapi_torch,
    infinity,
    litserve_onnxruntime,
    ours,
    tei,
)
from bench.processes import Server, ServerError, post, running
from bench.results import FOLDER, Results
from bench.scenarios import SCENARIOS, SINGLE, Scenario

PEERS = (
    ours.PEER,
    fastapi_torch.PEER,
    fastapi_onnxruntime.PEER,
    *infinity.PEERS,
    litserve_onnxruntime.PEER,
    bentoml_onnxruntime.PEER,
    tei.PEER,
)
WARM_SECONDS = 2
ALIKE_TEXTS = 96
LIST = 32
PARTIAL = BUILD / "peers.json"
FAILURES = (ServerError, wrk.LoadError, OSError, ValueError, KeyError, IndexError, TypeError)
"""What a peer can do wrong: all of it ends that peer's turn and nobody else's."""


def main(
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            file_okay=False,
            help="Folder of the BertForSequenceClassification that the model was made of; unset: random values.",
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds, each in an order of its own.")] = 3,
    seconds: Annotated[int, typer.Option(min=1, help="Seconds of each load.")] = 6,
    only: Annotated[list[str] | None, typer.Option(help="Servers whose names contain this; may be repeated.")] = None,
    out: Annotated[Path, typer.Option(help="Results to write.")] = FOLDER / "peers.json",
) -> None:
    """Measure, and write the results and the report."""
    wrk.check()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    chosen = [peer for peer in PEERS if not only or any(word in peer.name for word in only)]
    results = Results(facts() | {"rounds": rounds, "seconds": seconds, "texts": described()})
    try:
        results.facts |= environments.weights(checkpoint)
    except InstallError as error:
        typer.echo(f"the peers' model cannot be made: {error}", err=True)
        raise typer.Exit(1) from None
    comparison = Comparison(results, seconds)
    able = [peer for peer in chosen if comparison.prepare(peer)]
    for number in range(rounds):
        random.Random(number).shuffle(able)
        able = [peer for peer in able if comparison.turn(peer, number)]
        results.save(PARTIAL)
    if checkpoint:
        comparison.note_agreement()
    results.save(out)
    if out.parent == FOLDER:
        report.write()


def described() -> dict[str, dict[str, float]]:
    """How many texts each list has, and their tokens on average."""
    counts = {name: texts.tokens(texts.read(name)) for name in ("short", "mixed")}
    return {name: {"texts": len(found), "mean_tokens": sum(found) / len(found)} for name, found in counts.items()}


class Comparison:
    """Servers measured in turn, each failure noted with the server whose it is."""

    def __init__(self, results: Results, seconds: float) -> None:
        self._results = results
        self._seconds = seconds
        self._labels: dict[str, list[str]] = {}

    def prepare(self, peer: Peer) -> bool:
        """Install a server. False if that cannot be done."""
        try:
            environments.prepare(peer)
            self._results.subject(peer.name)["versions"] = environments.versions(peer)
        except (InstallError, OSError) as error:
            self._fail(peer, f"not installed: {error}")
            return False
        return True

    def turn(self, peer: Peer, number: int) -> bool:
        """Start a server, warm it, ask it in every way, stop it. False if it does not start or answer."""
        name = peer.name
        bodies = Bodies(BUILD / "bodies" / _slug(peer), peer.body)
        try:
            with serve(peer) as server:
                self._results.note(name, "ready_s", server.ready_s)
                self._results.note(name, "resident_mb_ready", server.memory_mb())
                measure(server, peer.path, bodies, SINGLE, WARM_SECONDS)
                self._labels[name] = ask(peer, server.url, texts.read("short")[:ALIKE_TEXTS])
                for scenario in SCENARIOS:
                    self._load(peer, number, server, bodies, scenario)
                self._results.note(name, "resident_mb", server.memory_mb())
                self._results.note(name, "peak_mb", server.memory_mb("VmHWM"))
        except FAILURES as error:
            self._fail(peer, str(error) or type(error).__name__)
            return False
        return True

    def note_agreement(self) -> None:
        """Note on how many of the same texts each server has the label that ours has."""
        reference = self._labels.get(ours.NAME, [])
        for name, labels in self._labels.items():
            same = [one == other for one, other in zip(labels, reference, strict=False)]
            if same:
                self._results.subject(name)["agreement"] = sum(same) / len(same)

    def _load(self, peer: Peer, number: int, server: Server, bodies: Bodies, scenario: Scenario) -> None:
        """One scenario; after a failure of it the next one is tried."""
        try:
            figures = measure(server, peer.path, bodies, scenario, self._seconds)
        except FAILURES as error:
            self._results.subject(peer.name).setdefault("failures", {})[scenario.name] = str(error)
            typer.echo(f"{number + 1} {peer.name}, {scenario.name}: {error}")
            return
        self._results.runs.append(run(number, peer.name, scenario.name, figures))
        typer.echo(f"{number + 1} {peer.name:42} {scenario.name:30} {figures['texts_per_s']:8.1f} texts/s")

    def _fail(self, peer: Peer, reason: str) -> None:
        self._results.subject(peer.name)["failed"] = reason
        typer.echo(f"{peer.name}: {reason}")


def serve(peer: Peer) -> AbstractContextManager[Server]:
    """The running server of a peer, in the checkpoint's folder."""
    place = partial(Place, environments.programs(peer), WEIGHTS)
    return running(
        lambda port: peer.command(place(port)),
        partial(_answers, peer),
        BUILD / "logs" / f"{_slug(peer)}.log",
        folder=WEIGHTS,
        environ={"PYTHONPATH": str(ROOT), **peer.environ},
    )


def ask(peer: Peer, url: str, asked: list[str]) -> list[str]:
    """The labels of texts, sent in lists. Raises ValueError if one is missing."""
    found: list[str] = []
    for start in range(0, len(asked), LIST):
        found += peer.labels(post(url + peer.path, peer.body(asked[start : start + LIST])))
    if len(found) != len(asked):
        raise ValueError(f"{len(found)} labels for {len(asked)} texts")
    return found


def _answers(peer: Peer, url: str) -> bool:
    try:
        return len(ask(peer, url, ["What a lovely day!"])) == 1
    except OSError:
        return False


def _slug(peer: Peer) -> str:
    return re.sub(r"\W+", "-", peer.name)


if __name__ == "__main__":
    typer.run(main)
