"""Every tail gives the vector that it stands for; operations are counted as the served graphs have them."""

from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="onnx belongs to the training set: make test-models")

from models.storage import WEIGHTS  # noqa: E402
from models.study import cost  # noqa: E402
from models.study.cost import WAYS, Shape, shape, with_tail  # noqa: E402
from models.study.record import read  # noqa: E402
from service.artifact import Artifact  # noqa: E402
from service.engine import Engine, session  # noqa: E402

TINY = Path(__file__).parents[2] / "tiny"
IDS = np.array([[2, 17, 90, 33, 41, 3]], np.int64)
SMALL = [name for name in WAYS if "last4" not in name]  # the tests' model has two layers


def vector(name: str, folder: Path) -> np.ndarray:
    artifact = Artifact.open(TINY)
    graphs = artifact.manifest.graphs
    source = onnx.load(TINY / (graphs.classify if WAYS[name].cls_only else graphs.embed), load_external_data=False)
    (folder / WEIGHTS).write_bytes((TINY / WEIGHTS).read_bytes())
    (folder / f"{name}.onnx").write_bytes(with_tail(source, WAYS[name]).SerializeToString())
    graph = session(folder / f"{name}.onnx")
    feed = {given.name: IDS if given.name == "input_ids" else np.ones_like(IDS) for given in graph.get_inputs()}
    return graph.run(["study.out"], feed)[0].reshape(-1)


def test_tails_give_what_the_service_gives(tmp_path: Path) -> None:
    engine = Engine(Artifact.open(TINY))
    vectors = {name: vector(name, tmp_path) for name in SMALL}
    mean = engine.embed(IDS[0])
    np.testing.assert_allclose(vectors["mean"], mean, atol=1e-4)
    np.testing.assert_allclose(vectors["cls-only"], engine.classify(IDS[0]).cls, atol=1e-4)
    np.testing.assert_allclose(vectors["cls-mean"], np.concatenate([vectors["cls"], mean]), atol=1e-4)
    assert (vectors["max"] >= mean - 1e-4).all()
    assert np.abs(vectors["cls"] - vectors["cls-only"]).max() < 0.3  # two graphs, quantized each for itself
    assert vectors["attention"].shape == mean.shape
    assert (vectors["attention"] <= vectors["max"] + 1e-4).all()


def test_what_a_vector_does_not_need_is_not_in_its_graph(tmp_path: Path) -> None:
    source = onnx.load(TINY / "classify.onnx", load_external_data=False)
    names = {tensor.name for tensor in with_tail(source, WAYS["cls-only"]).graph.initializer}
    assert any(name.startswith("1.cls.down") for name in names)
    assert not any(name.startswith(("pooler", "classifier", "study")) for name in names)


def test_operations_are_those_of_the_products() -> None:
    sizes = Shape(layers=3, hidden=8, inner=32, heads=2)
    n, h, f = 5, 8, 32
    layer = 2 * (n * h * 3 * h + n * n * h + n * n * h + n * h * h + n * h * f + n * f * h)
    assert sizes.flops(n, WAYS["cls"]) == 3 * layer
    assert sizes.flops(n, WAYS["max"]) == 3 * layer + n * h
    query_out_feed = 2 * (h * h + h * h + h * f + f * h)
    key_scores_context_value = 2 * 2 * (h * h + n * h + n * h + h * h)
    assert sizes.flops(n, WAYS["cls-only"]) == 2 * layer + query_out_feed + key_scores_context_value


def test_sizes_are_read_off_the_graphs() -> None:
    embed, classify = (onnx.load(TINY / f"{name}.onnx", load_external_data=False) for name in ("embed", "classify"))
    found = shape(embed, classify)
    assert (found.layers, found.hidden, found.heads) == (2, 32, 4)
    assert found.inner >= 64


def test_every_pooling_is_timed_at_every_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "LENGTHS", (4, 8))
    monkeypatch.setattr(cost, "ROUNDS", 2)
    monkeypatch.setattr(cost, "WAYS", {name: WAYS[name] for name in SMALL})
    monkeypatch.setattr(cost, "VOCABULARY", (5, 200))
    cost.run(TINY, tmp_path / "cost.json")
    rows = read(tmp_path / "cost.json")[1]
    assert [(row["tokens"], row["pooling"]) for row in rows] == [(n, name) for n in (4, 8) for name in SMALL]
    assert all(row["microseconds"] > 0 for row in rows)
