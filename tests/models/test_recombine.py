"""New sentences are made of parts of the given ones that begin alike, drawn by seed, none of them twice."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from models import recombine
from models.data import Node, read_tree, read_trees

TREES = (
    "(3 (2 (2 the) (2 film)) (3 (2 is) (3 (2 of) (3 (2 great) (2 charm)))))",
    "(1 (2 (2 the) (2 plot)) (1 (2 is) (1 (2 of) (1 (1 little) (2 (2 or) (2 (2 no) (2 interest)))))))",
)


@pytest.fixture
def sentences(tmp_path: Path) -> list[recombine.Parsed]:
    path = tmp_path / "trees.txt"
    path.write_text("\n".join(TREES) + "\n", encoding="utf-8")
    return list(read_trees(path))


def test_parts_are_the_constituents_that_are_neither_a_word_nor_a_sentence(
    sentences: list[recombine.Parsed],
) -> None:
    assert recombine.parts_by_opener(sentences) == {
        "the": [("the", "film"), ("the", "plot")],
        "is": [("is", "of", "great", "charm"), ("is", "of", "little", "or", "no", "interest")],
        "of": [("of", "great", "charm"), ("of", "little", "or", "no", "interest")],
        "great": [("great", "charm")],
        "little": [("little", "or", "no", "interest")],
        "or": [("or", "no", "interest")],
        "no": [("no", "interest")],
    }


def test_only_the_commonest_openers_tell_of_a_kind(
    sentences: list[recombine.Parsed], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recombine, "OPENERS", 3)
    assert recombine.parts_by_opener(sentences).keys() == {"the", "is", "of"}


def test_a_new_sentence_has_parts_of_others_where_parts_that_begin_alike_were(
    sentences: list[recombine.Parsed],
) -> None:
    made = set(recombine.recombine(sentences, each=200, seed=0))
    assert made == {
        "the film is of little or no interest",
        "the plot is of great charm",
    }


def test_parts_inside_one_another_are_not_both_exchanged() -> None:
    words, nodes = read_tree("(2 (2 a) (2 (2 a) (2 (2 a) (2 b))))")
    places = [node for node in nodes if recombine.is_part(words, node)]
    assert places == [Node(2, 2, 4), Node(2, 1, 4)]
    made = {" ".join(recombine.exchange(words, places, {"a": [("a", "c")]}, random.Random(i))) for i in range(30)}
    assert made == {"a a a c", "a a c"}


def test_what_is_made_is_new_distinct_and_drawn_by_seed() -> None:
    drawn = random.Random(0)
    sentences = [
        read_tree(f"(2 (2 (2 the) (2 w{drawn.randrange(50)})) (2 (2 of) (2 w{drawn.randrange(50)})))")
        for _ in range(40)
    ]
    made = recombine.recombine(sentences, each=4, seed=1)
    assert made == recombine.recombine(sentences, each=4, seed=1) != recombine.recombine(sentences, each=4, seed=2)
    assert len(set(made)) == len(made) > 40
    assert not set(made) & {" ".join(words) for words, _ in sentences}
    assert recombine.recombine([read_tree("(2 alone)")], each=4, seed=1) == []
