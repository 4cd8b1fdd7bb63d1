"""The models there are, by name: loaded, replaced and unloaded while the others, and they themselves, answer."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from service.errors import ArtifactError, ConflictError, RequestError, UnavailableError, UnknownModelError
from service.inference import Inference
from service.logs import get
from service.memory import give_back
from service.metrics import Metrics

log = get(__name__)

SETTLED = 1.0
"""Seconds after which what a change has set free is looked after."""

Open = Callable[[Path, str | None], Inference]
"""Opens and checks the model in a folder, under a name or its manifest's. Raises ArtifactError."""


class Entry(NamedTuple):
    """A name, and how it stands with its model: the model if it answers, the reason if it could not be trusted."""

    name: str
    state: Literal["ready", "loading", "failed"]
    model: Inference | None = None
    reason: str | None = None


class Catalog:
    """Models by name, one of them the default. Safe to use from any number of threads.

    Whoever has got a model keeps it: one that is replaced or unloaded is no longer found, answers what it was asked
    before, and is freed with the last of that. So no request is lost to a change.
    """

    def __init__(self, open_model: Open, metrics: Metrics, most: int) -> None:
        """Hold at most so many models at a time, and one more while one is replaced."""
        self._open = open_model
        self._metrics = metrics
        self._most = most
        self._loading = threading.Lock()
        self._changing = threading.Lock()
        # Replaced as a whole and never changed: readers need no lock.
        self._models: Mapping[str, Inference] = {}
        self._failures: Mapping[str, str] = {}
        self._pending: str | None = None
        self._started = False
        self.default: str | None = None

    def start(self, folders: Mapping[str | None, Path]) -> None:
        """Load what is to be served from the start, in order; the first is the default. One that fails is kept as such.

        A single model without a name has its manifest's.
        """
        for name, folder in folders.items():
            try:
                found = self.load(name, folder).name
            except ArtifactError as error:
                found = name or folder.name
                log.error("model refused", model=found, reason=error.message)
                with self._changing:
                    self._failures = {**self._failures, found: error.message}
            self.default = self.default or found
        self._started = True

    def get(self, name: str | None = None) -> Inference:
        """The model of that name, or the default.

        Raises UnknownModelError for a name that is not loaded, UnavailableError for one that should be and failed.
        """
        models = self._models
        wanted = self.default if name is None else name
        if wanted is None or not (self._started or wanted in models):
            raise UnavailableError("the model is being loaded")
        if found := models.get(wanted):
            return found
        if reason := self._failures.get(wanted):
            raise UnavailableError(reason)
        raise UnknownModelError(wanted, list(models))

    def not_ready(self) -> str | None:
        """Why a model that should be served is not, or None."""
        if not self._started and not self._failures:
            return "the model is being loaded"
        return next(iter(self._failures.values()), None)

    @property
    def loaded(self) -> list[Inference]:
        """Every model that answers. Raises UnavailableError if there is none."""
        return list(self._models.values()) or [self.get()]

    @property
    def entries(self) -> list[Entry]:
        """Every name there is, in the order in which they came."""
        models, failures, pending = self._models, self._failures, self._pending
        found = [Entry(name, "ready", model) for name, model in models.items()]
        found += [Entry(name, "failed", reason=reason) for name, reason in failures.items() if name not in models]
        if pending is not None and pending not in models:
            found = [entry for entry in found if entry.name != pending] + [Entry(pending, "loading")]
        return found

    def load(self, name: str | None, folder: Path) -> Inference:
        """Load and check a model, then let it take over its name. This takes seconds: never call it on the event loop.

        Raises ArtifactError if the folder cannot be trusted (what was there stays), ConflictError while another model
        is being loaded, RequestError if there are too many.
        """
        if not self._loading.acquire(blocking=False):
            raise ConflictError("another model is being loaded: one at a time, to bound memory", code="loading")
        try:
            if name not in self._models and len(self._models) >= self._most:
                raise RequestError(
                    f"{len(self._models)} models are loaded and {self._most} may be: unload one", code="too_many_models"
                )
            self._pending = name
            model = self._open(folder, name)
            self._put(model)
        except Exception:
            if name is not None and name not in self._models:
                self._metrics.forget_model(name)
            raise
        finally:
            self._pending = None
            self._loading.release()
        log.info("model loaded", model=model.name, digest=model.digest, folder=str(folder))
        weakref.finalize(model, _freed, model.name, model.digest).atexit = False
        return model

    def unload(self, name: str) -> None:
        """Let a model be found no longer. Raises UnknownModelError, or ConflictError for the default."""
        with self._changing:
            if name not in self._models and name not in self._failures:
                raise UnknownModelError(name, list(self._models))
            if name == self.default:
                raise ConflictError(f"{name} is the default: make another one the default first", code="default_model")
            old = self._models.get(name)
            self._models = {key: model for key, model in self._models.items() if key != name}
            self._forget(name)
        if old is not None:
            self._metrics.forget_model(name)
            _settled(gc.collect)
        log.info("model unloaded", model=name)

    def set_default(self, name: str) -> None:
        """Make a loaded model the one that answers who names none. Raises UnknownModelError."""
        with self._changing:
            if name not in self._models:
                raise UnknownModelError(name, list(self._models))
            self.default = name
        log.info("default model", model=name)

    def rest(self) -> None:
        """Return to the system the memory that runs took, for a time when there are none. Raises EngineError."""
        for model in self._models.values():
            model.give_back()
        give_back()

    def _put(self, model: Inference) -> None:
        with self._changing:
            replaced = model.name in self._models
            self._models = {**self._models, model.name: model}
            self._forget(model.name)
        self._metrics.model_loaded(model.name, model.digest)
        if replaced:
            # A request that failed leaves its error in a circle with the frames that raised it, the model among them.
            _settled(gc.collect)

    def _forget(self, name: str) -> None:
        """Its failure is a thing of the past. Called with the lock held."""
        self._failures = {key: reason for key, reason in self._failures.items() if key != name}


def _freed(name: str, digest: str) -> None:
    log.info("model freed", model=name, digest=digest)
    _settled(give_back)


def _settled(run: Callable[[], object]) -> None:
    """Call something a little later, on a thread of its own."""
    timer = threading.Timer(SETTLED, run)
    timer.daemon = True
    timer.start()
