"""text-embeddings-inference's wire format, `langchain-huggingface` among those that speak it, against a service."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from huggingface_hub import AsyncInferenceClient, InferenceClient, close_session
from langchain_huggingface import HuggingFaceEndpointEmbeddings

from service.errors import EngineError
from tests.service.serving import overloaded

TEXT = "the film is good"
LONG = "good " * 200


def predict(plain: httpx2.Client, inputs: object, **asked: object) -> Any:
    answer = plain.post("/tei/predict", json={"inputs": inputs, **asked})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_one_text_gives_a_list_of_labels_and_a_batch_one_for_each(plain: httpx2.Client) -> None:
    one = predict(plain, TEXT)
    assert [set(found) for found in one] == [{"label", "score"}] * 3
    assert [found["score"] for found in one] == sorted((found["score"] for found in one), reverse=True)
    assert predict(plain, [TEXT]) == one
    assert predict(plain, [[TEXT], ["bad"]]) == [one, predict(plain, "bad")]


def test_raw_scores_are_logits(plain: httpx2.Client) -> None:
    own = plain.post("/classify", json={"inputs": TEXT, "raw_scores": True}).json()["results"][0]
    assert {found["label"]: found["score"] for found in predict(plain, TEXT, raw_scores=True)} == own["logits"]
    assert {found["label"]: found["score"] for found in predict(plain, TEXT)} == own["scores"]


@pytest.mark.parametrize(
    ("asked", "query"),
    [({}, {"normalize": "true"}), ({"normalize": False, "dimensions": 4}, {"normalize": "false", "dimensions": "4"})],
)
def test_embed_normalizes_unless_told_otherwise(
    plain: httpx2.Client, asked: dict[str, object], query: dict[str, str]
) -> None:
    found = plain.post("/tei/embed", json={"inputs": [TEXT, "bad"], **asked}).json()
    own = plain.post("/embed", json={"inputs": [TEXT, "bad"]}, params={"pool": "mean", **query}).json()
    assert found == own["embeddings"]


def test_a_long_text_is_cut_only_for_who_asks(plain: httpx2.Client) -> None:
    for path in ("/predict", "/embed"):
        asked = {"inputs": LONG, "truncate": True, "truncation_direction": "Right"}
        assert plain.post(f"/tei{path}", json=asked).status_code == 200
        refused = plain.post(f"/tei{path}", json={"inputs": LONG})
        assert refused.status_code == 413
        assert refused.json()["error_type"] == "Validation"
        assert "tokens and the model reads" in refused.json()["error"]


@pytest.mark.parametrize(
    ("path", "asked", "status", "kind"),
    [
        ("/predict", {"inputs": [TEXT, "bad"]}, 422, "Validation"),
        ("/predict", {"inputs": [[TEXT, "bad"]]}, 422, "Validation"),
        ("/predict", {"inputs": [[TEXT], "bad"]}, 422, "Validation"),
        ("/predict", {"inputs": [[TEXT]], "raw_scores": "yes"}, 422, "Validation"),
        ("/predict", {"inputs": []}, 422, "Validation"),
        ("/predict", {"inputs": 5}, 422, "Validation"),
        ("/predict", {}, 422, "Validation"),
        ("/predict", {"inputs": ""}, 400, "Empty"),
        ("/predict", {"inputs": [["a"]] * 9}, 413, "Validation"),
        ("/embed", {"inputs": []}, 400, "Empty"),
        ("/embed", {"inputs": ["good", ""]}, 400, "Empty"),
        ("/embed", {"inputs": "a\0"}, 422, "Tokenizer"),
        ("/embed", {"inputs": "a", "prompt_name": "query"}, 422, "Validation"),
        ("/embed", {"inputs": "a", "truncation_direction": "Left"}, 422, "Validation"),
        ("/embed", {"inputs": "a", "dimensions": 10_000}, 422, "Validation"),
    ],
)
def test_errors(plain: httpx2.Client, path: str, asked: dict[str, object], status: int, kind: str) -> None:
    answer = plain.post(f"/tei{path}", json=asked)
    assert (answer.status_code, answer.json()["error_type"]) == (status, kind)
    assert set(answer.json()) == {"error", "error_type"}


def test_a_body_that_turns_out_too_large_has_the_peers_shape(plain: httpx2.Client) -> None:
    body = iter([b'{"inputs": "', *[b"a" * 2**20] * 5, b'"}'])
    answer = plain.post("/tei/predict", content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["error_type"]) == (413, "Validation")


def test_a_full_queue_a_failed_run_and_a_deadline(
    plain: httpx2.Client, app: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    with overloaded(app):
        answer = plain.post("/tei/predict", json={"inputs": TEXT})
    assert (answer.status_code, answer.json()["error_type"]) == (429, "Overloaded")
    assert int(answer.headers["retry-after"]) >= 1

    seconds = [0.0, 0.5]

    def fail(*_: object, **__: object) -> None:
        time.sleep(seconds.pop(0))
        raise EngineError("the run failed")

    monkeypatch.setattr(app.state.service.models.get()._engine, "classify", fail)
    answer = plain.post("/tei/predict", json={"inputs": TEXT})
    assert (answer.status_code, answer.json()) == (424, {"error": "the run failed", "error_type": "Backend"})

    answer = plain.post("/tei/predict", json={"inputs": TEXT}, headers={"x-request-timeout": "0.000001"})
    assert (answer.status_code, answer.json()["error_type"]) == (504, "Backend")


def test_info(plain: httpx2.Client, model: str) -> None:
    info = plain.get("/tei/info").json()
    labels = info["model_type"]["classifier"]
    assert info["model_id"] == model
    assert labels["id2label"] == {"0": "negative", "1": "neutral", "2": "positive"}
    assert labels["label2id"] == {"negative": 0, "neutral": 1, "positive": 2}
    assert info["max_client_batch_size"] == 8


def test_health(plain: httpx2.Client) -> None:
    answer = plain.get("/tei/health")
    assert (answer.status_code, answer.content) == (200, b"")


def test_health_without_a_model(plain: httpx2.Client, unloaded: None) -> None:
    answer = plain.get("/tei/health")
    assert (answer.status_code, answer.json()["error_type"]) == (503, "Unhealthy")


def test_langchain(url: str) -> None:
    # It takes no URL as its model; the clients that it asks through can be given one.
    embeddings = HuggingFaceEndpointEmbeddings(model="sentiment-en")
    embeddings.client = InferenceClient(f"{url}/tei/embed")
    documents = embeddings.embed_documents([TEXT, "bad"])
    assert documents[0] == embeddings.embed_query(TEXT)
    close_session()

    async def asked() -> list[list[float]]:
        async with AsyncInferenceClient(f"{url}/tei/embed") as embeddings.async_client:
            return await embeddings.aembed_documents([TEXT, "bad"])

    assert asyncio.run(asked()) == documents
