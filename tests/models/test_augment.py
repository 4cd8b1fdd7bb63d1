"""New texts are near the given ones, drawn by seed, none of them twice, and readable as a training file."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest

from models import augment, data

NEAR = {"good": ["great"], "film": ["movie"]}


def test_a_word_is_changed_for_a_near_one_or_left_out_and_nothing_else_moves() -> None:
    rng = random.Random(0)
    made = {augment.vary("Good film , (really)", NEAR, rng) for _ in range(200)}
    choices = itertools.product(("Good", "great", ""), ("film", "movie", ""))
    assert made == {" ".join(f"{one} {other} , (really)".split()) for one, other in choices}


def test_the_commonest_words_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(augment, "KEPT", 1)
    texts = ["a good film", "a film", "the film"]
    made = augment.variants(texts, NEAR, each=50, seed=0)
    assert made
    assert all("film" in text for text in made)
    assert any("great" in text for text in made)


def test_variants_are_new_distinct_and_drawn_by_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(augment, "KEPT", 0)
    texts = ["a good film", "a great film", "good good good film"]
    made = augment.variants(texts, NEAR, each=8, seed=1)
    assert made == augment.variants(texts, NEAR, each=8, seed=1) != augment.variants(texts, NEAR, each=8, seed=2)
    assert len(set(made)) == len(made) <= 8 * len(texts)
    assert not set(made) & set(texts)
    assert augment.variants(["Xyzzy 42"], NEAR, each=8, seed=1) == []


def test_neighbours_are_the_words_with_the_closest_input_embeddings(checkpoint: Path) -> None:
    np = pytest.importorskip("numpy")
    tokenizers = pytest.importorskip("tokenizers")
    near = augment.neighbours(checkpoint)
    vocabulary = tokenizers.Tokenizer.from_file(str(checkpoint / "tokenizer.json")).get_vocab()
    vectors = augment.embeddings(checkpoint)
    word = min(near)

    def cosine(other: str) -> float:
        one, two = vectors[vocabulary[word]], vectors[vocabulary[other]]
        return float(one @ two / np.linalg.norm(one) / np.linalg.norm(two))

    assert word not in near[word]
    assert len(near[word]) == augment.NEAREST
    similar = [cosine(other) for other in near[word]]
    assert similar == sorted(similar, reverse=True)
    assert max(cosine(other) for other in near if other not in {word, *near[word]}) <= similar[-1] + 1e-6


def test_the_written_file_is_a_training_file_without_labels(tmp_path: Path) -> None:
    data.write_texts(tmp_path / "new.tsv", ['so "great"', "a tab\there"])
    assert data.load(tmp_path / "new.tsv") == [data.Example('so "great"'), data.Example("a tab here")]
