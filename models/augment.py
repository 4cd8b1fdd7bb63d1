"""More texts of a kind, made from given ones by changing words; without labels, for a teacher to label.

A word is changed for one whose input embedding is close, as in the augmentation of TinyBERT (Jiao et al. 2020,
"TinyBERT: Distilling BERT for Natural Language Understanding", algorithm 1), or left out (Wei and Zou 2019, "EDA").
An opinion may turn on one changed word: that is why the teacher, not the given label, speaks about what comes out.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open
from tokenizers import Tokenizer

from models.checkpoint import WEIGHTS

NEAREST = 12
CHANGED = 0.4
LEFT_OUT = 0.05
# The commonest words hold a sentence together: most of what changes them is no sentence any more.
KEPT = 60

_WORD = re.compile(r"[A-Za-z]{2,}")
_WHOLE_WORD = re.compile(r"[a-z]{2,}")


def neighbours(checkpoint: Path) -> dict[str, list[str]]:
    """The `NEAREST` words, by cosine of input embeddings, of every word that is one token of a checkpoint."""
    vocabulary = Tokenizer.from_file(str(checkpoint / "tokenizer.json")).get_vocab()
    words = sorted(word for word in vocabulary if _WHOLE_WORD.fullmatch(word))
    vectors = embeddings(checkpoint)[[vocabulary[word] for word in words]]
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    found: dict[str, list[str]] = {}
    for start in range(0, len(words), 1024):
        similarity = vectors[start : start + 1024] @ vectors.T
        for row, word in enumerate(words[start : start + 1024]):
            similarity[row, start + row] = -1
            closest = np.argpartition(-similarity[row], NEAREST)[:NEAREST]
            found[word] = [words[index] for index in closest[np.argsort(-similarity[row, closest])]]
    return found


def embeddings(checkpoint: Path) -> NDArray[np.float32]:
    """The input embeddings of a checkpoint's tokens, float32 [vocabulary, hidden]."""
    with safe_open(checkpoint / WEIGHTS, framework="numpy") as weights:
        (name,) = (name for name in weights.keys() if name.endswith("word_embeddings.weight"))  # noqa: SIM118
        table: NDArray[np.float32] = weights.get_tensor(name).astype(np.float32)
    return table


def variants(texts: Sequence[str], near: Mapping[str, list[str]], each: int, seed: int) -> list[str]:
    """At most `each` distinct new texts of every text, in its order; none of them is a given text."""
    rng = random.Random(seed)
    counts = Counter(word for text in texts for word in _WORD.findall(text.lower()))
    kept = {word for word, _ in counts.most_common(KEPT)}
    near = {word: closest for word, closest in near.items() if word not in kept}
    seen = set(texts)
    made: list[str] = []
    for text in texts:
        for _ in range(each):
            variant = vary(text, near, rng)
            if variant and variant not in seen:
                seen.add(variant)
                made.append(variant)
    return made


def vary(text: str, near: Mapping[str, list[str]], rng: random.Random) -> str:
    """A text with some of its words changed for near ones, some left out."""

    def replaced(match: re.Match[str]) -> str:
        word, chance = match.group(), rng.random()
        if word.lower() not in near or chance >= LEFT_OUT + CHANGED:
            return word
        return "" if chance < LEFT_OUT else rng.choice(near[word.lower()])

    return " ".join(_WORD.sub(replaced, text).split())
