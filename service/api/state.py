"""What the routes share: one object, made when the application starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Query, Request

from service.api import schemas
from service.api.siblings import Siblings
from service.catalog import Catalog
from service.inference import Inference
from service.metrics import Metrics
from service.scheduler import Scheduler


@dataclass
class State:
    """The running service, in one process of perhaps several. `all_answered` is known after the stop."""

    metrics: Metrics
    scheduler: Scheduler
    models: Catalog
    max_body_bytes: int
    siblings: Siblings | None = None
    all_answered: bool = False

    def not_ready(self) -> str | None:
        """Why no work should be sent here, or None: every model that is to be served is, and there are workers."""
        return self.models.not_ready() or self.no_workers()

    async def none_ready(self) -> str | None:
        """Why no work should be sent to this or another process, or None: a caller cannot choose among them."""
        return self.not_ready() or (await self.siblings.not_ready() if self.siblings else None)

    async def render_metrics(self) -> bytes:
        """The metrics of all processes."""
        return await self.siblings.render() if self.siblings else self.metrics.render()

    def no_workers(self) -> str | None:
        """Why no model can take work, or None."""
        if not self.scheduler.accepting:
            return "the service is stopping"
        if self.scheduler.alive < self.scheduler.size:
            return f"{self.scheduler.size - self.scheduler.alive} of {self.scheduler.size} workers died"
        return None


async def state(request: Request) -> State:
    """The state of the application a request came to."""
    found: State = request.app.state.service
    return found


async def chosen(service: Annotated[State, Depends(state)], query: Annotated[schemas.Named, Query()]) -> Inference:
    """The model that `?model=` names, for routes that have no model of their query. Raises as Catalog.get does."""
    return service.models.get(query.model)
