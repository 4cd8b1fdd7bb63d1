"""Labelled text in every form it comes in, and training sets mixed of it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models import data
from models.data import Example, Source

NEGATIVE, NEUTRAL, POSITIVE = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)
TREE = "(3 (2 The) (4 (3 (2 very) (3 good)) (2 film)))"

Write: TypeAlias = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """A file of the given name and content, its newlines kept."""

    def write(name: str, content: str) -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode())
        return path

    return write


def brief(examples: list[Example]) -> list[tuple[str, Any]]:
    return [(example.text, example.target) for example in examples]


# Files


@pytest.mark.parametrize("bom", ["", "\ufeff"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("some.csv", ["label,text", 'positive,"so ""good"", it\u2019s"', "negative,bad"]),
        ("some.tsv", ["sentence\tlabel", 'so "good", it\u2019s\t1', "bad\t0"]),
        (
            "some.jsonl",
            ['{"text": "so \\"good\\", it\u2019s", "label": 1}', "", '{"text": "bad", "label": "negative"}'],
        ),
    ],
)
def test_every_kind_of_text_file(write: Write, name: str, lines: list[str], newline: str, bom: str) -> None:
    path = write(name, bom + newline.join(lines) + newline)
    assert brief(data.load(path)) == [('so "good", it\u2019s', POSITIVE), ("bad", NEGATIVE)]


def test_parquet(tmp_path: Path) -> None:
    table = pa.table({"sentence": ["good", "so so"], "label": ["positive", "neutral"]})
    pyarrow.parquet.write_table(table, tmp_path / "some.parquet")
    assert brief(data.load(tmp_path / "some.parquet")) == [("good", POSITIVE), ("so so", NEUTRAL)]
    pyarrow.parquet.write_table(pa.table({"text": ["good"], "label": [1]}), tmp_path / "some.parquet")
    assert brief(data.load(tmp_path / "some.parquet")) == [("good", POSITIVE)]


def test_a_csv_cell_may_span_lines_and_a_tsv_cell_may_hold_a_quotation_mark(write: Write) -> None:
    assert brief(data.load(write("a.csv", 'text,label\n"one\ntwo",0\n'))) == [("one\ntwo", NEGATIVE)]
    assert brief(data.load(write("a.tsv", 'text\tlabel\n"one\t0\ntwo"\t1\n'))) == [
        ('"one', NEGATIVE),
        ('two"', POSITIVE),
    ]


def test_whole_texts_of_weight_one(write: Write) -> None:
    assert data.load(write("a.tsv", "text\tlabel\nfine\tneutral\n")) == [Example("fine", NEUTRAL)]
    assert data.load(write("a.tsv", "text\nfine\n")) == [Example("fine")]
    assert Example("fine") == Example("fine", None, None, 1.0, whole=True)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.xml", "", "a.xml: unknown kind of file; use .csv, .tsv, .jsonl, .parquet, or .txt for trees"),
        ("a.csv", "label\n1\n", "a.csv, row 1: no `text`; it has label"),
        ("a.csv", "label\n1,more\n", "a.csv, row 1: no `text`; it has label, None"),
        (
            "a.tsv",
            "text\tlabel\nfine\t1\nodd\tPositive\n",
            "a.tsv, row 2: label 'Positive'; use negative, neutral, positive, or 0",
        ),
        ("a.tsv", "text\tlabel\nfine\t2\n", "a.tsv, row 1: label '2'"),
        ("a.tsv", "text\tlabel\nfine\n", "a.tsv, row 1: label 'None'"),
        ("a.tsv", "text\tlabel\nfine\t\n", "a.tsv, row 1: label ''"),
        ("a.tsv", "text\tvalence\nfine\tgood\n", "a.tsv, row 1: valence 'good'; use a number from -4 to 4"),
        ("a.tsv", "text\tvalence\nfine\n", "a.tsv, row 1: valence None"),
        ("a.tsv", "text\tvalence\nfine\t4.1\n", "a.tsv, row 1: valence '4.1'"),
        ("a.tsv", "text\tvalence\nfine\tnan\n", "a.tsv, row 1: valence 'nan'"),
        ("a.jsonl", '{"text": "a", "label": 1}\n{"text"\n', "a.jsonl, line 2: not JSON"),
        ("a.jsonl", '["a", 1]\n', "a.jsonl, line 1: not a JSON object"),
        ("a.jsonl", '{"text": null, "label": 1}\n', "a.jsonl, row 1: no `text`; it has text, label"),
        ("a.jsonl", '{"text": 5, "label": 1}\n', "a.jsonl, row 1: no `text`"),
        ("a.txt", TREE + "\nplain words\n", "a.txt, line 2: not a bracketed tree with labels 0 to 4"),
        ("a.txt", TREE + "\n\n" + TREE, "a.txt, line 2"),
        ("a.txt", "(3 (2 The) (4 film)", "a.txt, line 1"),
        ("a.txt", "(3 film))", "a.txt, line 1"),
        ("a.txt", "(5 film)", "a.txt, line 1"),
        ("a.txt", "(x film)", "a.txt, line 1"),
    ],
)
def test_what_cannot_be_read_is_named(write: Write, name: str, content: str, message: str) -> None:
    with pytest.raises(ValueError, match=r".") as refusal:
        data.load(write(name, content))
    assert message in str(refusal.value)


def test_pairs(write: Write) -> None:
    path = write("a.tsv", '\ufeffscore\tsentence1\tsentence2\n4.5\ta "b\tc\n0\td\te\n')
    assert data.load_pairs(path) == [(4.5, 'a "b', "c"), (0.0, "d", "e")]


# Ratings


@given(valence=st.floats(-4, 4))
def test_a_rating_becomes_probabilities_that_grow_with_it(valence: float) -> None:
    negative, neutral, positive = target = data._target_of_rating(valence)
    assert sum(target) == pytest.approx(1.0)
    assert min(target) >= 0
    assert data._target_of_rating(-valence) == pytest.approx((positive, neutral, negative))
    assert data._target_of_rating(min(4.0, valence + 0.1))[2] >= positive


@pytest.mark.parametrize(("valence", "best"), [(-4, 0), (-1.2, 0), (-0.3, 1), (0, 1), (0.3, 1), (1.2, 2), (4, 2)])
def test_a_rating_near_none_is_neutral(write: Write, valence: float, best: int) -> None:
    (example,) = data.load(write("a.tsv", f"text\tvalence\nfine\t{valence}\n"))
    assert example.valence == valence
    assert example.target
    assert max(example.target) == example.target[best]


def test_a_rating_between_is_as_likely_the_one_as_the_other() -> None:
    assert data._target_of_rating(0.6)[1:] == pytest.approx((0.5, 0.5), abs=0.003)


# Trees


def test_a_tree_is_its_phrases_and_its_sentence(write: Write) -> None:
    examples = {example.text: example for example in data.load(write("a.txt", TREE + "\n"))}
    assert {text: (example.target, example.whole) for text, example in examples.items()} == {
        "The": (NEUTRAL, False),
        "very": (NEUTRAL, False),
        "good": (POSITIVE, False),
        "very good": (POSITIVE, False),
        "film": (NEUTRAL, False),
        "very good film": (POSITIVE, False),
        "The very good film": (POSITIVE, True),
    }


@pytest.mark.parametrize(
    ("label", "target"), [(0, NEGATIVE), (1, NEGATIVE), (2, NEUTRAL), (3, POSITIVE), (4, POSITIVE)]
)
def test_five_classes_become_three(write: Write, label: int, target: data.Target) -> None:
    assert data.load(write("a.txt", f"({label} film)")) == [Example("film", target)]


def test_a_text_comes_once_and_a_sentence_before_an_equal_phrase(write: Write) -> None:
    lines = ["(3 (4 good) (2 film))", "(1 (2 good) (0 one))", "(2 good)", "(0 good)", "(4 (1 good) (2 film))"]
    examples = data.load(write("a.txt", "\n".join(lines)))
    assert [example.text for example in examples] == ["good", "film", "good film", "one", "good one"]
    assert examples[0] == Example("good", NEUTRAL)
    assert examples[2] == Example("good film", POSITIVE)


def test_a_line_of_a_tree_file_ends_at_a_newline_alone(write: Write) -> None:
    """A word may hold what Unicode also counts as the end of a line."""
    (example,) = data.load(write("a.txt", "\ufeff(3 a\u0085b\u2028c)\r\n"))
    assert example.whole
    assert example.target == POSITIVE


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        ("do n't stop .", "don't stop."),
        (
            "It 's what we 've , they 're and I 'm ; he 'd , she 'll !",
            "It's what we've, they're and I'm; he'd, she'll!",
        ),
        ("-LRB- so -RRB- they say", "(so) they say"),
        ("-lrb- so -rrb-", "(so)"),
        ("`` so '' they say", '"so" they say'),
        ("either\\/or \\*", "either/or *"),
        ("90 % : fine", "90%: fine"),
        ("nothing to do", "nothing to do"),
    ],
)
def test_detokenizing(tokens: str, text: str) -> None:
    assert data.detokenize(tokens) == text


@given(
    tokens=st.lists(st.sampled_from([*"abc.,!?;:%", "n't", "'s", "``", "''", "-LRB-", "-RRB-", "\\/"])).map(" ".join)
)
def test_detokenizing_keeps_every_letter_in_its_order(tokens: str) -> None:
    def letters(text: str) -> str:
        return "".join(c for c in text.replace("-LRB-", "").replace("-RRB-", "") if c.isalpha())

    assert letters(data.detokenize(tokens)) == letters(tokens)


# Mixtures


@pytest.mark.parametrize(
    ("written", "source"),
    [
        ("a/b.tsv", Source(Path("a/b.tsv"))),
        ("b.tsv,weight=0.5", Source(Path("b.tsv"), weight=0.5)),
        ("b.txt,take=10,phrases=3,neutral_phrases=0", Source(Path("b.txt"), 1.0, 10, 3, 0)),
        ("b.txt,phrase_words=8", Source(Path("b.txt"), phrase_words=8)),
    ],
)
def test_a_source_is_written_on_one_line(written: str, source: Source) -> None:
    assert Source.parse(written) == source


@pytest.mark.parametrize(
    "written",
    ["a.tsv,", "a.tsv,wieght=2", "a.tsv,weight", "a.tsv,weight=big", "a.tsv,take=1.5", "a.tsv,take=", "a.tsv,path=b"],
)
def test_anything_else_is_not_a_source(written: str) -> None:
    with pytest.raises(ValueError, match=r"option|convert|invalid literal"):
        Source.parse(written)


@pytest.fixture
def sources(write: Write) -> list[Source]:
    labelled = "".join(json.dumps({"text": f"text {i}", "label": i % 2}) + "\n" for i in range(50))
    trees = "".join(f"(3 (2 film{i}) (4 (2 is{i}) (4 good{i})) (2 .))\n" for i in range(50))
    return [
        Source(write("labelled.jsonl", labelled), weight=2.0, take=20),
        Source(write("trees.txt", trees), weight=0.5, phrases=30, neutral_phrases=10),
    ]


def test_a_mixture_is_bounded_and_weighted(sources: list[Source]) -> None:
    examples = data.mix(sources, seed=0)
    labelled, trees = examples[:20], examples[20:]
    assert {e.weight for e in labelled} == {2.0}
    assert {e.weight for e in trees} == {0.5}
    assert len({e.text for e in labelled}) == 20
    assert sum(e.whole for e in trees) == 50
    assert sum(not e.whole and e.target == POSITIVE for e in trees) == 30
    assert sum(not e.whole and e.target == NEUTRAL for e in trees) == 10


def test_short_phrases_can_be_left_out_and_no_sentence_is(sources: list[Source]) -> None:
    examples = data.mix([Source(sources[1].path, phrase_words=2)], seed=0)
    assert sum(e.whole for e in examples) == 50
    assert sorted(e.text for e in examples if not e.whole) == sorted(f"is{i} good{i}" for i in range(50))


def test_about_half_of_the_sentences_lose_their_tokenization(sources: list[Source]) -> None:
    sentences = [e.text for e in data.mix(sources, seed=0) if e.text.endswith(".") and e.whole]
    written = sum(not text.endswith(" .") for text in sentences)
    assert 15 <= written <= 35


def test_a_mixture_depends_on_its_seed_alone(sources: list[Source]) -> None:
    assert data.mix(sources, seed=1) == data.mix(sources, seed=1)
    assert data.mix(sources, seed=1) != data.mix(sources, seed=2)


def test_without_bounds_everything_is_taken_in_order(sources: list[Source]) -> None:
    path = sources[0].path
    assert data.mix([Source(path)], seed=5) == data.load(path)
    assert data.mix([Source(path, take=1000)], seed=5) == data.load(path)
    assert data.mix([Source(path, take=0)], seed=5) == []


@pytest.mark.parametrize("read", [data.load, data.load_pairs])
def test_a_file_is_closed_when_a_row_of_it_ends_the_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Callable[[Path], object]
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a", "label": "good", "score": "high"}\n' * 2, encoding="utf-8")
    opened: list[Any] = []
    open_ = Path.open

    def remembered(self: Path, *args: Any, **how: Any) -> Any:
        opened.append(open_(self, *args, **how))
        return opened[-1]

    monkeypatch.setattr(Path, "open", remembered)
    with pytest.raises(ValueError) as error:  # noqa: PT011 - what it says is another test's
        read(path)
    assert [file.closed for file in opened] == [True], f"open while somebody holds {error}, with its frames"
