"""What the routes answer when all is well."""

from __future__ import annotations

import math
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

TEXT = "the film is good"


def classify(client: TestClient, **body: Any) -> dict[str, Any]:
    response = client.post("/classify", json=body)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def embed(client: TestClient, inputs: str | list[str], **query: Any) -> dict[str, Any]:
    response = client.post("/embed", json={"inputs": inputs}, params=query)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def test_one_text_gives_a_list_of_one(client: TestClient) -> None:
    answer = classify(client, inputs=TEXT)
    (result,) = answer["results"]
    assert set(result) == {"label", "score", "scores", "valence", "tokens", "truncated"}
    assert result["score"] == max(result["scores"].values()) == result["scores"][result["label"]]
    assert sum(result["scores"].values()) == pytest.approx(1, abs=2e-6)
    assert result["valence"] == pytest.approx(result["scores"]["positive"] - result["scores"]["negative"], abs=2e-6)
    assert answer["usage"] == {"texts": 1, "tokens": result["tokens"]}
    assert not result["truncated"]


def test_a_bad_text_fails_alone(client: TestClient) -> None:
    texts = [TEXT, "", TEXT, " \t\n", "a\0b", "\ud800", "\u200b\ufeff", TEXT]
    body = b'{"inputs": ["%s", "", "%s", " \\t\\n", "a\\u0000b", "\\ud800", "\\u200b\\ufeff", "%s"]}'
    response = client.post(
        "/classify", content=body % ((TEXT.encode(),) * 3), headers={"content-type": "application/json"}
    )
    results = response.json()["results"]
    assert response.status_code == 200
    assert len(results) == len(texts)
    assert results[0] == results[2] == results[7]
    codes = [result["error"]["code"] for result in results if "error" in result]
    assert codes == ["empty_text", "empty_text", "nul_character", "lone_surrogate", "empty_text"]
    assert response.json()["usage"] == {"texts": 3, "tokens": 3 * results[0]["tokens"]}


def test_top_k_keeps_the_most_probable_labels(client: TestClient) -> None:
    (whole,) = classify(client, inputs=TEXT)["results"]
    (kept,) = classify(client, inputs=TEXT, top_k=2, raw_scores=True)["results"]
    best = sorted(whole["scores"], key=lambda label: -whole["scores"][label])[:2]
    assert list(kept["scores"]) == list(kept["logits"]) == best
    assert kept["label"] == best[0]


def test_raw_scores_are_the_logits_behind_the_probabilities(client: TestClient) -> None:
    temperature = client.get("/info").json()["temperature"]
    (result,) = classify(client, inputs=TEXT, raw_scores=True)["results"]
    exponents = {label: math.exp(logit / temperature) for label, logit in result["logits"].items()}
    for label, score in result["scores"].items():
        assert score == pytest.approx(exponents[label] / sum(exponents.values()), abs=1e-5)


def test_a_long_text_says_what_was_left_out(client: TestClient) -> None:
    maximum = client.get("/info").json()["limits"]["max_tokens"]
    (result,) = classify(client, inputs="good " * (maximum + 5))["results"]
    assert result["truncated"]
    assert result["tokens"] == maximum
    assert result["tokens_left_out"] == 7


def test_vectors_by_pool(client: TestClient) -> None:
    cls, mean = embed(client, [TEXT, ""]), embed(client, TEXT, pool="mean")
    assert (cls["pool"], mean["pool"]) == ("cls", "mean")
    assert cls["dimensions"] == len(cls["embeddings"][0]) == len(mean["embeddings"][0])
    assert cls["embeddings"][0] != mean["embeddings"][0]
    assert cls["embeddings"][1]["error"]["code"] == "empty_text"
    assert cls["usage"]["texts"] == 1


@pytest.mark.parametrize("pool", ["cls", "mean"])
def test_dimensions_keeps_the_first_values_and_normalize_makes_them_one_long(client: TestClient, pool: str) -> None:
    (whole,) = embed(client, TEXT, pool=pool)["embeddings"]
    answer = embed(client, TEXT, pool=pool, dimensions=5, normalize=True)
    (vector,) = answer["embeddings"]
    length = math.sqrt(sum(value**2 for value in whole[:5]))
    assert answer["dimensions"] == 5
    assert vector == pytest.approx([value / length for value in whole[:5]], abs=1e-5)


def test_info_names_the_model_and_the_limits(client: TestClient) -> None:
    found = client.get("/info").json()
    assert found["labels"] == ["negative", "neutral", "positive"]
    assert found["workers"] == 2
    assert found["limits"]["max_texts"] == 1000


def test_health_and_readiness(client: TestClient) -> None:
    assert client.get("/healthz").json() == {"status": "alive"}
    assert client.get("/readyz").json() == {"status": "ready"}


def test_docs_load_nothing_from_elsewhere(client: TestClient) -> None:
    page = client.get("/docs").text
    assert "http://" not in page
    assert "https://" not in page
    for asset in ("swagger-ui-bundle.js", "swagger-ui.css"):
        assert client.get(f"/static-offline-docs/{asset}").status_code == 200


def test_metrics_count_what_happened(client: TestClient) -> None:
    def value(name: str, **labels: str) -> float:
        for family in text_string_to_metric_families(client.get("/metrics").text):
            for sample in family.samples:
                if sample.name == name and labels.items() <= sample.labels.items():
                    return sample.value
        return 0.0

    watched: list[tuple[str, dict[str, str]]] = [
        ("sentiment_requests_total", {"route": "/classify", "status": "200"}),
        ("sentiment_texts_total", {"operation": "classify", "outcome": "ok"}),
        ("sentiment_texts_total", {"operation": "classify", "outcome": "invalid"}),
        ("sentiment_tokens_total", {"operation": "classify"}),
        ("sentiment_queue_seconds_count", {}),
        ("sentiment_tokenize_seconds_count", {}),
        ("sentiment_inference_seconds_count", {"graph": "classify"}),
        ("sentiment_truncated_texts_total", {}),
        ("sentiment_confidence_count", {}),
    ]
    before = [value(name, **labels) for name, labels in watched]
    answer = classify(client, inputs=[TEXT, "", "good " * 1000])
    after = [value(name, **labels) for name, labels in watched]
    grown = [round(b - a) for a, b in zip(before, after, strict=True)]
    assert grown == [1, 2, 1, answer["usage"]["tokens"], 3, 2, 2, 1, 2]
    assert value("sentiment_workers_alive") == 2
    assert value("sentiment_ready") == 1
    assert value("sentiment_queue_depth") == value("sentiment_running_texts") == 0


def test_metrics_name_route_templates_never_paths(client: TestClient) -> None:
    client.get("/somewhere/else")
    text = client.get("/metrics").text
    assert 'route="unmatched"' in text
    assert "somewhere" not in text


def test_a_request_keeps_the_id_it_came_with(client: TestClient) -> None:
    assert client.get("/healthz", headers={"x-request-id": "abc-1"}).headers["x-request-id"] == "abc-1"
    made = client.get("/healthz", headers={"x-request-id": "no spaces, please"}).headers["x-request-id"]
    assert made != "no spaces, please"
    assert len(made) == 32
