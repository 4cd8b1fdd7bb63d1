"""The exported graphs equal torch on real texts of every length, and the tokenizer neither pads nor truncates."""

import os
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx", reason="onnx belongs to the training set: make test-models")
pytest.importorskip("safetensors", reason="safetensors belongs to the training set: make test-models")

import tokenizers

from models.export import export
from service.engine import session

TEXT = (
    "The room was clean and the staff were kind, though the street outside kept us awake until three. "
    "I had read so much about this film that I went in expecting too much; it is long, loud and oddly moving. "
    "Prices went up again in March, the company said on Tuesday, and no date was given for the next review. "
)
CHECKPOINT = os.environ.get("TEST_CHECKPOINT")


def largest_difference(checkpoint: Path, out: Path, lengths: list[int]) -> float:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    export(checkpoint, out)
    model = transformers.BertForSequenceClassification.from_pretrained(checkpoint).eval()
    tokenizer = tokenizers.Tokenizer.from_file(str(out / "tokenizer.json"))
    classify, embed = session(out / "fp32/classify.onnx"), session(out / "fp32/embed.onnx")
    ids = tokenizer.encode(TEXT * (1 + lengths[-1] // 40)).ids
    worst = 0.0
    for length in lengths:
        some = np.array([ids[:length]], np.int64)
        with torch.inference_mode():
            expected = model(input_ids=torch.from_numpy(some), output_hidden_states=True)
        hidden = expected.hidden_states[-1].numpy()
        feed = {"input_ids": some}
        ours = [*classify.run(["logits", "cls"], feed), *embed.run(["mean"], feed)]
        theirs = [expected.logits.numpy(), hidden[:, 0], hidden.mean(axis=1)]
        worst = max(worst, *(float(np.abs(a - b).max()) for a, b in zip(ours, theirs, strict=True)))
    return worst


def test_equals_torch_at_every_length(checkpoint: Path, tmp_path: Path) -> None:
    assert largest_difference(checkpoint, tmp_path, list(range(1, 65))) < 1e-4


@pytest.mark.skipif(not CHECKPOINT, reason="TEST_CHECKPOINT names no checkpoint")
def test_a_real_checkpoint_equals_torch(tmp_path: Path) -> None:
    lengths = [1, 2, 3, 5, 8, 13, 25, 40, 64, 100, 128, 200, 256, 300, 400, 511, 512]
    assert largest_difference(Path(str(CHECKPOINT)), tmp_path, lengths) < 1e-4


def test_writes_what_the_next_steps_need(checkpoint: Path, tmp_path: Path) -> None:
    export(checkpoint, tmp_path / "deep" / "model")
    out = tmp_path / "deep" / "model"
    assert {path.name for path in out.iterdir()} == {"fp32", "tokenizer.json"}
    names = {"classify.onnx", "embed.onnx", "weights.bin", "config.json", "model.safetensors", ".gitignore"}
    assert {path.name for path in (out / "fp32").iterdir()} == names


def test_the_tokenizer_neither_pads_nor_truncates(checkpoint: Path, tmp_path: Path) -> None:
    copy = tmp_path / "checkpoint"
    copy.mkdir()
    for name in ("config.json", "model.safetensors"):
        (copy / name).write_bytes((checkpoint / name).read_bytes())
    tokenizer = tokenizers.Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    tokenizer.enable_padding(length=64)
    tokenizer.enable_truncation(8)
    tokenizer.save(str(copy / "tokenizer.json"))
    export(copy, tmp_path / "out")
    written = tokenizers.Tokenizer.from_file(str(tmp_path / "out/tokenizer.json"))
    assert len(written.encode("good").ids) < 64
    assert len(written.encode(TEXT).ids) > 60
