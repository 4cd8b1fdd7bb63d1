"""Each family's graphs compute what its checkpoint computes in PyTorch, from one token to the most it reads."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

onnx = pytest.importorskip("onnx", reason="onnx belongs to the training set: make test-models")
torch = pytest.importorskip("torch", reason="PyTorch belongs to the training set: make test-models")

import onnxruntime  # noqa: E402

from models.families import FAMILIES  # noqa: E402
from models.families.encoder import Encoder  # noqa: E402
from models.graph import Graph  # noqa: E402
from models.original import Original  # noqa: E402
from models.products import float32  # noqa: E402
from tests.models.families.making import LONGEST, TOKENIZERS, classifier, config  # noqa: E402

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{family: (family, {}) for family in TOKENIZERS},
    "deberta-v2 with a convolution": ("deberta-v2", {"conv_kernel_size": 3, "conv_act": "gelu"}),
    "deberta-v2 with keys of its own": ("deberta-v2", {"share_att_key": False, "pos_att_type": "c2p|p2c"}),
    "deberta-v2 without distances": (
        "deberta-v2",
        {"relative_attention": False, "position_biased_input": True, "type_vocab_size": 2, "pos_att_type": []},
    ),
    "modernbert with the mean": ("modernbert", {"classifier_pooling": "mean"}),
    "bert with relu": ("bert", {"hidden_act": "relu"}),
}


def session(model: Any) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def run(graph: onnxruntime.InferenceSession, ids: NDArray[np.int64]) -> dict[str, NDArray[np.float32]]:
    names = [output.name for output in graph.get_outputs()]
    return dict(zip(names, graph.run(names, {"input_ids": ids[None]}), strict=True))


class Recorder:
    """Multiplies in float32 and notes what feeds the feed-forward blocks."""

    def __init__(self) -> None:
        self.fed: list[str] = []

    def __call__(self, graph: Graph, x: str, name: str, weight: Any, bias: Any) -> str:
        if name.endswith(".up"):
            self.fed.append(x)
        return float32(graph, x, name, weight, bias)


@pytest.mark.parametrize("variant", VARIANTS)
def test_equals_torch_at_every_length(variant: str) -> None:
    family, changes = VARIANTS[variant]
    original = Original(classifier(config(family, **changes)), frozenset())
    encoder: Encoder = FAMILIES[family](original.state, original.config)
    assert encoder.max_tokens == LONGEST
    assert encoder.last_layer == ("full" if changes.get("classifier_pooling") == "mean" else "cls_only")
    recorder = Recorder()
    graphs = [encoder.classify(recorder), encoder.classify(float32, full=True), encoder.embed(float32)]
    last = recorder.fed[-1]
    graphs[0].graph.output.add(name=last)
    sessions = [session(graph) for graph in graphs]
    rng = np.random.default_rng(0)
    logits: list[NDArray[np.float32]] = []
    for length in (1, 2, 3, 7, 20, LONGEST):
        ids = rng.integers(5, 100, length)
        expected = original.answer(ids)
        *classified, embedded = (run(one, ids) for one in sessions)
        for answer in classified:
            np.testing.assert_allclose(answer["logits"][0], expected.logits, atol=2e-5)
            np.testing.assert_allclose(answer["cls"][0], expected.cls, atol=2e-5)
        np.testing.assert_allclose(embedded["mean"][0], expected.mean, atol=2e-5)
        np.testing.assert_allclose(embedded["cls"][0], expected.cls, atol=2e-5)
        rows = classified[0][last].reshape(-1, encoder.hidden_size).shape[0]
        assert rows == (1 if encoder.last_layer == "cls_only" else length)
        logits.append(expected.logits)
    assert np.std(logits, axis=0).min() > 0.01, "the texts must tell in the logits, or nothing was compared"
