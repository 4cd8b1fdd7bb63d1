"""What the routes share: one object, made when the application starts."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import Request

from service.errors import UnavailableError
from service.inference import Inference
from service.metrics import Metrics
from service.scheduler import Scheduler


@dataclass
class State:
    """The running service. `failure` says why the model could not be served; `all_answered` is known after the stop."""

    metrics: Metrics
    scheduler: Scheduler
    max_body_bytes: int
    loaded: Inference | None = None
    failure: str | None = None
    all_answered: bool = False

    @property
    def inference(self) -> Inference:
        """The model. Raises UnavailableError while there is none."""
        if self.loaded is None:
            raise UnavailableError(self.failure or "the model is being loaded")
        return self.loaded

    def not_ready(self) -> str | None:
        """Why no work should be sent here, or None."""
        if self.failure:
            return self.failure
        if self.loaded is None:
            return "the model is being loaded"
        if not self.scheduler.accepting:
            return "the service is stopping"
        if self.scheduler.alive < self.scheduler.size:
            return f"{self.scheduler.size - self.scheduler.alive} of {self.scheduler.size} workers died"
        return None


def state(request: Request) -> State:
    """The state of the application a request came to."""
    found: State = request.app.state.service
    return found
