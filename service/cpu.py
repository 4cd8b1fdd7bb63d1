"""How many cores this process may use: its affinity and its cgroup's CPU quota, never the host's count."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath


def usable_cores(cgroups: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")) -> int:
    """Cores by affinity, or the tightest CPU quota on the way up the cgroup tree (v1 or v2), rounded up; at least 1."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quotas = [math.ceil(quota) for quota in _quotas(cgroups, membership)]
    return max(1, min([available, *quotas]))


def _quotas(cgroups: Path, membership: Path) -> Iterator[float]:
    for line in _read(membership).splitlines():
        controllers, _, path = line.partition(":")[2].partition(":")
        if not controllers:
            roots = [cgroups, cgroups / "unified"]
        elif "cpu" in controllers.split(","):
            roots = [cgroups / controllers, cgroups / "cpu"]
        else:
            continue
        # Inside a container the path is often that of the host: the root is read either way.
        parents = [PurePosixPath(path), *PurePosixPath(path).parents]
        for folder in (root / str(parent).lstrip("/") for root in roots for parent in parents):
            yield from _quota(folder)


def _quota(folder: Path) -> Iterator[float]:
    limit = _read(folder / "cpu.max").split() or [
        _read(folder / "cpu.cfs_quota_us").strip(),
        _read(folder / "cpu.cfs_period_us").strip(),
    ]
    if len(limit) == 2 and limit[0].isdecimal() and limit[1].isdecimal() and int(limit[1]):
        yield int(limit[0]) / int(limit[1])


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
