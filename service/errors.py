"""What can go wrong, as exceptions that know nothing of HTTP: `service.api.errors` maps each kind to a status once."""

from __future__ import annotations

from collections.abc import Sequence

LONGEST = 1000
"""Characters of a message: what it quotes of a caller's may be as long as a request."""


class ServiceError(Exception):
    """A failure: a stable code for programs, a sentence for people, and the parameter at fault if there is one."""

    code = "internal_error"

    def __init__(self, message: str, *, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.message = _short(message)
        self.code = code or self.code
        self.param = None if param is None else _short(param)


class ArtifactError(ServiceError):
    """A model folder that cannot be trusted: missing, altered, or disagreeing with its manifest."""

    code = "bad_artifact"


class EngineError(ServiceError):
    """A run that failed, or whose result is not finite. The fault is ours, never the caller's."""

    code = "inference_failed"


class InputError(ServiceError):
    """One text that cannot be read: the others of its request are still answered."""

    code = "invalid_text"


class RequestError(ServiceError):
    """A request that is wrong as a whole."""

    code = "invalid_request"


class OverloadedError(ServiceError):
    """The queue is full. `retry_after` says in how many seconds it is expected to have room."""

    code = "overloaded"

    def __init__(self, message: str, *, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class UnavailableError(ServiceError):
    """The service takes no work: it is starting, stopping, or its workers are gone."""

    code = "unavailable"


class DeadlineError(ServiceError):
    """The caller's time ran out before the answer was ready."""

    code = "deadline_exceeded"


class UnknownModelError(ServiceError):
    """A model that does not exist here. The message names those that do."""

    code = "unknown_model"

    def __init__(self, model: str, loaded: Sequence[str]) -> None:
        there = " or ".join(loaded) or "none"
        super().__init__(f"the model {model!r} does not exist here; there is {there}", param="model")


class ConflictError(ServiceError):
    """A change that does not go with what the service holds or does now."""

    code = "conflict"


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
