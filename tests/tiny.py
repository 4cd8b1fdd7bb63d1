"""Build the tests' model, tests/tiny: `python -m tests.tiny`. Random weights, a real tokenizer, the real steps."""

from __future__ import annotations

import json
import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import tokenizers
from safetensors.numpy import save_file
from tokenizers import decoders, normalizers, pre_tokenizers, processors, trainers
from tokenizers.models import WordPiece

from models.checkpoint import Bert
from models.export import FLOAT32, export
from models.graph import classify_graph
from models.products import float32
from models.quantize import quantize
from models.verify import verify

FOLDER = Path(__file__).parent / "tiny"
CLASSIFY_WAY, EMBED_WAY = "int8-static-fitted", "int8-dynamic-fitted"
CONFIG: dict[str, Any] = {
    "model_type": "bert",
    "hidden_act": "gelu",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "max_position_embeddings": 64,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "id2label": {"0": "negative", "1": "neutral", "2": "positive"},
}
WORDS = {
    "subject": "the film,this movie,the service,our room,the battery,the new phone,the plot,an actor,the food,"
    "the staff,a review,the meeting,the weather,my order,the hotel,her voice,the ending,the soundtrack,the update",
    "verb": "was,is,seems,felt,looked,became,stayed,remained,sounded,turned out",
    "negative": "awful,boring,terrible,a waste of time,broken,rude,dirty,slow,disappointing,predictable,painful,"
    "noisy,cold and bland,badly written,an insult,worse than expected",
    "neutral": "scheduled for two o'clock,blue,on the table,in the second part,made of metal,about a family,in french,"
    "ninety minutes long,at the station,part of the contract,unchanged,available online",
    "positive": "great,wonderful,charming,funny and humane,a joy,excellent,beautifully shot,fast,friendly,delicious,"
    "moving,worth every penny,better than expected,a masterpiece,so kind",
    "extra": "and we left early,but the crowd loved it,as everyone said,although it rained,without any doubt,"
    "in my opinion,again,after three days,for the price,@user told me so,see http for more,not that it matters,"
    "smiling face with heart eyes,face with tears of joy,and i don't know why,if you ask me",
}
LABELS = ("negative", "neutral", "positive")


def corpus(size: int, seed: int) -> list[tuple[str, str]]:
    """Labels and made-up sentences."""
    rng = random.Random(seed)
    words = {kind: choices.split(",") for kind, choices in WORDS.items()}
    rows: list[tuple[str, str]] = []
    for _ in range(size):
        label = rng.choice(LABELS)
        parts = [rng.choice(words[kind]) for kind in ("subject", "verb", label)]
        parts += rng.sample(words["extra"], rng.randrange(3))
        rows.append((label, " ".join(parts) + rng.choice((".", "!", " .", "?", "..."))))
    return rows


def write_data(folder: Path) -> None:
    """The data files that the steps read, with made-up sentences."""
    for seed, (name, size) in enumerate({"tweets_train": 120, "product_reviews_train": 60, "tweets_dev": 60}.items()):
        _write(folder / f"{name}.tsv", "label\ttext", (f"{label}\t{text}" for label, text in corpus(size, seed)))
    sst2 = [(LABELS.index(label) // 2, text) for label, text in corpus(60, 3) if label != "neutral"]
    _write(folder / "sst2_dev.tsv", "sentence\tlabel", (f"{text}\t{label}" for label, text in sst2))
    for seed, name in enumerate(("editorial_snippets", "product_snippets", "tweets"), start=4):
        rows = ((2 * LABELS.index(label) - 2, text) for label, text in corpus(60, seed))
        _write(folder / f"rated_{name}_train.tsv", "valence\ttext", (f"{rating}\t{text}" for rating, text in rows))
    for seed, split in enumerate(("train", "dev"), start=7):
        trees = (f"({2 * LABELS.index(label)} {_tree(text)})" for label, text in corpus(60, seed))
        (folder / f"sst_trees_{split}.txt").write_text("\n".join(trees) + "\n", encoding="utf-8")
    texts = [text for _, text in corpus(80, 9)]
    pairs = (
        f"{number % 6}\t{first}\t{second}"
        for number, (first, second) in enumerate(zip(texts[:40], texts[40:], strict=True))
    )
    _write(folder / "stsb_dev.tsv", "score\tsentence1\tsentence2", pairs)


def write_checkpoint(folder: Path, seed: int = 0) -> None:
    """A Hugging Face checkpoint of a BERT with random weights and a WordPiece tokenizer."""
    tokenizer = _tokenizer([text for _, text in corpus(2000, seed)])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = CONFIG | {"vocab_size": tokenizer.get_vocab_size()}
    (folder / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    state = _state(config, np.random.default_rng(seed))
    _teach(state, config, tokenizer, corpus(500, seed + 1))
    save_file(state, folder / "model.safetensors")


def build(out: Path) -> None:
    """Make the whole model folder."""
    with tempfile.TemporaryDirectory() as scratch:
        checkpoint, data = Path(scratch, "checkpoint"), Path(scratch, "data")
        checkpoint.mkdir()
        data.mkdir()
        write_checkpoint(checkpoint)
        write_data(data)
        export(checkpoint, out)
        quantize(out, data, CLASSIFY_WAY, EMBED_WAY, bounds={})
        verify(out, data)
    shutil.rmtree(out / FLOAT32)


def _tokenizer(texts: list[str]) -> tokenizers.Tokenizer:
    tokenizer = tokenizers.Tokenizer(WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(texts, trainers.WordPieceTrainer(vocab_size=800, special_tokens=special))
    ends = [(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    return tokenizer


def _state(config: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Random weights by name, of sizes that let [CLS] take in every word."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    state: dict[str, Any] = {}

    def dense(name: str, inputs: int, outputs: int, gain: float = 1.0) -> None:
        state[f"{name}.weight"] = rng.normal(0, gain * inputs**-0.5, (outputs, inputs)).astype(np.float32)
        state[f"{name}.bias"] = rng.normal(0, 0.1, outputs).astype(np.float32)

    def norm(name: str) -> None:
        state[f"{name}.weight"] = rng.normal(1, 0.1, hidden).astype(np.float32)
        state[f"{name}.bias"] = rng.normal(0, 0.1, hidden).astype(np.float32)

    tables = {
        "word": ("vocab_size", 1.0),
        "position": ("max_position_embeddings", 0.1),
        "token_type": ("type_vocab_size", 0.1),
    }
    for kind, (size, spread) in tables.items():
        table = rng.normal(0, spread, (config[size], hidden)).astype(np.float32)
        state[f"bert.embeddings.{kind}_embeddings.weight"] = table
    norm("bert.embeddings.LayerNorm")
    for index in range(config["num_hidden_layers"]):
        layer = f"bert.encoder.layer.{index}"
        for name, gain in (("self.query", 0.7), ("self.key", 0.7), ("self.value", 1.0), ("output.dense", 3.0)):
            dense(f"{layer}.attention.{name}", hidden, hidden, gain)
        dense(f"{layer}.intermediate.dense", hidden, inner)
        dense(f"{layer}.output.dense", inner, hidden, 0.5)
        norm(f"{layer}.attention.output.LayerNorm")
        norm(f"{layer}.output.LayerNorm")
    dense("bert.pooler.dense", hidden, hidden)
    dense("classifier", hidden, 3)
    return state


def _teach(state: dict[str, Any], config: dict[str, Any], tokenizer: Any, rows: list[tuple[str, str]]) -> None:
    """Fit the classifier to labelled texts by least squares, so that the model's labels mean something."""
    graph = classify_graph(Bert.from_state(state, config), float32)
    session = onnxruntime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
    ids = [np.array([tokenizer.encode(text).ids], np.int64) for _, text in rows]
    cls = np.concatenate([session.run(["cls"], {"input_ids": i})[0] for i in ids])
    pooled = np.tanh(cls @ state["bert.pooler.dense.weight"].T + state["bert.pooler.dense.bias"])
    inputs = np.concatenate([pooled, np.ones((len(rows), 1), np.float32)], axis=1)
    wanted = 4 * np.eye(3)[[LABELS.index(label) for label, _ in rows]]
    solved = np.linalg.lstsq(inputs, wanted, rcond=None)[0].T.astype(np.float32)
    state["classifier.weight"], state["classifier.bias"] = solved[:, :-1].copy(), solved[:, -1].copy()


def _tree(text: str) -> str:
    first, *others = text.replace("(", "").replace(")", "").split()
    tree = f"(2 {first})"
    for word in others:
        tree = f"(2 {tree} (2 {word}))"
    return tree.removeprefix("(2 ").removesuffix(")") if others else first


def _write(path: Path, header: str, rows: Any) -> None:
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    build(FOLDER)
