"""Which mean over the windows of a long text keeps its label: of their logits, or of their probabilities.

Long reviews are made of labelled sentences: of one opinion, a share of them plain editorial sentences and, in
the harder kind, a share of the opposite opinion. `python -m bench.long_texts --data FOLDER` prints the table of
docs/api.md.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray

from models import data, metrics
from service.artifact import Artifact
from service.engine import Engine
from service.tokenizer import Tokenizer

PLAIN = 0.2
KINDS = {"a fifth plain": 0.0, "a fifth plain, a quarter opposite": 0.25}


def main(
    folder: Annotated[Path, typer.Option("--data", help="The folder with the data files.")],
    model: Path = Path("models/sentiment-en"),
    texts: Annotated[int, typer.Option(help="Reviews of each kind.")] = 100,
    words: Annotated[int, typer.Option(help="Words of a review, at least.")] = 900,
    seed: int = 0,
) -> None:
    """Print the accuracy of both means, positive against negative, and that of the first window alone."""
    artifact = Artifact.open(model)
    tokenizer = Tokenizer(artifact.path("tokenizer.json"), artifact.manifest.max_tokens, artifact.manifest.cleanup)
    engine = Engine(artifact)
    pools = sentences(folder)
    typer.echo(
        "| reviews | windows | mean of logits | mean of probabilities | first window |\n|---|---:|---:|---:|---:|"
    )
    for kind, opposite in KINDS.items():
        rng = random.Random(seed)
        right, windows = np.zeros(3), 0
        for number in range(texts):
            label = "positive" if number % 2 else "negative"
            pieces = tokenizer.read(review(pools, label, opposite, words, rng)).windows()
            logits = np.stack([engine.classify(piece.ids).logits for piece in pieces])
            weights = np.array([piece.weight for piece in pieces]) / sum(piece.weight for piece in pieces)
            probabilities = metrics.softmax(logits, artifact.manifest.temperature)
            means = np.stack([weights @ logits, weights @ probabilities, logits[0]])
            right += predicted(means) == (label == "positive")
            windows += len(pieces)
        shares = " | ".join(f"{100 * share:.1f} %" for share in right / texts)
        typer.echo(f"| {kind} | {windows / texts:.1f} | {shares} |")


def sentences(folder: Path) -> dict[str, list[str]]:
    """Dev sentences of the treebank by label, and editorial sentences that people rated plain."""
    trees = [one for one in data.load(folder / "sst_trees_dev.txt") if one.whole]
    plain = [one for one in data.load(folder / "rated_editorial_snippets_train.tsv") if abs(one.valence or 0) < 0.1]
    return {
        "positive": [data.detokenize(one.text) for one in trees if one.target == data.HARD["positive"]],
        "negative": [data.detokenize(one.text) for one in trees if one.target == data.HARD["negative"]],
        "plain": [one.text for one in plain],
    }


def review(pools: dict[str, list[str]], label: str, opposite: float, words: int, rng: random.Random) -> str:
    """A text of at least so many words, most of its sentences of one label."""
    other = "negative" if label == "positive" else "positive"
    shares = {label: 1 - PLAIN - opposite, other: opposite, "plain": PLAIN}
    found: list[str] = []
    while sum(len(sentence.split()) for sentence in found) < words:
        found.append(rng.choice(pools[rng.choices(list(shares), list(shares.values()))[0]]))
    return " ".join(found)


def predicted(logits: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether positive is more probable than negative, for each row."""
    return np.asarray(logits[:, 2] > logits[:, 0])


if __name__ == "__main__":
    typer.run(main)
