"""This service over HTTP: whole, with one worker, and with a part of it left out."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from urllib.error import HTTPError

import typer

from bench.environments import BUILD, ROOT
from bench.load import Bodies, measure, run
from bench.peers import ours
from bench.processes import Server, answers, post, running
from bench.results import Results
from bench.scenarios import (
    BASE64,
    CLASSIFY,
    CONNECTIONS,
    EMBED,
    HTTP,
    LISTS,
    NO_RUN,
    ONE_WORKER,
    SCENARIOS,
    SERVICE,
    SINGLE,
    SIZES,
    Scenario,
)

GROWTH_SECONDS = 2
STARTS = 5
SAMPLES_PER_S = 250
SAMPLE_SECONDS = 8


class Http:
    """Loads on our own server."""

    def __init__(self, results: Results, model: Path, seconds: float) -> None:
        self._results = results
        self._model = model
        self._seconds = seconds
        self._bodies = Bodies(BUILD / "bodies" / "ours", ours.body)

    def starts(self) -> None:
        """Time from exec to ready, a few times."""
        for _ in range(STARTS):
            with self._service() as server:
                self._results.note(SERVICE, "ready_s", server.ready_s)
                self._results.note(SERVICE, "resident_mb_ready", server.memory_mb())

    def measure(self, number: int) -> None:
        """One round."""
        with self._service() as server:
            self._warm(server)
            for scenario in SCENARIOS:
                self._load(number, SERVICE, server, scenario, self._seconds)
            for path in (EMBED, BASE64):
                for scenario in (SINGLE, LISTS):
                    self._embed(number, server, scenario, path)
            for scenario in (*CONNECTIONS, *SIZES):
                self._load(number, SERVICE, server, scenario, GROWTH_SECONDS)
            self._results.note(SERVICE, "peak_mb", server.memory_mb("VmHWM"))
        with self._service("--workers", "1") as server:
            self._warm(server)
            self._load(number, ONE_WORKER, server, SINGLE, self._seconds)
        for subject, part in ((HTTP, "inference"), (NO_RUN, "run")):
            with self._stub(part) as server:
                self._warm(server)
                for scenario in (SINGLE, LISTS):
                    self._load(number, subject, server, scenario, self._seconds)

    def interpreter_lock(self) -> None:
        """Microseconds a text for which some thread holds the interpreter lock, by sampling with py-spy.

        Of samples taken at a steady rate while the service is under load, the share that finds a holder is the share of
        time that the lock is held; divided by the texts answered meanwhile, it is the time of one text.
        """
        program = shutil.which("py-spy", path=f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin")
        if not program:
            typer.echo("py-spy is not installed: the interpreter lock is not sampled")
            return
        with self._service() as server:
            self._warm(server)
            for scenario in (SINGLE, LISTS):
                try:
                    held = self._held(program, server, scenario)
                except (OSError, subprocess.SubprocessError) as error:
                    typer.echo(f"py-spy could not sample: {error}")
                    return
                self._results.note(SERVICE, f"lock_us_{scenario.name}", held)
                typer.echo(f"  interpreter lock, {scenario.name}: {held:.0f} microseconds a text")

    def _held(self, program: str, server: Server, scenario: Scenario) -> float:
        samples = BUILD / "lock.txt"
        options = ["--gil", "--format", "raw", "--rate", str(SAMPLES_PER_S), "--duration", str(SAMPLE_SECONDS)]
        command = [program, "record", *options, "--output", str(samples), "--pid", str(server.process.pid)]
        with ThreadPoolExecutor(1) as pool:
            # Longer than the samples are taken, which begins after the process's symbols are read.
            load = pool.submit(measure, server, CLASSIFY, self._bodies, scenario, SAMPLE_SECONDS + 5)
            time.sleep(2)
            subprocess.run(command, check=True, capture_output=True, timeout=10 * SAMPLE_SECONDS)
            figures = load.result()
        return 1e6 * share_held(samples.read_text(encoding="utf-8")) / figures["texts_per_s"]

    def _embed(self, number: int, server: Server, scenario: Scenario, path: str) -> None:
        try:
            post(server.url + path, ours.body(["good"]))
        except HTTPError as error:
            typer.echo(f"{path} is not answered: {error}")
            return
        self._load(number, SERVICE, server, scenario, self._seconds, path)

    def _load(
        self, number: int, subject: str, server: Server, scenario: Scenario, seconds: float, path: str = CLASSIFY
    ) -> None:
        figures = measure(server, path, self._bodies, scenario, seconds)
        what = scenario.name if path == CLASSIFY else f"{path}, {scenario.name}"
        self._results.runs.append(run(number, subject, what, figures))
        typer.echo(f"{number + 1} {subject:20} {what:52} {figures['texts_per_s']:8.1f} texts/s")

    def _warm(self, server: Server) -> None:
        post(server.url + CLASSIFY, ours.body(["good"]))
        for scenario in (SINGLE, LISTS):
            measure(server, CLASSIFY, self._bodies, scenario, 1)

    def _service(self, *flags: str) -> AbstractContextManager[Server]:
        return self._serve([ours.PROGRAM, "serve", *flags])

    def _stub(self, part: str) -> AbstractContextManager[Server]:
        return self._serve([sys.executable, "-m", "bench.stub", part])

    def _serve(self, command: Sequence[str]) -> AbstractContextManager[Server]:
        def given(port: int) -> list[str]:
            return [*command, "--port", str(port), "--log-level", "warning", "--model", str(self._model)]

        return running(given, lambda url: answers(f"{url}/readyz"), BUILD / "logs" / "ours.log", folder=ROOT)


def share_held(samples: str) -> float:
    """The share of all samples that found the lock held: those alone are written, a stack and its count a line."""
    held = sum(int(line.rpartition(" ")[2]) for line in samples.splitlines())
    return held / (SAMPLES_PER_S * SAMPLE_SECONDS)
