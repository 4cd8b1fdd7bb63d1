"""What the routes answer when all is well."""

from __future__ import annotations

import base64
import math
import time
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient
from structlog.testing import capture_logs

TEXT = "the film is good"


def classify(client: TestClient, query: str = "", **body: Any) -> dict[str, Any]:
    response = client.post(f"/classify?{query}", json=body)
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
    assert set(result) == {"label", "score", "scores", "valence", "tokens", "windows", "truncated"}
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
    (result,) = classify(client, "long_text=truncate", inputs="a " * (maximum + 5))["results"]
    assert result["truncated"]
    assert (result["tokens"], result["windows"], result["tokens_left_out"]) == (maximum, 1, 7)


def test_a_long_text_is_read_in_windows_by_default(client: TestClient) -> None:
    maximum = client.get("/info").json()["limits"]["max_tokens"]
    text = "the film is good . " * maximum
    (result,) = classify(client, "detail=windows", inputs=text)["results"]
    windows = result["window_scores"]
    assert not result["truncated"]
    (once,) = classify(client, inputs="the film is good .")["results"]
    assert result["tokens"] == (once["tokens"] - 2) * maximum + 2
    assert result["windows"] == len(windows) > 5
    assert windows[0]["start"] == 0
    assert windows[-1]["end"] == len(text.rstrip())
    for before, after in pairwise(windows):
        assert before["start"] < after["start"] <= before["end"] + 1 < after["end"]
        assert text[after["start"] :].startswith("the film")
        assert text[: before["end"]].endswith(".")
    (vector,) = embed(client, text, pool="mean")["embeddings"]
    assert len(vector) == client.get("/info").json()["dimensions"]


def test_a_window_is_answered_like_a_text_of_its_own(client: TestClient) -> None:
    text = "the film is good . " * 200
    (whole,) = classify(client, "detail=windows", inputs=text)["results"]
    alone = classify(client, inputs=[text[part["start"] : part["end"]] for part in whole["window_scores"]])["results"]
    assert [part["scores"] for part in whole["window_scores"]] == [one["scores"] for one in alone]
    weights = [one["tokens"] - 2 for one in alone]
    logits = classify(client, inputs=[text], raw_scores=True)["results"][0]["logits"]
    parts = classify(client, "detail=windows", inputs=text, raw_scores=True)["results"][0]["window_scores"]
    for label, logit in logits.items():
        mean = sum(w * part["logits"][label] for w, part in zip(weights, parts, strict=True)) / sum(weights)
        assert logit == pytest.approx(mean, abs=1e-5)


def test_sentences_have_offsets_into_the_text_as_it_was_sent(client: TestClient) -> None:
    text = "The film is good. 😡 &amp; bad?\r\nCafe\u0301 — it’s fine!"
    (result,) = classify(client, "detail=sentences", inputs=text)["results"]
    found = [text[part["start"] : part["end"]] for part in result["sentences"]]
    assert found == ["The film is good.", "😡 &amp; bad?", "Cafe\u0301 — it’s fine!"]


def test_below_min_score_there_is_no_label(client: TestClient) -> None:
    (sure,) = classify(client, inputs=TEXT)["results"]
    (kept,) = classify(client, inputs=TEXT, min_score=0.01)["results"]
    (none,) = classify(client, inputs=TEXT, min_score=1.0)["results"]
    assert "abstained" not in sure
    assert kept == sure | {"abstained": False}
    assert none == sure | {"abstained": True, "label": None}


def test_an_explanation_is_what_masking_each_word_takes_away(client: TestClient) -> None:
    text = "the film isn’t good 😡 !"
    answer = client.post("/explain", json={"inputs": [text, ""]}).json()
    explained, failed = answer["results"]
    assert failed["error"]["code"] == "empty_text"
    assert [word["word"] for word in explained["words"]] == ["the", "film", "isn’t", "good", "😡", "!"]
    assert all(text[word["start"] : word["end"]] == word["word"] for word in explained["words"])
    inference = client.app.state.service.models.get()  # type: ignore[attr-defined]
    reading = inference._tokenizer.read(text)
    masked = inference._head.read(
        inference._engine.classify(reading.masked((15, 19), inference._tokenizer.mask)).logits
    )
    taken = explained["score"] - masked["probabilities"][inference.manifest.labels.index(explained["label"])]
    assert explained["words"][3]["effect"] == pytest.approx(taken, abs=2e-6)
    (plain,) = classify(client, inputs=text)["results"]
    assert explained["scores"] == plain["scores"]


def test_vectors_by_pool(client: TestClient) -> None:
    cls, mean = embed(client, [TEXT, ""]), embed(client, TEXT, pool="mean")
    assert (cls["pool"], mean["pool"]) == ("cls", "mean")
    assert cls["dimensions"] == len(cls["embeddings"][0]) == len(mean["embeddings"][0])
    assert cls["embeddings"][0] != mean["embeddings"][0]
    assert cls["embeddings"][1]["error"]["code"] == "empty_text"
    assert cls["usage"]["texts"] == 1


def test_pools_of_all_tokens_come_from_one_run(client: TestClient) -> None:
    assert client.get("/info").json()["pools"] == ["cls", "mean", "max", "cls,mean"]
    (mean,), (largest,) = (embed(client, TEXT, pool=pool)["embeddings"] for pool in ("mean", "max"))
    both = embed(client, TEXT, pool="cls,mean")
    (joined,) = both["embeddings"]
    assert both["dimensions"] == len(joined) == 2 * len(mean)
    assert joined[len(mean) :] == mean
    (cls,) = embed(client, TEXT, pool="cls")["embeddings"]
    assert joined[: len(mean)] == pytest.approx(cls, abs=0.1)
    assert all(high >= middle for high, middle in zip(largest, mean, strict=True))
    assert len(embed(client, TEXT, pool="cls,mean", dimensions=40)["embeddings"][0]) == 40


def test_the_maximum_of_a_long_text_is_that_of_its_windows(client: TestClient) -> None:
    text = "the film is good . " * 30
    (whole,) = classify(client, "detail=windows", inputs=text)["results"]
    windows = [text[part["start"] : part["end"]] for part in whole["window_scores"]]
    assert len(windows) > 1
    parts = embed(client, windows, pool="max")["embeddings"]
    assert embed(client, text, pool="max")["embeddings"] == [[max(values) for values in zip(*parts, strict=True)]]


def test_base64_holds_the_same_vector(client: TestClient) -> None:
    (numbers,) = embed(client, TEXT)["embeddings"]
    packed, failed = embed(client, [TEXT, ""], encoding="base64")["embeddings"]
    assert np.frombuffer(base64.b64decode(packed), "<f4").tolist() == pytest.approx(numbers, abs=1e-7)
    assert failed["error"]["code"] == "empty_text"


@pytest.mark.parametrize("pool", ["cls", "mean", "max", "cls,mean"])
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
        ("sentiment_run_texts_sum", {"graph": "classify"}),
        ("sentiment_truncated_texts_total", {}),
        ("sentiment_confidence_count", {}),
    ]
    before = [value(name, **labels) for name, labels in watched]
    answer = classify(client, "long_text=truncate", inputs=[TEXT, "", "good " * 1000])
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


def server_timing(answer: Any) -> dict[str, float]:
    stages = (stage.split(";dur=") for stage in answer.headers["server-timing"].split(", "))
    return {name: float(milliseconds) for name, milliseconds in stages}


@pytest.mark.parametrize("route", ["/classify", "/embed", "/explain", "/tei/embed"])
def test_server_timing_says_where_the_time_went(client: TestClient, route: str) -> None:
    began = time.perf_counter()
    spent = server_timing(client.post(route, json={"inputs": [TEXT]}))
    assert list(spent) == ["queue", "tokenize", "infer"]
    assert min(spent.values()) >= 0
    assert sum(spent.values()) <= (time.perf_counter() - began) * 1000


def test_what_is_not_queued_has_no_server_timing(client: TestClient) -> None:
    assert "server-timing" not in client.get("/info").headers
    assert "infer" not in server_timing(client.post("/classify", json={"inputs": [""]}))


def test_the_log_line_of_a_request_says_where_the_time_went(client: TestClient) -> None:
    with capture_logs() as lines:
        answer = client.post("/classify", json={"inputs": [TEXT] * 3})
    (line,) = (line for line in lines if line["event"] == "request")
    assert {name: line[f"{name}_milliseconds"] for name in ("queue", "tokenize", "infer")} == server_timing(answer)
    assert line["texts"] == 3


def test_words_that_the_vocabulary_lacks_are_counted(client: TestClient) -> None:
    def count() -> float:
        metric = client.app.state.service.metrics  # type: ignore[attr-defined] # a FastAPI
        return float(metric.registry.get_sample_value("sentiment_unknown_tokens_total"))

    before = count()
    classify(client, inputs=[f"{TEXT} \u4e00 \u4e8c", TEXT])
    assert count() == before + 2
