"""An environment for each peer in build/bench/env, and in build/bench/weights the checkpoint that all of them serve."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.peers import Peer, fastapi_torch
from bench.processes import last_line

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "bench"
WEIGHTS = BUILD / "weights"
RANDOM = "random values, in the shape of all-MiniLM-L6-v2"
STAMP = "installed.txt"
MINUTES = 30
VERSIONS = (
    "import sys, json, importlib.metadata as m; print(json.dumps({name: m.version(name) for name in sys.argv[1:]}))"
)


class InstallError(Exception):
    """Why a peer cannot be run here."""


def programs(peer: Peer) -> Path:
    """Where a peer's programs are."""
    return BUILD / "env" / peer.environment / "bin"


def prepare(peer: Peer) -> None:
    """Make and fill a peer's environment unless that was done. Raises InstallError."""
    if not peer.environment:
        if not shutil.which(peer.program):
            raise InstallError(f"{peer.program} is not on the PATH")
        return
    folder = BUILD / "env" / peer.environment
    wanted = "\n".join(" ".join(group) for group in peer.requirements)
    stamp = folder / STAMP
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return
    folder.mkdir(parents=True, exist_ok=True)
    log = folder.with_suffix(".log")
    log.write_bytes(b"")
    _run([sys.executable, "-m", "venv", str(folder)], log)
    for group in peer.requirements:
        _run([str(programs(peer) / "python"), "-m", "pip", "install", "--quiet", *group], log)
    stamp.write_text(wanted, encoding="utf-8")


def versions(peer: Peer) -> dict[str, str]:
    """The versions of what a peer is made of."""
    if not peer.versions:
        return {}
    command = [str(programs(peer) / "python"), "-c", VERSIONS, *peer.versions]
    found: dict[str, str] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


def weights(checkpoint: Path | None) -> dict[str, Any]:
    """Fill build/bench/weights, unless it holds them already, and say what they are. Raises InstallError."""
    peer = fastapi_torch.PEER
    prepare(peer)
    made = {"weights": RANDOM, "sha256": None}
    if checkpoint:
        digest = hashlib.sha256((checkpoint / "model.safetensors").read_bytes()).hexdigest()
        made = {"weights": "one checkpoint for all", "sha256": digest}
    record = WEIGHTS / "weights.json"
    if not (record.exists() and json.loads(record.read_text(encoding="utf-8")) == made):
        given = ["--checkpoint", str(checkpoint.resolve())] if checkpoint else []
        log = BUILD / "weights.log"
        log.write_bytes(b"")
        _run([str(programs(peer) / "python"), "-m", "bench.stock", str(WEIGHTS), *given], log)
        record.write_text(json.dumps(made), encoding="utf-8")
    return made


def _run(command: Sequence[str], log: Path) -> None:
    with log.open("ab") as output:
        try:
            done = subprocess.run(
                command, stdout=output, stderr=subprocess.STDOUT, cwd=ROOT, check=False, timeout=60 * MINUTES
            )
        except subprocess.TimeoutExpired:
            raise InstallError(f"not installed within {MINUTES} minutes") from None
    if done.returncode:
        raise InstallError(last_line(log))
