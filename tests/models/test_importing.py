"""A classifier as Hugging Face saves it becomes a model that the service loads, or is refused in words that help."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="onnx belongs to the training set: make test-models")
torch = pytest.importorskip("torch", reason="PyTorch belongs to the training set: make test-models")

from safetensors.torch import load_file, save_file  # noqa: E402
from starlette.testclient import TestClient  # noqa: E402
from transformers import AutoTokenizer  # noqa: E402
from typer.testing import CliRunner  # noqa: E402

from models.__main__ import app  # noqa: E402
from models.heads import STARS  # noqa: E402
from models.importing import Wishes, import_model  # noqa: E402
from models.original import Original  # noqa: E402
from models.source import RefusedError  # noqa: E402
from service.api.app import create_app  # noqa: E402
from service.artifact import Artifact, Manifest  # noqa: E402
from service.settings import Settings  # noqa: E402
from tests.models.families.making import LONGEST, TOKENIZERS, write  # noqa: E402

Change = Callable[[Path], object]

SOME = [
    "a",
    "good",
    "The film is boring and the plot predictable!",
    " Her voice  was charming; the ending, as everyone said, a joy. ",
    "Caf\u00e9 \U0001f600 d\u00e9j\u00e0 vu",
    "It was [MASK] and <mask> </s> [SEP].",
]
LONG = "The service was slow. Our room seems cold and bland, but the staff is kind! " * 8


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of texts to compare on: fewer than our own, to be quick."""
    path = tmp_path_factory.mktemp("texts") / "texts.txt"
    path.write_text("\n".join([*SOME[:4], *LONG.split(". ")[:3]]) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT with a vocabulary that knows upper case."""
    return write("bert", tmp_path_factory.mktemp("bert"))


@contextmanager
def serving(model: Path) -> Iterator[TestClient]:
    with TestClient(create_app(Settings(model=model, workers=2))) as client:
        assert client.get("/readyz").status_code == 200
        yield client


def post(client: TestClient, path: str, inputs: Any, **body: Any) -> dict[str, Any]:
    response = client.post(path, json={"inputs": inputs, **body})
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


@pytest.mark.parametrize("family", TOKENIZERS)
def test_served_as_pytorch_answers(family: str, texts: Path, tmp_path: Path) -> None:
    checkpoint = write(family, tmp_path / "checkpoint")
    out = tmp_path / "model"
    manifest = import_model(str(checkpoint), out, Wishes(quantize="float32", texts=texts))
    assert (manifest.family, manifest.max_tokens, manifest.cleanup) == (family, LONGEST, ())
    assert manifest.last_layer == "cls_only"
    original, tokenizer = Original.load(checkpoint), AutoTokenizer.from_pretrained(checkpoint)
    with serving(out) as client:
        for text in (*SOME, LONG):
            # Special tokens that somebody writes are text: PyTorch's side is told so too.
            ids = tokenizer(text, truncation=True, max_length=LONGEST, split_special_tokens=True)["input_ids"]
            expected = original.answer(np.array(ids))
            body = {"raw_scores": True}
            (result,) = post(client, "/classify?long_text=truncate", text, **body)["results"]
            assert result["tokens"] == len(ids)
            assert list(result["logits"].values()) == pytest.approx(expected.logits.tolist(), abs=1e-4)
            probabilities = torch.softmax(torch.tensor(expected.logits), 0).tolist()
            assert list(result["scores"].values()) == pytest.approx(probabilities, abs=1e-4)
            (vector,) = post(client, "/embed?pool=mean&long_text=truncate", text)["embeddings"]
            assert vector == pytest.approx(expected.mean.tolist(), abs=2e-4)
        alone = [post(client, "/classify", text)["results"][0] for text in (*SOME, LONG)]
        assert post(client, "/classify", [*SOME, LONG])["results"] == alone
        check_parts(client)


def check_parts(client: TestClient) -> None:
    """Windows, sentences and words of a vocabulary that may keep a word's space in its token."""
    (whole,) = post(client, "/classify?detail=windows", LONG)["results"]
    assert whole["windows"] > 1
    spans = [(part["start"], part["end"]) for part in whole["window_scores"]]
    assert spans[0][0] == 0
    assert spans[-1][1] >= len(LONG.rstrip())
    assert all(second[0] <= first[1] + 1 for first, second in pairwise(spans))
    (result,) = post(client, "/classify?detail=sentences", "The plot is blue. It was great! ")["results"]
    assert [(part["start"], part["end"]) for part in result["sentences"]] == [(0, 17), (18, 31)]
    (alone,) = post(client, "/classify", "The plot is blue.")["results"]
    assert result["sentences"][0]["scores"] == pytest.approx(alone["scores"], abs=2e-6)
    (explained,) = post(client, "/explain", "The plot is blue.")["results"]
    assert [word["word"] for word in explained["words"]] == ["The", "plot", "is", "blue", "."]
    assert all(word["effect"] for word in explained["words"])
    for empty in ("", "  \n "):
        assert client.post("/classify", json={"inputs": empty}).json()["error"]["code"] == "empty_text"


def test_the_smallest_way_within_the_bounds(bert: Path, texts: Path, tmp_path: Path) -> None:
    out = tmp_path / "quantized"
    result = CliRunner().invoke(app, ["import", str(bert), "--out", str(out), "--texts", str(texts)])
    assert result.exit_code == 0, result.output
    manifest = Artifact.open(out).manifest
    assert manifest.name == "quantized"
    assert manifest.bounds["agreement_min"] <= manifest.metrics["agreement"] <= 1
    assert manifest.metrics["score_difference_mean"] <= manifest.bounds["score_difference_mean_max"]
    assert manifest.metrics["cosine_mean"] >= manifest.bounds["cosine_mean_min"]
    assert manifest.metrics["export_difference"] < 1e-4
    assert manifest.quantization.embed != "float32"
    assert manifest.valences == (-1, 0, 1)
    assert {"torch", "transformers"} <= set(manifest.versions)
    assert {path.name for path in out.iterdir()} == {*manifest.files, "manifest.json"}
    with serving(out) as client:
        assert client.get("/info").json()["head"] == "softmax"
    assert {path.name for path in tmp_path.iterdir()} == {"quantized"}


def checkpoint_with(bert: Path, folder: Path, outputs: int, names: list[str], **config: Any) -> Path:
    """A copy of a checkpoint with a head of so many outputs."""
    shutil.copytree(bert, folder)
    state = load_file(folder / "model.safetensors")
    repeated = torch.arange(outputs) % len(state["classifier.bias"])
    for name in ("classifier.weight", "classifier.bias"):
        state[name] = state[name][repeated].clone()
    save_file(state, folder / "model.safetensors", {"format": "pt"})
    labels = {"id2label": dict(enumerate(names)), "label2id": {name: index for index, name in enumerate(names)}}
    change_config(folder, **labels, **config)
    return folder


def change_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | changes), encoding="utf-8")


HEADS: dict[str, tuple[int, list[str], dict[str, Any], dict[str, Any]]] = {
    "multi_label": (3, ["rude", "late", "dear"], {"problem_type": "multi_label_classification"}, {}),
    "regression": (1, ["usefulness"], {}, {}),
    "binary": (1, ["toxic"], {"problem_type": "multi_label_classification"}, {"threshold": 0.3}),
}


@pytest.mark.parametrize("kind", HEADS)
def test_heads(kind: str, bert: Path, texts: Path, tmp_path: Path) -> None:
    outputs, names, config, wishes = HEADS[kind]
    folder = checkpoint_with(bert, tmp_path / "checkpoint", outputs, names, **config)
    manifest = import_model(str(folder), tmp_path / "out", Wishes(quantize="float32", texts=texts, **wishes))
    assert manifest.head == ("regression" if kind == "regression" else "multi_label")
    original, tokenizer = Original.load(folder), AutoTokenizer.from_pretrained(folder)
    with serving(tmp_path / "out") as client:
        for text in SOME[:3]:
            logits = torch.tensor(original.answer(np.array(tokenizer(text)["input_ids"])).logits)
            (result,) = post(client, "/classify", text)["results"]
            assert result["valence"] is None
            if kind == "regression":
                assert result["value"] == pytest.approx(float(logits[0]), abs=1e-4)
                assert result["label"] is None
            else:
                expected = dict(zip(names, torch.sigmoid(logits).tolist(), strict=True))
                assert result["scores"] == pytest.approx(expected, abs=1e-4)
                held = [name for name, score in expected.items() if score >= wishes.get("threshold", 0.5)]
                assert result["labels"] == held


def draft(bert: Path, tmp_path: Path, outputs: int, names: list[str], wishes: Wishes) -> Manifest:
    folder = checkpoint_with(bert, tmp_path / "checkpoint", outputs, names)
    return import_model(str(folder), tmp_path / "out", wishes)


def test_five_stars_have_a_valence(bert: Path, texts: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    stars = ["1 star", *(f"{count} stars" for count in (2, 3, 4, 5))]
    plain = [f"LABEL_{index}" for index in range(5)]
    wishes = Wishes(quantize="float32", texts=texts)
    assert draft(bert, tmp_path / "unnamed", 5, plain, wishes).valences is None
    assert "the labels are called LABEL_0, LABEL_1" in capfd.readouterr().err.replace("\n", " ")
    out = tmp_path / "named" / "out"
    named = Wishes(labels=stars, quantize="float32", texts=texts)
    assert draft(bert, tmp_path / "named", 5, plain, named).valences == tuple(STARS.values())
    with serving(out) as client:
        (result,) = post(client, "/classify", SOME[2])["results"]
    expected = sum(score * value for score, value in zip(result["scores"].values(), STARS.values(), strict=True))
    assert result["valence"] == pytest.approx(expected, abs=1e-5)


def drop_head(folder: Path) -> None:
    state = {name: value for name, value in load_file(folder / "model.safetensors").items() if "classifier" not in name}
    save_file(state, folder / "model.safetensors", {"format": "pt"})


def break_weights(folder: Path) -> None:
    state = load_file(folder / "model.safetensors")
    state["classifier.bias"][0] = float("nan")
    save_file(state, folder / "model.safetensors", {"format": "pt"})


def pickle_weights(folder: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def remove_tokenizer(folder: Path) -> None:
    for path in folder.glob("tokenizer*"):
        path.unlink()


def without_frame(folder: Path) -> None:
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | {"post_processor": None}), "utf-8")


def longer_vocabulary(folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens([f"word{index}" for index in range(5)])
    tokenizer.save_pretrained(folder)


REFUSALS: dict[str, tuple[Change, str]] = {
    "no configuration": (lambda folder: (folder / "config.json").unlink(), "has no config.json"),
    "not JSON": (lambda folder: (folder / "config.json").write_text("{"), "is not JSON"),
    "another family": (lambda folder: change_config(folder, model_type="gpt2"), "the family 'gpt2' is not known here"),
    "another task": (
        lambda folder: change_config(folder, architectures=["BertForMaskedLM"]),
        "BertForMaskedLM is not a classifier of texts",
    ),
    "no head": (drop_head, "the weights hold no classification head"),
    "pickled": (pickle_weights, "only pytorch_model.bin, which may run code .* save the model again as safetensors"),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "has no weights"),
    "half a file": (lambda folder: (folder / "model.safetensors").write_bytes(b"x" * 20), "not a whole safetensors"),
    "remote code": (lambda folder: change_config(folder, auto_map={"AutoModel": "a.B"}), "code of the model's own"),
    "labels": (
        lambda folder: change_config(folder, id2label={0: "a", 1: "b"}, label2id={"a": 0, "b": 1}),
        "the head gives 3 values and config.json names 2 labels",
    ),
    "no tokenizer": (remove_tokenizer, "has no tokenizer .* save it beside the model with tokenizer.save_pretrained"),
    "no frame": (without_frame, "frames a text by 0 tokens|read 'a' differently"),
    "a broken tokenizer": (
        lambda folder: (folder / "tokenizer.json").write_text("{}", encoding="utf-8"),
        "has no tokenizer that can be loaded",
    ),
    "a longer vocabulary": (longer_vocabulary, "the tokenizer has ids up to .* and the model's table"),
    "another padding": (lambda folder: change_config(folder, pad_token_id=9), "the tokenizer pads with id 0"),
    "an activation": (lambda folder: change_config(folder, hidden_act="silu"), "has hidden_act 'silu'"),
    "several values": (lambda folder: change_config(folder, problem_type="regression"), "regression with 3 outputs"),
    "not a number": (break_weights, "its training went astray"),
}


@pytest.mark.parametrize("reason", REFUSALS)
def test_refused_in_words_that_help(reason: str, bert: Path, texts: Path, tmp_path: Path) -> None:
    change, words = REFUSALS[reason]
    folder = shutil.copytree(bert, tmp_path / "checkpoint")
    change(folder)
    with pytest.raises(RefusedError, match=words):
        import_model(str(folder), tmp_path / "out", Wishes(texts=texts))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--labels", "a,b"], "--labels gives 2 names and the head has 3 outputs"),
        (["--labels", "a,b,a"], "labels must be distinct"),
        (["--labels", "a,score,b"], "a label cannot be called 'score'"),
        (["--valences", "0,1"], "--valences needs 3 numbers"),
        (["--valences", "0,x,1"], "numbers are needed"),
        (["--head", "regression"], "--head regression is for one output"),
        (["--max-tokens", "100"], "is not between 3 and the 48"),
        (["--quantize", "none"], "--quantize none is not known"),
    ],
)
def test_wishes_that_cannot_be_met(options: list[str], words: str, bert: Path, texts: Path, tmp_path: Path) -> None:
    command = ["import", str(bert), "--out", str(tmp_path / "out"), "--texts", str(texts), *options]
    result = CliRunner().invoke(app, command)
    assert result.exit_code != 0
    assert words in " ".join(result.output.split())


def test_a_folder_that_holds_something_is_left_alone(bert: Path, tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("kept", encoding="utf-8")
    with pytest.raises(RefusedError, match="is not empty"):
        import_model(str(bert), tmp_path, Wishes())


def test_a_hubs_model(bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub
    from huggingface_hub.errors import LocalEntryNotFoundError

    from models.source import check, find

    asked: dict[str, Any] = {}

    def fetch(name: str, **options: Any) -> str:
        asked.update(name=name, **options)
        return str(bert)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    assert check(find("somebody/some-model")).family == "bert"
    assert asked["name"] == "somebody/some-model"
    assert not [pattern for pattern in asked["allow_patterns"] if pattern.endswith((".bin", ".py"))]

    def fail(name: str, **options: Any) -> str:
        raise LocalEntryNotFoundError("no route")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(RefusedError, match="somebody/some-model is not a folder here, and a hub did not give it"):
        find("somebody/some-model")
    with pytest.raises(RefusedError, match="is not a folder: give the folder"):
        find("./no/such/folder")
