"""Every failure has one shape, the right status and a sentence that helps."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from service import errors
from service.api.errors import STATUS
from tests.service.api.conftest import TINY, Start
from tests.service.serving import overloaded

JSON = {"content-type": "application/json"}

CASES: list[tuple[str, str, dict[str, Any], int, str, str | None]] = [
    ("GET", "/nowhere", {}, 404, "not_found", None),
    ("DELETE", "/classify", {}, 405, "method_not_allowed", None),
    ("POST", "/classify", {"content": b'{"inputs": ', "headers": JSON}, 400, "malformed_json", None),
    ("POST", "/classify", {"content": b"\xff\xfe{}", "headers": JSON}, 400, "malformed_json", None),
    ("POST", "/classify", {"content": b"", "headers": JSON}, 422, "invalid_body", None),
    ("POST", "/classify", {"json": []}, 422, "invalid_body", None),
    ("POST", "/classify", {"json": {}}, 422, "missing_field", "inputs"),
    ("POST", "/classify", {"json": {"inputs": 5}}, 422, "invalid_field", "inputs"),
    ("POST", "/classify", {"json": {"inputs": ["a", 5]}}, 422, "invalid_field", "inputs"),
    ("POST", "/classify", {"json": {"inputs": None}}, 422, "invalid_field", "inputs"),
    ("POST", "/classify", {"json": {"inputs": []}}, 422, "no_texts", "inputs"),
    ("POST", "/classify", {"json": {"inputs": ["a"] * 1001}}, 422, "too_many_texts", "inputs"),
    ("POST", "/classify", {"json": {"inputs": "a", "topk": 1}}, 422, "unknown_field", "topk"),
    ("POST", "/classify", {"json": {"inputs": "a", "top_k": 0}}, 422, "invalid_field", "top_k"),
    ("POST", "/classify", {"json": {"inputs": "a", "top_k": "1"}}, 422, "invalid_field", "top_k"),
    ("POST", "/classify", {"json": {"inputs": "a", "raw_scores": 1}}, 422, "invalid_field", "raw_scores"),
    ("POST", "/classify?pool=cls", {"json": {"inputs": "a"}}, 422, "unknown_query_parameter", "pool"),
    ("POST", "/classify", {"json": {"inputs": ""}}, 422, "empty_text", "inputs"),
    ("POST", "/classify", {"json": {"inputs": ["", "\0"]}}, 422, "empty_text", "inputs.0"),
    ("POST", "/classify", {"json": {"inputs": "a\0"}}, 422, "nul_character", "inputs"),
    ("POST", "/classify", {"content": b'{"inputs": "\\udfff"}', "headers": JSON}, 422, "lone_surrogate", "inputs"),
    ("POST", "/classify", {"json": {"inputs": "a" * 100_001}}, 422, "text_too_long", "inputs"),
    ("POST", "/classify", {"content": b"inputs=a"}, 415, "unsupported_media_type", None),
    (
        "POST",
        "/classify",
        {"content": b"{}", "headers": {"content-type": "application/json; charset=latin-1"}},
        415,
        "unsupported_media_type",
        None,
    ),
    (
        "POST",
        "/classify",
        {"content": b"{}", "headers": JSON | {"content-encoding": "gzip"}},
        415,
        "unsupported_media_type",
        None,
    ),
    (
        "POST",
        "/classify",
        {"json": {"inputs": "a"}, "headers": {"x-request-timeout": "soon"}},
        422,
        "invalid_header",
        "X-Request-Timeout",
    ),
    (
        "POST",
        "/classify",
        {"json": {"inputs": "a"}, "headers": {"x-request-timeout": "0"}},
        422,
        "invalid_header",
        "X-Request-Timeout",
    ),
    ("POST", "/classify", {"json": {"inputs": "a", "min_score": 0}}, 422, "invalid_field", "min_score"),
    ("POST", "/classify?detail=words", {"json": {"inputs": "a"}}, 422, "invalid_query_parameter", "detail"),
    ("POST", "/classify?long_text=error", {"json": {"inputs": "a " * 600}}, 422, "too_many_tokens", "inputs"),
    ("POST", "/classify", {"json": {"inputs": "a " * 40_000}}, 422, "too_many_windows", "inputs"),
    ("POST", "/classify?detail=sentences", {"json": {"inputs": "No! " * 300}}, 422, "too_many_sentences", "inputs"),
    ("POST", "/explain", {"json": {"inputs": "a " * 600}}, 422, "too_many_tokens", "inputs"),
    ("POST", "/embed?pool=middle", {"json": {"inputs": "a"}}, 422, "invalid_query_parameter", "pool"),
    ("POST", "/embed?pol=cls", {"json": {"inputs": "a"}}, 422, "unknown_query_parameter", "pol"),
    ("POST", "/embed?dimensions=0", {"json": {"inputs": "a"}}, 422, "invalid_query_parameter", "dimensions"),
    ("POST", "/embed?dimensions=9999", {"json": {"inputs": "a"}}, 422, "invalid_request", "dimensions"),
    ("POST", "/embed?normalize=perhaps", {"json": {"inputs": "a"}}, 422, "invalid_query_parameter", "normalize"),
    ("POST", "/embed", {"json": {"inputs": "a", "top_k": 1}}, 422, "unknown_field", "top_k"),
    ("GET", "/info?x=1", {}, 422, "unknown_query_parameter", "x"),
    ("GET", "/healthz?x=1", {}, 422, "unknown_query_parameter", "x"),
]


@pytest.mark.parametrize(
    ("method", "url", "sent", "status", "code", "param"), CASES, ids=[f"{c[4]}-{i}" for i, c in enumerate(CASES)]
)
def test_error_table(
    client: TestClient, method: str, url: str, sent: dict[str, Any], status: int, code: str, param: str | None
) -> None:
    response = client.request(method, url, **sent)
    body = response.json()
    assert (response.status_code, body["error"]["code"], body["error"].get("param")) == (status, code, param)
    assert set(body) == {"error"}
    assert set(body["error"]) <= {"code", "message", "param"}
    assert body["error"]["message"]
    assert "x-request-id" in response.headers


def test_an_unknown_name_is_answered_with_those_allowed(client: TestClient) -> None:
    query = client.post("/embed?pol=cls", json={"inputs": "a"}).json()["error"]["message"]
    body = client.post("/classify", json={"inputs": "a", "topk": 1}).json()["error"]["message"]
    assert query == "pol is unknown here; allowed: model, pool, long_text, normalize, dimensions, encoding"
    assert body == "topk is unknown here; allowed: inputs, top_k, raw_scores, min_score"


def test_every_kind_of_error_has_a_status() -> None:
    kinds = {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.ServiceError)}
    assert kinds - {errors.ServiceError} <= set(STATUS)


def test_a_body_over_the_limit_is_refused_declared_or_not(start: Start) -> None:
    client = start(max_body_bytes=100)
    declared = client.post("/classify", json={"inputs": "a" * 200})
    streamed = client.post("/classify", content=iter([b'{"inputs": "', b"a" * 200, b'"}']), headers=JSON)
    for response in (declared, streamed):
        assert response.status_code == 413
        assert response.json()["error"]["code"] == "body_too_large"
        assert "100 bytes" in response.json()["error"]["message"]


def test_a_full_queue_is_said_at_once_with_when_to_come_back(start: Start) -> None:
    client = start(max_texts=3, queue=3)
    with overloaded(client.app):  # type: ignore[arg-type]
        response = client.post("/classify", json={"inputs": ["a"] * 3})
    assert response.status_code == 429
    assert response.json()["error"]["code"] == "overloaded"
    assert int(response.headers["retry-after"]) >= 1


def test_an_unforeseen_failure_has_the_same_shape_and_says_nothing_of_its_cause(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = start()

    def fail(*_: object) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(client.app.state.service.models.get(), "classify", fail)  # type: ignore[attr-defined]
    response = client.post("/classify", json={"inputs": "a"})
    assert response.status_code == 500
    assert response.json()["error"]["code"] == "internal_error"
    assert "secret" not in response.text
    assert response.headers["x-request-id"]
    labels = {"method": "POST", "route": "/classify", "status": "500"}
    registry = client.app.state.service.metrics.registry  # type: ignore[attr-defined]
    assert registry.get_sample_value("sentiment_requests_total", labels) == 1


def test_a_model_that_cannot_be_trusted_makes_the_service_not_ready(start: Start) -> None:
    client = start(model=TINY / "nowhere")
    for method, url in (("GET", "/readyz"), ("POST", "/classify"), ("GET", "/info")):
        response = client.request(method, url, json={"inputs": "a"} if method == "POST" else None)
        assert response.status_code == 503
        assert "manifest.json cannot be read" in response.json()["error"]["message"]
    assert client.get("/healthz").status_code == 200


def test_a_text_to_explain_has_a_bounded_number_of_words(start: Start) -> None:
    response = start(max_words=5).post("/explain", json={"inputs": "a b c d e f"})
    assert response.status_code == 422
    assert response.json()["error"]["code"] == "too_many_words"
    assert response.json()["error"]["message"] == "the text has 6 words; 5 are allowed"


def test_a_request_that_would_never_fit_the_queue_says_so(start: Start) -> None:
    response = start(queue=10, max_texts=10).post("/explain", json={"inputs": ["a b c d e f g h i j k l"] * 6})
    assert response.status_code == 422
    assert response.json()["error"]["code"] == "too_much_work"
