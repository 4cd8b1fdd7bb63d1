"""What the C library keeps of memory that is free: glibc's own ways with it, where it is glibc."""

from __future__ import annotations

import ctypes
import sys
from functools import cache

MAPPED = 4 * 1024 * 1024
"""Bytes from which a piece of memory is mapped by itself, and goes back to the system as soon as it is free."""
KEPT = 8 * 1024 * 1024
"""Bytes at the end of a heap that are kept for what is asked next: more than what runs that share one take and free."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""What mallopt(3) calls M_TRIM_THRESHOLD and M_MMAP_THRESHOLD."""


@cache
def fix_thresholds() -> None:
    """Keep to `MAPPED` and `KEPT`, once a process. By itself glibc goes by the largest piece that was freed: then the
    memory of a long text's run ends up at the end of a thread's heap, which nothing gives back."""
    if option := _glibc("mallopt"):
        option(_MMAP_THRESHOLD, MAPPED)
        option(_TRIM_THRESHOLD, KEPT)


def give_back() -> None:
    """Return free memory to the system. By itself glibc keeps what a model took, scattered over its heap, for later."""
    if trim := _glibc("malloc_trim"):
        trim(0)


def _glibc(name: str) -> ctypes._NamedFuncPointer | None:
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
