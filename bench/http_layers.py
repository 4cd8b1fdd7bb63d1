"""This service over HTTP: whole, with one worker, and with a part of it left out."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import typer

from bench import wrk
from bench.environments import BUILD, ROOT
from bench.load import Bodies, measure, run
from bench.peers import ours
from bench.processes import Server, ServerError, answers, post, running
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
FAILURES = (ServerError, wrk.LoadError, OSError)


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
        self._turn(SERVICE, self._service(), partial(self._whole, number))
        self._turn(ONE_WORKER, self._service("--workers", "1"), partial(self._part, number, ONE_WORKER, (SINGLE,)))
        for subject, part in ((HTTP, "inference"), (NO_RUN, "run")):
            self._turn(subject, self._stub(part), partial(self._part, number, subject, (SINGLE, LISTS)))

    def interpreter_lock(self) -> None:
        """Microseconds a text for which some thread holds the interpreter lock, by sampling with py-spy.

        Of samples taken at a steady rate while the service is under load, the share that finds a holder is the share
        of time that the lock is held; divided by the texts answered meanwhile, it is the time of one text. With one
        worker, so that two cores are enough for all threads: one that loses its core with the lock in hand seems to
        hold it long.
        """
        program = shutil.which("py-spy", path=f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin")
        if not program:
            typer.echo("py-spy is not installed: the interpreter lock is not sampled")
            return
        self._turn(SERVICE, self._service("--workers", "1"), partial(self._sample, program))

    def _whole(self, number: int, server: Server) -> None:
        for scenario in SCENARIOS:
            self._load(number, SERVICE, server, scenario, self._seconds)
        for path in (EMBED, BASE64):
            for scenario in (SINGLE, LISTS):
                self._load(number, SERVICE, server, scenario, self._seconds, path)
        for scenario in (*CONNECTIONS, *SIZES):
            self._load(number, SERVICE, server, scenario, GROWTH_SECONDS)
        self._results.note(SERVICE, "peak_mb", server.memory_mb("VmHWM"))

    def _part(self, number: int, subject: str, scenarios: Sequence[Scenario], server: Server) -> None:
        for scenario in scenarios:
            self._load(number, subject, server, scenario, self._seconds)

    def _sample(self, program: str, server: Server) -> None:
        for scenario in (SINGLE, LISTS):
            try:
                held = self._held(program, server, scenario)
            except (*FAILURES, subprocess.SubprocessError) as error:
                self._fail(SERVICE, f"interpreter lock, {scenario.name}", error)
                continue
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

    def _load(
        self, number: int, subject: str, server: Server, scenario: Scenario, seconds: float, path: str = CLASSIFY
    ) -> None:
        what = scenario.name if path == CLASSIFY else f"{path}, {scenario.name}"
        try:
            figures = measure(server, path, self._bodies, scenario, seconds)
        except FAILURES as error:
            self._fail(subject, what, error)
            return
        self._results.runs.append(run(number, subject, what, figures))
        typer.echo(f"{number + 1} {subject:20} {what:52} {figures['texts_per_s']:8.1f} texts/s")

    def _turn(self, subject: str, started: AbstractContextManager[Server], use: Callable[[Server], None]) -> None:
        """Use a server once it is warm. If it fails, that is noted and the measurement goes on without."""
        try:
            with started as server:
                for size in (1, LISTS.size):
                    post(server.url + CLASSIFY, ours.body(["What a lovely day!"] * size))
                measure(server, CLASSIFY, self._bodies, SINGLE, 1)
                use(server)
        except FAILURES as error:
            self._fail(subject, "the server", error)

    def _fail(self, subject: str, what: str, error: Exception) -> None:
        self._results.subject(subject).setdefault("failures", {})[what] = str(error) or type(error).__name__
        typer.echo(f"{subject}, {what}: {error}", err=True)

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
