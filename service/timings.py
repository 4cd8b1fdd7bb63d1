"""Where one request's time goes: written by the workers that answer it, read by its log line, header and trace."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass, field


@dataclass(slots=True)
class Stage:
    """One kind of work on a request. `began` and `ended` are the first and the last moment, in seconds of
    time.monotonic(); `seconds` is the work itself, which several workers may have shared and others interrupted."""

    began: float = math.inf
    ended: float = -math.inf
    seconds: float = 0.0
    runs: int = 0


@dataclass(slots=True)
class Timings:
    """The stages of one request. `queue` is its wait for the first of its texts to be taken."""

    queue: Stage = field(default_factory=Stage)
    tokenize: Stage = field(default_factory=Stage)
    infer: Stage = field(default_factory=Stage)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def taken(self, queued: float, now: float) -> None:
        """A worker took one of the texts, queued at `queued`."""
        with self._lock:
            if not self.queue.runs:
                self.queue = Stage(queued, now, now - queued, 1)

    def done(self, stage: Stage, began: float, share: float = 1.0) -> float:
        """A stage was worked on from `began` until now, of which a share was this request's: the seconds that took."""
        now = time.monotonic()
        with self._lock:
            stage.began = min(stage.began, began)
            stage.ended = max(stage.ended, now)
            stage.seconds += share * (now - began)
            stage.runs += 1
        return now - began

    def stages(self) -> dict[str, Stage]:
        """The stages that were reached, by name, in their order."""
        named = {"queue": self.queue, "tokenize": self.tokenize, "infer": self.infer}
        return {name: stage for name, stage in named.items() if stage.runs}
