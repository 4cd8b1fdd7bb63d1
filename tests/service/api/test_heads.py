"""Models whose labels do not exclude each other, and models that give a value, as a client sees them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from starlette.testclient import TestClient

from service.artifact import sha256
from service.files import operations
from tests.service.api.conftest import Start
from tests.service.variants import variant

TEXTS = ["What a joy!", "The bus was late again, and the driver was rude. It rained."]


@pytest.fixture
def several(start: Start, tmp_path: Path) -> TestClient:
    return start(model=variant(tmp_path / "several", head="multi_label", threshold=0.5))


@pytest.fixture
def value(start: Start, tmp_path: Path) -> TestClient:
    """The first of the tiny model's logits is the value."""
    onnx = pytest.importorskip("onnx", reason="onnx belongs to the training set: make test-models")
    folder = variant(tmp_path / "value", head="regression", labels=["usefulness"])
    model = onnx.load(folder / "classify.onnx", load_external_data=False)
    for node in model.graph.node:
        node.output[:] = ["all" if name == "logits" else name for name in node.output]
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([0]), "only"))
    model.graph.node.append(onnx.helper.make_node("Gather", ["all", "only"], ["logits"], axis=1))
    for output in model.graph.output:
        if output.name == "logits":
            output.type.tensor_type.shape.dim[1].dim_value = 1
    (folder / "classify.onnx").write_bytes(model.SerializeToString())
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    manifest["files"]["classify.onnx"] = sha256(folder / "classify.onnx")
    for golden in manifest["golden"]:
        golden["logits"] = golden["logits"][:1]
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return start(model=folder)


def classified(client: TestClient, path: str = "/classify", **body: Any) -> list[dict[str, Any]]:
    response = client.post(path, json={"inputs": TEXTS, **body})
    assert response.status_code == 200, response.text
    results: list[dict[str, Any]] = response.json()["results"]
    return results


def test_every_label_that_holds(several: TestClient) -> None:
    for result in classified(several, raw_scores=True):
        assert result["labels"] == [label for label, score in result["scores"].items() if score >= 0.5]
        assert result["labels"] == [label for label, logit in result["logits"].items() if logit >= 0]
        assert result["label"] == max(result["scores"], key=lambda label: float(result["scores"][label]))
        assert result["score"] == max(result["scores"].values())
        assert result["valence"] is None
    assert several.get("/info").json()["head"] == "multi_label"


def test_a_value(value: TestClient) -> None:
    for result in classified(value, raw_scores=True):
        assert {result[key] for key in ("label", "score", "valence")} == {None}
        assert result["scores"] == {}
        assert result["logits"] == {"usefulness": result["value"]}
    assert 'sentiment_predictions_total{label="usefulness",model="tiny"} 0.0' in value.get("/metrics").text


def test_choosing_among_labels_that_there_are_not_is_refused(value: TestClient) -> None:
    for body in ({"top_k": 1}, {"min_score": 0.5}):
        response = value.post("/classify", json={"inputs": TEXTS, **body})
        assert response.status_code == 422
        assert "gives a value and no labels" in response.json()["error"]["message"]


def test_parts_and_words(several: TestClient, value: TestClient) -> None:
    for client, key in ((several, "labels"), (value, "value")):
        result = classified(client, "/classify?detail=sentences")[1]
        assert len(result["sentences"]) == 2
        assert all(key in part for part in result["sentences"])
        explained = classified(client, "/explain")[1]
        assert key in explained
        assert any(word["effect"] for word in explained["words"])


def test_words_carry_the_value(value: TestClient) -> None:
    whole = classified(value, "/explain")[0]
    masked = value.post("/classify", json={"inputs": TEXTS[0]}).json()["results"][0]
    assert whole["value"] == masked["value"]
    assert max(abs(word["effect"]) for word in whole["words"]) > 0.01


def test_other_servers_formats(several: TestClient, value: TestClient) -> None:
    for client in (several, value):
        ours = classified(client, raw_scores=True)[0]
        expected = ours["scores"] or {"usefulness": ours["value"]}
        told = client.post("/hf/text-classification", json={"inputs": TEXTS}).json()[0]
        assert {one["label"]: one["score"] for one in told} == pytest.approx(expected, abs=2e-6)
        told = client.post("/tei/predict", json={"inputs": TEXTS[0]}).json()
        assert {one["label"]: one["score"] for one in told} == pytest.approx(expected, abs=2e-6)
        name = client.get("/info").json()["model"]
        tensor = {"name": "text", "shape": [1], "datatype": "BYTES", "data": TEXTS[:1]}
        outputs = client.post(f"/v2/models/{name}/infer", json={"inputs": [tensor]}).json()["outputs"]
        assert outputs[1]["data"] == pytest.approx(list(expected.values()), abs=2e-6)
        body = {"inputs": TEXTS, "parameters": {"function_to_apply": "none"}}
        told = client.post("/hf/text-classification", json=body).json()[0]
        assert {one["label"]: one["score"] for one in told} == pytest.approx(ours["logits"], abs=2e-6)


def test_files(several: TestClient, value: TestClient) -> None:
    for client, key in ((several, "labels"), (value, "value")):
        inference = client.app.state.service.models.get()  # type: ignore[attr-defined]
        operation = operations.classify(inference)
        (answer,) = operation.ask(TEXTS[:1]).result()
        row = dict(zip(operation.schema.names, (*operation.values(answer), None), strict=True))
        table = pa.Table.from_pylist([row], operation.schema)
        assert table.column(key).to_pylist() == [classified(client)[0][key]]
        assert (operation.labels is None) == (key == "value")
        assert json.dumps(row)
