"""Load from wrk: a fixed number of connections, each asking again as soon as it is answered."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

SCRIPT = Path(__file__).with_name("cycle.lua")
MISSING = "wrk is not installed: it is Debian's package wrk (apt-get install wrk)"


class LoadError(Exception):
    """Requests that failed, or a load generator that did."""


@dataclass(frozen=True, slots=True)
class Load:
    """What a run saw: completed requests, seconds it took, and latency in milliseconds."""

    requests: int
    seconds: float
    mean_ms: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    largest_ms: float


def check() -> None:
    """Raises LoadError if there is no wrk."""
    if not shutil.which("wrk"):
        raise LoadError(MISSING)


def run(url: str, bodies: Path, connections: int, seconds: float) -> Load:
    """Post the bodies, one a line of a file, one after the other and over again.

    Raises LoadError if wrk fails, or for an answer with a status above 399, a time-out or a broken connection.
    """
    command = ["wrk", "--threads", "1", "--connections", str(connections), "--duration", f"{round(seconds)}s"]
    command += ["--timeout", "60s", "--script", str(SCRIPT), url, "--", str(bodies)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 90, check=False)
    found = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not found:
        raise LoadError(f"wrk ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-300:]}")
    return parse(found[-1])


def parse(line: str) -> Load:
    """The figures that the script printed. Raises LoadError if there were errors, or no answer at all."""
    figures = json.loads(line)
    errors = {name: count for name, count in figures.pop("errors").items() if count}
    if errors:
        raise LoadError(f"of {figures['requests']} requests failed: {errors}")
    if not figures["requests"]:
        raise LoadError("no request was answered")
    return Load(**figures)
