"""Traces: off by default; one span a request with its stages below, in the caller's trace, and never a text."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http import trace_exporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from starlette.testclient import TestClient
from structlog.testing import capture_logs

from service.api.app import create_app
from service.settings import Settings
from tests.service.api.conftest import TINY, Start

ENDPOINT = "http://127.0.0.1:1/v1/traces"
SECRET = "unmistakable"
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """What would be sent to the collector, once the service has stopped."""
    exporter = InMemorySpanExporter()
    # Kept past the stop, which is what ends a service's spans.
    monkeypatch.setattr(exporter, "shutdown", lambda: None)
    monkeypatch.setattr(trace_exporter, "OTLPSpanExporter", lambda endpoint: exporter)
    return exporter


def traced(**settings: Any) -> TestClient:
    app = create_app(Settings(model=TINY, workers=2, tracing_endpoint=ENDPOINT, **settings))
    return TestClient(app, raise_server_exceptions=False)


def by_name(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in exporter.get_finished_spans()}


def test_a_request_is_a_span_with_its_stages_below(spans: InMemorySpanExporter) -> None:
    with traced() as client, capture_logs() as lines:
        asked = {"inputs": ["good", "bad film"]}
        answer = client.post("/classify", json=asked, headers={"traceparent": f"00-{TRACE}-{PARENT}-01"})
        client.get("/healthz")
    found = by_name(spans)
    assert set(found) == {"POST /classify", "queue", "tokenize", "infer"}
    request = found.pop("POST /classify")
    assert request.context
    assert request.parent
    assert request.start_time
    assert request.end_time
    assert request.attributes
    assert (f"{request.context.trace_id:032x}", f"{request.parent.span_id:016x}") == (TRACE, PARENT)
    assert request.attributes["http.response.status_code"] == 200
    assert request.attributes["sentiment.texts"] == 2
    assert request.attributes["sentiment.tokens"] == answer.json()["usage"]["tokens"]
    assert request.attributes["sentiment.request_id"] == answer.headers["x-request-id"]
    for span in found.values():
        assert span.parent
        assert span.start_time
        assert span.end_time
        assert span.parent.span_id == request.context.span_id
        # Wall-clock times of the parent, monotonic ones of the stages: a millisecond for what lies between.
        assert request.start_time - 10**6 <= span.start_time <= span.end_time <= request.end_time + 10**6
    assert [found[name].attributes["sentiment.runs"] for name in ("queue", "tokenize", "infer")] == [1, 2, 2]  # type: ignore[index]
    (line,) = (line for line in lines if line["event"] == "request" and line["route"] == "/classify")
    assert line["milliseconds"] > 0
    assert request.resource.attributes["service.name"] == "sentiment-service"


def test_no_text_is_in_a_span_whatever_is_asked(spans: InMemorySpanExporter) -> None:
    with traced() as client:
        client.post("/classify", json={"inputs": [SECRET, f"{SECRET} \0"]})
        client.post("/explain", json={"inputs": SECRET})
        client.post("/classify", json={"inputs": {"text": SECRET}, SECRET: 1})
        client.post(
            "/classify", content=f'{{"inputs": "{SECRET}'.encode(), headers={"content-type": "application/json"}
        )
        client.post(f"/classify?text={SECRET}", json={"inputs": "good"})
        client.get(f"/{SECRET}?q={SECRET}")
        client.app.state.service.models.get()._engine.classify = lambda *_, **__: 1 / 0  # type: ignore[attr-defined]
        client.post("/classify", json={"inputs": SECRET})
    found = spans.get_finished_spans()
    assert sum(span.kind is trace.SpanKind.SERVER for span in found) == 7
    assert not [span.name for span in found if SECRET in span.to_json()]


def test_what_the_environment_sets_up_of_its_own_is_not_told_of_texts(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FastAPI would send its validation errors, texts in them, to whatever these variables name."""
    monkeypatch.setenv("FASTAPI_OTEL_AUTO_CONFIGURE", "true")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", ENDPOINT)
    client = start()
    assert client.post("/classify", json={"inputs": 1}).status_code == 422
    assert not client.app._native_telemetry.enabled()  # type: ignore[attr-defined]
    assert "opentelemetry.sdk.trace" not in str(type(trace.get_tracer_provider()))


@pytest.fixture
def collector() -> Iterator[tuple[str, list[ExportTraceServiceRequest]]]:
    """A collector that listens: its address, and what it was sent."""
    received: list[ExportTraceServiceRequest] = []

    class Collect(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            received.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Collect) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1/traces", received
        server.shutdown()
        thread.join()


def test_a_collector_receives_them(
    collector: tuple[str, list[ExportTraceServiceRequest]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "sentiment-blue")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
    url, received = collector
    app = create_app(Settings(model=TINY, workers=1, tracing_endpoint=url))
    with TestClient(app) as client:
        client.post("/classify", json={"inputs": "good"})
    resources = [resource for request in received for resource in request.resource_spans]
    names = {span.name for resource in resources for scope in resource.scope_spans for span in scope.spans}
    assert names == {"POST /classify", "queue", "tokenize", "infer"}
    told = {attribute.key: attribute.value.string_value for attribute in resources[0].resource.attributes}
    assert told["service.name"] == "sentiment-blue"


def test_without_its_extra_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['opentelemetry.sdk'] = None; from service.cli import main; main()"
    command = [sys.executable, "-c", code, "serve", "--tracing-endpoint", ENDPOINT]
    run = subprocess.run(command, cwd=Path(__file__).parents[3], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "pip install 'sentiment-service[otel]'" in run.stderr
