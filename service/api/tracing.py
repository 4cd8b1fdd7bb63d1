"""Traces of requests, for a collector that the operator names: off until then. FastAPI makes the span of a request."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import TYPE_CHECKING

from fastapi.telemetry import TelemetryConfig
from opentelemetry.trace import Span, Tracer
from starlette.types import Scope

from service import __version__
from service.errors import ServiceError
from service.timings import Timings

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

HIDDEN = ("url.path", "url.query")
"""What a caller may have put a text in by mistake. The route's template is told instead."""


class TracingError(ServiceError):
    """Tracing that is asked for and cannot be done."""

    code = "no_tracing"


def provider(endpoint: str) -> TracerProvider:
    """Spans sent to an OTLP/HTTP endpoint in the background. The OTEL_* variables set its headers, sampling and so on.

    Raises TracingError without the extra `otel`.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as error:
        raise TracingError(
            f"tracing needs {error.name}, which is not installed: pip install 'sentiment-service[otel]'"
        ) from error

    class Hide(SpanProcessor):
        def on_start(self, span: Span, parent_context: object = None) -> None:
            for name in HIDDEN:
                span.set_attribute(name, "")

    resource = Resource({"service.name": "sentiment-service", "service.version": __version__})
    made = TracerProvider(resource=resource.merge(OTELResourceDetector().detect()))
    made.add_span_processor(Hide())
    made.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
    return made


def config(made: TracerProvider | None, quiet: Collection[str]) -> TelemetryConfig:
    """What FastAPI may tell: the span of each request, if anything. Its log of validation errors would quote texts,
    and so would what it adds on its own to providers that the environment has set up."""

    def is_quiet(scope: Scope) -> bool:
        return scope["path"] in quiet

    return {
        "tracing": made is not None,
        "tracer_provider": made,
        "metrics": False,
        "logs": False,
        "operation_spans": False,
        "auto_configure": False,
        "exclude": is_quiet,
    }


def stages(tracer: Tracer, timings: Timings) -> None:
    """Spans for a request's stages, below the span that is current. One covers all texts of a list: from the first
    that reached the stage to the last, with the seconds of work in between."""
    epoch = time.time() - time.monotonic()
    for name, stage in timings.stages().items():
        span = tracer.start_span(
            name,
            start_time=int((epoch + stage.began) * 1e9),
            attributes={"sentiment.seconds": stage.seconds, "sentiment.runs": stage.runs},
        )
        span.end(end_time=int((epoch + stage.ended) * 1e9))
