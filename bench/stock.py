"""From a checkpoint to ONNX by stock tools alone: what the peers run, and the int8 graph that ours is compared with.

`python -m bench.stock OUT --checkpoint FOLDER` runs in the environment of the torch peer. It fills OUT with a copy of
the checkpoint, `model.onnx` (torch.onnx, then ONNX Runtime's transformer optimizer: float32, the full graph) and
`int8.onnx` (the same through the dynamic quantizer). Without a checkpoint the weights are random, in the shape of
all-MiniLM-L6-v2: no speed depends on their values.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

TOKENIZER = Path(__file__).parents[1] / "models" / "sentiment-en" / "tokenizer.json"
LABELS = ("negative", "neutral", "positive")
SHAPE = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
EXPORTED = "exported.onnx"
FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")


def make(out: Path, checkpoint: Path | None) -> None:
    """Fill a folder."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    if checkpoint:
        for name in FILES:
            shutil.copyfile(checkpoint / name, out / name)
    else:
        _random(out)
    _export(out)
    _optimize(out)


def _random(out: Path) -> None:
    import torch
    import transformers

    torch.manual_seed(0)
    shutil.copyfile(TOKENIZER, out / "tokenizer.json")
    settings = {"tokenizer_class": "BertTokenizer", "model_max_length": 512}
    (out / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    words = len(json.loads(TOKENIZER.read_text(encoding="utf-8"))["model"]["vocab"])
    shape: dict[str, Any] = {**SHAPE, "vocab_size": words, "id2label": dict(enumerate(LABELS))}
    transformers.BertForSequenceClassification(transformers.BertConfig(**shape)).save_pretrained(out)


def _export(out: Path) -> None:
    import torch
    import transformers

    # The optimizer knows this form of attention, and fuses nothing of the default one's.
    load: Any = transformers.BertForSequenceClassification.from_pretrained
    model = load(out, attn_implementation="eager").eval()
    batch = transformers.AutoTokenizer.from_pretrained(out)(["a b c", "d e"], padding=True, return_tensors="pt")
    names = ("input_ids", "attention_mask", "token_type_ids")
    given = tuple(batch[name] if name in batch else torch.zeros_like(batch["input_ids"]) for name in names)
    torch.onnx.export(
        model,
        given,
        str(out / EXPORTED),
        input_names=list(names),
        output_names=["logits"],
        dynamic_axes={name: {0: "batch", 1: "length"} for name in names} | {"logits": {0: "batch"}},
        opset_version=17,
        dynamo=False,
    )


def _optimize(out: Path) -> None:
    from onnx import TensorProto
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.transformers.optimizer import optimize_model

    shape = json.loads((out / "config.json").read_text(encoding="utf-8"))
    heads, hidden = shape["num_attention_heads"], shape["hidden_size"]
    fused = optimize_model(str(out / EXPORTED), model_type="bert", num_heads=heads, hidden_size=hidden)
    if not fused.get_fused_operator_statistics()["Attention"]:
        raise RuntimeError("the stock optimizer did not fuse the attention: this is not the baseline that is meant")
    fused.save_model_to_file(str(out / "model.onnx"))
    # What the quantizer cannot infer the type of, behind operators of ONNX Runtime's own, is float32.
    floats = {"DefaultTensorType": TensorProto.FLOAT}
    quantize_dynamic(out / "model.onnx", out / "int8.onnx", weight_type=QuantType.QInt8, extra_options=floats)
    (out / EXPORTED).unlink()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--checkpoint", type=Path)
    options = parser.parse_args()
    make(options.out, options.checkpoint)
