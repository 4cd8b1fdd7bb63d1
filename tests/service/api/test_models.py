"""Several models in one service: which of them answers, on every route that has one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from service.api.app import create_app
from service.artifact import Artifact
from service.settings import Settings
from tests.service.api.conftest import TINY, Start
from tests.service.variants import OTHER_LABELS, variant

TEXT = "the film is good"
KSERVE = {"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": [TEXT]}]}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """One application over two models, `a` the default, the other labels under `b`."""
    other = variant(tmp_path_factory.mktemp("models") / "other", temperature=2.0)
    settings = Settings(models=f"a={TINY},b={other}", workers=2)
    with TestClient(create_app(settings), raise_server_exceptions=False) as started:
        yield started


def test_models_says_what_there_is(client: TestClient) -> None:
    a, b = client.get("/models").json()["models"]
    assert a == {
        "name": "a",
        "state": "ready",
        "default": True,
        "digest": Artifact.open(TINY).digest,
        "labels": ["negative", "neutral", "positive"],
        "head": "softmax",
        "pools": client.get("/info").json()["pools"],
        "dimensions": 32,
        "max_tokens": 64,
    }
    assert (b["name"], b["default"], b["labels"]) == ("b", False, OTHER_LABELS)
    assert a["digest"] != b["digest"]


@pytest.mark.parametrize(("query", "model"), [("", "a"), ("?model=a", "a"), ("?model=b", "b")])
def test_every_route_of_ours_answers_with_the_model_asked(client: TestClient, query: str, model: str) -> None:
    expected = OTHER_LABELS if model == "b" else ["negative", "neutral", "positive"]
    for path in ("/classify", "/explain"):
        answer = client.post(path + query, json={"inputs": TEXT}).json()
        assert answer["model"] == model
        assert list(answer["results"][0]["scores"]) == expected
    assert client.post("/embed" + query, json={"inputs": TEXT}).json()["model"] == model
    info = client.get("/info" + query).json()
    assert (info["model"], info["labels"], info["temperature"] == 2) == (model, expected, model == "b")
    assert info["digest"] == client.get("/models").json()["models"]["ab".index(model)]["digest"]


def test_the_same_weights_give_the_same_numbers_under_either_name(client: TestClient) -> None:
    results = [
        client.post(f"/classify?model={name}", json={"inputs": TEXT, "raw_scores": True}).json()["results"][0]
        for name in ("a", "b")
    ]
    assert list(results[0]["logits"].values()) == list(results[1]["logits"].values())
    assert results[0]["valence"]
    assert results[1]["valence"] is None


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/classify", {"inputs": TEXT}),
        ("POST", "/embed", {"inputs": TEXT}),
        ("POST", "/explain", {"inputs": TEXT}),
        ("GET", "/info", None),
    ],
)
def test_an_unknown_model_is_not_found_and_those_there_are_are_named(
    client: TestClient, method: str, path: str, body: Any
) -> None:
    answer = client.request(method, f"{path}?model=c", json=body)
    assert answer.status_code == 404
    assert answer.json() == {
        "error": {
            "code": "unknown_model",
            "message": "the model 'c' does not exist here; there is a or b",
            "param": "model",
        }
    }


def test_the_drop_ins_that_name_a_model_get_it(client: TestClient) -> None:
    names = [one["id"] for one in client.get("/v1/models").json()["data"]]
    assert {"a", "a:mean", "a:cls", "b", "b:mean", "b:cls"} <= set(names)
    answer = client.post("/v1/embeddings", json={"model": "b:cls", "input": TEXT}).json()
    own = client.post("/embed?model=b&pool=cls&normalize=true", json={"inputs": TEXT}).json()
    assert answer["model"] == "b:cls"
    assert answer["data"][0]["embedding"] == pytest.approx(own["embeddings"][0], abs=1e-6)
    answer = client.post("/v2/models/b/infer", json=KSERVE).json()
    assert answer["model_name"] == "b"
    assert answer["outputs"][0]["data"][0] in OTHER_LABELS
    assert client.get("/v2/models/b").json()["name"] == "b"
    assert client.get("/v2/models/b/ready").json() == {"name": "b", "ready": True}


def test_the_drop_ins_that_name_none_take_it_from_the_address(client: TestClient) -> None:
    for path, body in (
        ("/hf/text-classification", {"inputs": TEXT}),
        ("/tei/predict", {"inputs": [[TEXT]]}),
    ):
        found = {query: client.post(path + query, json=body).json()[0] for query in ("", "?model=a", "?model=b")}
        assert found[""] == found["?model=a"]
        assert {one["label"] for one in found["?model=b"]} == set(OTHER_LABELS)
    for path in ("/hf/feature-extraction", "/tei/embed"):
        assert client.post(f"{path}?model=b", json={"inputs": TEXT}).status_code == 200
    info = client.get("/tei/info?model=b").json()
    assert (info["model_id"], set(info["model_type"]["classifier"]["label2id"])) == ("b", set(OTHER_LABELS))
    assert info["model_sha"] == client.get("/info?model=b").json()["digest"]


def test_an_unknown_model_is_told_as_each_peer_tells_it(client: TestClient) -> None:
    message = "the model 'c' does not exist here; there is a or b"
    for path in ("/hf/text-classification?model=c", "/hf/feature-extraction?model=c"):
        answer = client.post(path, json={"inputs": TEXT})
        assert (answer.status_code, answer.json()) == (404, {"error": message})
    for path in ("/tei/predict?model=c", "/tei/embed?model=c"):
        answer = client.post(path, json={"inputs": TEXT})
        assert (answer.status_code, answer.json()) == (404, {"error": message, "error_type": "Validation"})
    answer = client.post("/v2/models/c/infer", json=KSERVE)
    assert (answer.status_code, answer.json()) == (404, {"error": message})
    answer = client.post("/v1/embeddings", json={"model": "c", "input": TEXT})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")
    assert "a or a:mean" in answer.json()["error"]["message"]


def test_one_that_fails_leaves_the_others_and_is_the_reason_not_to_be_ready(start: Start, tmp_path: Path) -> None:
    client = start(models=f"a={TINY},b={tmp_path}")
    ready = client.get("/readyz")
    assert ready.status_code == 503
    assert "manifest.json cannot be read" in ready.json()["error"]["message"]
    assert client.post("/classify", json={"inputs": TEXT}).status_code == 200
    failed = client.post("/classify?model=b", json={"inputs": TEXT})
    assert (failed.status_code, failed.json()["error"]["code"]) == (503, "unavailable")
    a, b = client.get("/models").json()["models"]
    assert (a["state"], b["state"]) == ("ready", "failed")
    assert "manifest.json cannot be read" in b["reason"]
    assert client.get("/v2/health/ready").status_code == 503
    assert client.get("/v2/models/a/ready").status_code == 200


def test_metrics_tell_the_models_apart(client: TestClient) -> None:
    def value(name: str, **labels: str) -> float:
        for family in text_string_to_metric_families(client.get("/metrics").text):
            for sample in family.samples:
                if sample.name == name and labels.items() <= sample.labels.items():
                    return sample.value
        return 0.0

    watched: list[tuple[str, dict[str, str]]] = [
        (name, {"model": model, **more})
        for name, more in (
            ("sentiment_texts_total", {"operation": "classify", "outcome": "ok"}),
            ("sentiment_tokens_total", {"operation": "classify"}),
        )
        for model in ("a", "b")
    ]
    before = [value(name, **labels) for name, labels in watched]
    answer = client.post("/classify?model=b", json={"inputs": [TEXT, TEXT]}).json()
    after = [value(name, **labels) for name, labels in watched]
    assert [b - a for a, b in zip(before, after, strict=True)] == [0, 2, 0, answer["usage"]["tokens"]]
    assert value("sentiment_predictions_total", model="b", label=answer["results"][0]["label"]) >= 2
    digest = client.get("/info?model=b").json()["digest"]
    assert value("sentiment_model_info", model="b", digest=digest) == 1
