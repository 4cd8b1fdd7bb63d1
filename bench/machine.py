"""The machine and the software that a measurement was made with."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from service.cpu import usable_cores

FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16", "amx_int8")
PACKAGES = ("onnxruntime", "tokenizers", "numpy", "fastapi", "uvicorn", "uvloop", "httptools", "pydantic")
ROOT = Path(__file__).parents[1]


def facts() -> dict[str, Any]:
    """CPU, memory, versions, commit, and how busy the machine is now."""
    cpu = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    memory = Path("/proc/meminfo").read_text(encoding="utf-8")
    flags = set(_field(cpu, "flags").split())
    return {
        "cpu": _field(cpu, "model name") or platform.machine(),
        "flags": [flag for flag in FLAGS if flag in flags],
        "cores": usable_cores(),
        "memory_gb": round(int(_field(memory, "MemTotal").split()[0]) / 1e6, 1),
        "load_before": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "versions": {name: version(name) for name in PACKAGES},
        "commit": commit(),
        "made": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    }


def commit() -> str:
    """The commit that is checked out, `+` behind it where a tracked file differs."""
    command = ["git", "describe", "--always", "--abbrev=12", "--match", "", "--dirty=+"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "no git checkout"


def _field(text: str, name: str) -> str:
    lines = (line.partition(":") for line in text.splitlines())
    return next((value.strip() for key, _, value in lines if key.strip() == name), "")
