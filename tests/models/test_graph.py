"""The graphs compute what BERT computes: each text alone, in padded batches, and in the last layer for [CLS] alone."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

onnx = pytest.importorskip("onnx", reason="onnx belongs to the training set: make test-models")
pytest.importorskip("safetensors", reason="safetensors belongs to the training set: make test-models")

import onnxruntime  # noqa: E402
from safetensors.numpy import load_file  # noqa: E402

from models import calibration, products, storage  # noqa: E402
from models.checkpoint import Bert  # noqa: E402
from models.graph import Product, classify_graph, embed_graph  # noqa: E402
from models.packed import TEXTS, packed_graph  # noqa: E402

LENGTHS = (1, 2, 3, 8, 25, 64)


def some_ids(length: int, seed: int = 0) -> NDArray[np.int64]:
    return np.random.default_rng(seed).integers(5, 100, length)


def run(model: Any, ids: NDArray[np.int64]) -> list[NDArray[np.float32]]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    answers: list[NDArray[np.float32]] = session.run(None, {"input_ids": ids})
    return answers


@pytest.fixture(scope="module")
def bert(checkpoint: Path) -> Bert:
    return Bert.read(checkpoint)


@pytest.fixture(scope="module")
def ways(bert: Bert) -> dict[str, Product]:
    texts = [some_ids(3 + seed % 30, seed) for seed in range(40)]
    seen = calibration.calibrate(bert, texts, 20)
    fitted = calibration.int8(seen, fitted=True)
    return {
        "float32": products.float32,
        "dynamic": products.DynamicInt8(calibration.int8(seen, fitted=False)),
        "fitted": products.DynamicInt8(fitted),
        "static": products.StaticInt8(fitted),
        "blocks": products.Blocks8Bit(32),
        "either": products.Either((".down",), products.Blocks8Bit(32), products.DynamicInt8(fitted)),
    }


def test_equals_torch(checkpoint: Path, bert: Bert) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    model = transformers.BertForSequenceClassification.from_pretrained(checkpoint).eval()
    for length in LENGTHS:
        ids = some_ids(length)[None]
        with torch.inference_mode():
            expected = model(input_ids=torch.from_numpy(ids), output_hidden_states=True)
        hidden = expected.hidden_states[-1].numpy()
        logits, cls = run(classify_graph(bert, products.float32), ids)
        np.testing.assert_allclose(logits, expected.logits.numpy(), atol=1e-5)
        np.testing.assert_allclose(cls, hidden[:, 0], atol=1e-5)
        pooled = run(embed_graph(bert, products.float32), ids)
        for found, exact in zip(pooled, (hidden.mean(axis=1), hidden.max(axis=1), hidden[:, 0]), strict=True):
            np.testing.assert_allclose(found, exact, atol=1e-5)


def test_a_batch_of_one_length_is_its_texts(bert: Bert) -> None:
    ids = np.stack([some_ids(17, row) for row in range(3)])
    for write in (classify_graph, embed_graph):
        model = write(bert, products.float32)
        for row in range(len(ids)):
            for together, one in zip(run(model, ids), run(model, ids[row : row + 1]), strict=True):
                np.testing.assert_allclose(together[row], one[0], atol=1e-5)


def test_the_first_row_of_a_full_last_layer(bert: Bert) -> None:
    for length in LENGTHS:
        ids = some_ids(length)[None]
        _, ours = run(classify_graph(bert, products.float32), ids)
        *_, full = run(embed_graph(bert, products.float32), ids)
        np.testing.assert_allclose(ours, full, atol=1e-5)


@pytest.mark.parametrize("way", ["dynamic", "fitted", "static", "blocks", "either"])
def test_every_way_is_close_to_float32(bert: Bert, ways: dict[str, Product], way: str) -> None:
    allowed = 0.3 if way == "static" else 0.1  # few texts calibrate here: values beyond their range are clipped
    for write in (classify_graph, embed_graph):
        model, exact = write(bert, ways[way], half_words=True), write(bert, products.float32)
        for length in LENGTHS:
            ids = some_ids(length, length)[None]
            for ours, theirs in zip(run(model, ids), run(exact, ids), strict=True):
                assert np.abs(ours - theirs).max() < allowed * np.abs(theirs).max() + 0.05


def test_half_of_the_words(bert: Bert) -> None:
    tables = [
        next(t for t in classify_graph(bert, products.float32, half_words=half).graph.initializer if t.name == "words")
        for half in (False, True)
    ]
    assert len(tables[0].raw_data) == 2 * len(tables[1].raw_data)


def test_no_shape_arithmetic(bert: Bert) -> None:
    nodes = [node.op_type for node in classify_graph(bert, products.float32).graph.node]
    assert nodes.count("Shape") == 1
    assert not {"Reshape", "Concat", "Expand"} & set(nodes)
    assert nodes.count("Transpose") == 1  # of the scores of [CLS], small


def test_graphs_share_their_weights(tmp_path: Path, bert: Bert) -> None:
    models = {"a.onnx": embed_graph(bert, products.float32), "b.onnx": embed_graph(bert, products.float32)}
    storage.save(tmp_path / "both", models)
    storage.save(tmp_path / "one", {"a.onnx": embed_graph(bert, products.float32)})
    assert (tmp_path / "both/weights.bin").stat().st_size == (tmp_path / "one/weights.bin").stat().st_size
    loaded = onnx.load(tmp_path / "both/b.onnx")
    ids = some_ids(9)[None]
    np.testing.assert_array_equal(run(loaded, ids)[0], run(embed_graph(bert, products.float32), ids)[0])


def test_a_block_with_split_channels_is_the_same_function(bert: Bert) -> None:
    texts = [some_ids(10, seed) for seed in range(5)]
    split = calibration.split_channels(bert, texts, 8)
    assert split.layers[0].up.weight.shape == (32, 72)
    ids = texts[0][None]
    for write in (classify_graph, embed_graph):
        for ours, theirs in zip(
            run(write(split, products.float32), ids), run(write(bert, products.float32), ids), strict=True
        ):
            np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_rounding_by_what_the_inputs_are_like() -> None:
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(24, 24))
    rows = (rng.normal(size=(500, 24)) @ mixing).astype(np.float32)
    weight = rng.normal(size=(24, 16)).astype(np.float32)
    scale = calibration.channel_scale(weight, bits=4)
    exact = rows @ weight

    def error(values: NDArray[np.int8]) -> float:
        return float(np.square(rows @ (values * scale) - exact).mean())

    fitted = calibration.gptq(weight, scale, rows, bits=4)
    assert np.abs(fitted).max() <= 7
    assert error(fitted) < 0.6 * error(calibration.round_to(weight, scale, bits=4))


def test_smoothing_takes_care_of_a_channel_that_stands_out(bert: Bert) -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(50, 32)).astype(np.float32)
    rows[0, 3] = 100
    weight = rng.normal(size=(32, 32)).astype(np.float32)
    seen = calibration.Calibration({"m": weight}, {"m": [rows]})
    plain, fitted = (calibration.int8(seen, fitted=fitted)["m"] for fitted in (False, True))
    assert (plain.smoothing == 1).all()
    assert fitted.smoothing[3] == fitted.smoothing.max() > 2
    assert (fitted.high - fitted.low) < (plain.high - plain.low)


@pytest.mark.parametrize(("key", "value"), [("hidden_act", "silu"), ("position_embedding_type", "relative_key")])
def test_another_architecture_is_refused(checkpoint: Path, key: str, value: str) -> None:
    config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    with pytest.raises(ValueError, match=f"{key} '{value}'"):
        Bert.from_state(load_file(checkpoint / "model.safetensors"), config | {key: value})


def test_a_checkpoint_without_a_head_is_refused(checkpoint: Path) -> None:
    state = load_file(checkpoint / "model.safetensors")
    del state["classifier.weight"]
    config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    with pytest.raises(ValueError, match=r"no classifier\.weight"):
        Bert.from_state(state, config)


@pytest.mark.parametrize("lengths", [(8, 8, 8, 8), (1, 64, 3, 20), (30, 1, 1, 2)])
def test_texts_packed_into_one_run_are_answered_as_each_alone(
    bert: Bert, ways: dict[str, Product], lengths: tuple[int, ...]
) -> None:
    texts = [some_ids(length, seed) for seed, length in enumerate(lengths)]
    feed = {
        "input_ids": np.concatenate(texts)[None],
        "position_ids": np.concatenate([np.arange(length) for length in lengths]),
        "lengths": np.array(lengths),
    }
    for way, exact in {"float32": False, "static": True}.items():
        graph = packed_graph(bert, ways[way]).SerializeToString()
        session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
        logits, cls = session.run(["logits", "cls"], feed)
        assert len(logits) == len(cls) == TEXTS
        alone = [run(classify_graph(bert, ways[way]), ids[None]) for ids in texts]
        for together, each in ((logits, [one[0] for one in alone]), (cls, [one[1] for one in alone])):
            np.testing.assert_allclose(together, np.concatenate(each), atol=1e-5)
            assert together.tobytes() == np.concatenate(each).tobytes() or not exact


def test_distances_of_tokens_are_of_one_text(bert: Bert) -> None:
    with pytest.raises(ValueError, match="distances of tokens"):
        packed_graph(replace(bert, distances=np.zeros((4, 127), np.float32)), products.float32)
