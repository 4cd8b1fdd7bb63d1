"""The Open Inference Protocol: the published `tritonclient`, which speaks it, against a running service."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import numpy as np
import pytest
from fastapi import FastAPI
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput
from tritonclient.utils import InferenceServerException

from tests.service.serving import overloaded

TEXTS = ["the film is good", "the film is bad"]
JSON = {"content-type": "application/json"}


@pytest.fixture
def client(url: str) -> Iterator[InferenceServerClient]:
    with InferenceServerClient(url.removeprefix("http://")) as made:
        yield made


def tensor(texts: list[str], shape: tuple[int, ...]) -> InferInput:
    made = InferInput("text", shape, "BYTES")
    made.set_data_from_numpy(np.array(texts, np.object_).reshape(shape), binary_data=False)
    return made


def infer(plain: httpx2.Client, model: str, **asked: Any) -> httpx2.Response:
    body = {"inputs": [{"name": "text", "shape": [2], "datatype": "BYTES", "data": TEXTS}], **asked}
    return plain.post(f"/v2/models/{model}/infer", json=body)


def test_health_and_metadata(client: InferenceServerClient, model: str) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready(model)
    assert not client.is_model_ready("other")
    assert client.get_server_metadata()["name"] == "sentiment-service"
    metadata = client.get_model_metadata(model)
    assert metadata["inputs"] == [{"name": "text", "datatype": "BYTES", "shape": [-1]}]
    assert [(one["name"], one["shape"]) for one in metadata["outputs"]] == [("label", [-1]), ("scores", [-1, 3])]


@pytest.mark.parametrize("shape", [(2,), (2, 1)])
def test_labels_and_scores(
    client: InferenceServerClient, plain: httpx2.Client, model: str, shape: tuple[int, ...]
) -> None:
    answer = client.infer(model, [tensor(TEXTS, shape)], request_id="42", headers=JSON)
    own = plain.post("/classify", json={"inputs": TEXTS}).json()["results"]
    scores = answer.as_numpy("scores")
    assert answer.get_response()["id"] == "42"
    assert answer.as_numpy("label").tolist() == [result["label"] for result in own]
    assert (scores.shape, scores.dtype) == ((2, 3), np.float32)
    assert scores == pytest.approx(np.array([list(result["scores"].values()) for result in own]), abs=1e-6)


def test_only_the_outputs_asked_for(client: InferenceServerClient, model: str) -> None:
    wanted = [InferRequestedOutput("scores", binary_data=False)]
    answer = client.infer(model, [tensor(TEXTS, (2,))], outputs=wanted, headers=JSON)
    assert answer.as_numpy("label") is None
    assert answer.as_numpy("scores").shape == (2, 3)


def test_nested_data(plain: httpx2.Client, model: str) -> None:
    nested = {"name": "any", "shape": [2, 1], "datatype": "BYTES", "data": [[text] for text in TEXTS]}
    assert infer(plain, model, inputs=[nested]).json() == infer(plain, model).json()


def test_the_client_raises_what_the_service_says(client: InferenceServerClient, model: str) -> None:
    with pytest.raises(InferenceServerException, match="text 2 of 2: the text is empty") as raised:
        client.infer(model, [tensor(["good", ""], (2,))], headers=JSON)
    assert raised.value.status() == "400"
    with pytest.raises(InferenceServerException, match="'other' does not exist here") as raised:
        client.get_model_metadata("other")
    assert raised.value.status() == "404"


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"inputs": []}, "inputs: "),
        ({"inputs": [{"name": "t", "shape": [1], "datatype": "FP32", "data": [1.0]}]}, "datatype: "),
        ({"inputs": [{"name": "t", "shape": [3], "datatype": "BYTES", "data": ["a"]}]}, "shape [3] does not fit 1"),
        ({"inputs": [{"name": "t", "shape": [1], "datatype": "BYTES", "data": "a"}]}, "data: "),
        ({"outputs": [{"name": "logits"}]}, "outputs.0.name: "),
    ],
)
def test_a_wrong_request_is_a_400(plain: httpx2.Client, model: str, asked: dict[str, Any], reason: str) -> None:
    answer = infer(plain, model, **asked)
    assert answer.status_code == 400
    assert set(answer.json()) == {"error"}
    assert reason in answer.json()["error"]


def test_a_full_queue(plain: httpx2.Client, app: FastAPI, model: str) -> None:
    with overloaded(app):
        answer = infer(plain, model)
    assert answer.status_code == 429
    assert int(answer.headers["retry-after"]) >= 1


def test_without_a_model(client: InferenceServerClient, model: str, unloaded: None) -> None:
    assert client.is_server_live()
    assert not client.is_server_ready()
    assert not client.is_model_ready(model)
