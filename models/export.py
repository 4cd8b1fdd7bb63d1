"""From a fine-tuned checkpoint to the two float32 graphs, in a folder where the next steps find them."""

from __future__ import annotations

import shutil
from pathlib import Path

import tokenizers

from models import products, storage
from models.checkpoint import WEIGHTS, Bert
from models.graph import classify_graph, embed_graph

FLOAT32 = "fp32"
CLASSIFY, EMBED, PACKED = "classify.onnx", "embed.onnx", "packed.onnx"


def export(checkpoint: Path, out: Path) -> None:
    """Write `out/tokenizer.json`, and to `out/fp32` the graphs beside a copy of the checkpoint they were made from.

    That folder is for the steps that follow and for nothing else; git ignores it. Raises ValueError for a checkpoint
    that is not a BERT the graphs can express.
    """
    folder = out / FLOAT32
    bert = Bert.read(checkpoint)
    storage.save(folder, {CLASSIFY: classify_graph(bert, products.float32), EMBED: embed_graph(bert, products.float32)})
    (folder / ".gitignore").write_text("*\n", encoding="utf-8")
    for name in ("config.json", WEIGHTS):
        shutil.copyfile(checkpoint / name, folder / name)
    tokenizer = tokenizers.Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    tokenizer.save(str(out / "tokenizer.json"), pretty=False)
