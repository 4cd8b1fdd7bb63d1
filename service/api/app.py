"""Puts the service together: settings in, an ASGI application out."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import FastAPI
from fastapi_offline import FastAPIOffline
from starlette.middleware.cors import CORSMiddleware

from service import __version__
from service.api import admin, errors, page, tracing
from service.api.access import CORS, Access, Keys, RequireKey, describe
from service.api.compat import ROUTERS
from service.api.direct import Shortcut
from service.api.middleware import BodyLimit, Observe
from service.api.routes import metrics_router, router
from service.api.siblings import Place, Siblings
from service.api.state import State
from service.catalog import Catalog
from service.cpu import usable_cores
from service.inference import Inference, Limits
from service.logs import get
from service.metrics import Metrics
from service.scheduler import Scheduler
from service.settings import Settings

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

log = get(__name__)

QUIET_ROUTES = ("/healthz", "/readyz", "/metrics")
"""Asked every few seconds by machines: logged at debug level unless they fail."""

DOCS = ("/docs", "/openapi.json", "/static-offline-docs/")
"""Where the interface is described."""

LAST_SECONDS = 5.0
"""How long the stop waits for running texts once no request is open: far longer than the longest run takes."""


class _Hastening:
    """Threads that hasten models: it takes as long as a graph takes to load, and nothing is owed it before the service
    is ready."""

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []

    def start(self, inference: Inference) -> None:
        """Hasten a model."""
        thread = threading.Thread(target=inference.hasten, name="hasten")
        thread.start()
        self._threads = [*filter(threading.Thread.is_alive, self._threads), thread]

    def join(self) -> None:
        """Wait for all: a process that ends while ONNX Runtime makes a session is aborted."""
        for thread in self._threads:
            thread.join()


def create_app(settings: Settings, place: Place | None = None) -> FastAPI:
    """The application. Its models are opened when it starts; a model that cannot be trusted makes it not ready.

    `place` is that of its process among several.
    """
    metrics = Metrics()
    limits = Limits(**settings.limits)
    hastening = _Hastening()

    def open_model(folder: Path, name: str | None) -> Inference:
        inference = Inference.open(folder, scheduler, metrics, limits, name)
        hastening.start(inference)
        return inference

    models = Catalog(open_model, metrics, settings.max_models)
    workers = settings.workers or max(1, usable_cores() // settings.processes)
    scheduler = Scheduler(workers, settings.queue, metrics, settings.request_timeout, at_rest=models.rest)
    service = State(
        metrics=metrics,
        scheduler=scheduler,
        models=models,
        max_body_bytes=settings.max_body_bytes,
        siblings=Siblings(place, metrics) if place else None,
    )
    metrics.ready.set_function(lambda: service.not_ready() is None)
    traces = tracing.provider(settings.tracing_endpoint) if settings.tracing_endpoint else None

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        await asyncio.to_thread(service.models.start, settings.folders)
        service.scheduler.start()
        log.info("started", model=service.models.default, workers=service.scheduler.size, ready=not service.not_ready())
        async with AsyncExitStack() as stack:
            if service.siblings:
                await stack.enter_async_context(service.siblings.listening())
            yield
        await asyncio.to_thread(hastening.join)
        service.all_answered = await asyncio.to_thread(service.scheduler.stop, LAST_SECONDS)
        log.info("stopped", all_answered=service.all_answered)
        if traces:
            await asyncio.to_thread(traces.shutdown)

    application = partial(FastAPI, openapi_url=None) if settings.docs == "off" else FastAPIOffline
    app = application(
        title="Sentiment service",
        version=__version__,
        description="Says how a text feels: a label, calibrated probabilities and a valence; or its vector.",
        docs_url="/docs",
        redoc_url=None,
        lifespan=lifespan,
        telemetry=tracing.config(traces, QUIET_ROUTES),
    )
    app.state.service = service
    app.state.request_timeout = settings.request_timeout
    app.state.models_dir = settings.models_dir
    app.state.access = Access(Keys(settings.api_keys, settings.api_keys_file), admin=Keys(settings.admin_keys))
    for routes in (router, admin.router, *ROUTERS):
        app.include_router(routes)
    if settings.metrics != "off":
        app.include_router(metrics_router)
    if settings.page:
        app.include_router(page.router())
    errors.install(app)
    _surround(app, settings, metrics, traces)
    return app


def _surround(app: FastAPI, settings: Settings, metrics: Metrics, traces: TracerProvider | None) -> None:
    """Add what each request passes through on its way to a route, the innermost first."""
    if not traces:  # FastAPI names the span of a request by the route that its own search finds
        app.add_middleware(Shortcut, routes=[route for each in (router, *ROUTERS) for route in each.routes])
    app.add_middleware(BodyLimit, max_bytes=settings.max_body_bytes, seconds=settings.transfer_timeout)
    access: Access = app.state.access
    if access.keys:
        app.add_middleware(RequireKey, access=access, open_to_all=_open_paths(settings))
        describe(app, _open_paths(settings))
    if settings.origins:
        # Outside of what asks for keys: a browser sends none with the question whether it may send one.
        app.add_middleware(CORSMiddleware, allow_origins=settings.origins, **CORS)
    tracer = traces.get_tracer("service", __version__) if traces else None
    app.add_middleware(Observe, metrics=metrics, quiet=QUIET_ROUTES, tracer=tracer)


def _open_paths(settings: Settings) -> list[str]:
    """Where no key is asked for, health aside. The page holds nothing: what it asks the service, it asks with a key."""
    return [
        *(page.PATHS if settings.page else ()),
        *(("/metrics",) if settings.metrics == "open" else ()),
        *(DOCS if settings.docs == "open" else ()),
    ]
