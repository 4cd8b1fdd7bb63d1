"""A text taken apart: nothing lost, nothing cut inside, every offset one of the caller's own."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.artifact import Artifact
from service.errors import InputError
from service.reading import OVERLAP, UNBROKEN, cuts, parts
from service.tokenizer import Tokenizer

TINY = Path(__file__).parents[1] / "tiny"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    artifact = Artifact.open(TINY)
    return Tokenizer(artifact.path("tokenizer.json"), artifact.manifest.max_tokens, artifact.manifest.cleanup)


def boundaries(count: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, count), unique=True).map(sorted)


@given(st.data())
def test_windows_cover_every_token_in_order_and_fit(data: st.DataObject) -> None:
    count, size = data.draw(st.integers(1, 3000)), data.draw(st.integers(20, 600))
    words = data.draw(boundaries(count))
    sentences = data.draw(boundaries(count))
    found = cuts(count, size, sentences, words)
    assert found[0][0] == 0
    assert found[-1][1] == count
    assert all(0 < end - start <= size for start, end in found)
    for (start, end), (next_start, next_end) in pairwise(found):
        assert start < next_start <= end < next_end
        assert end - next_start <= OVERLAP
    assert len(found) <= 2 + 4 * count // size


@given(st.data())
def test_windows_cut_between_words_unless_one_is_longer_than_a_window(data: st.DataObject) -> None:
    lengths = data.draw(st.lists(st.integers(1, 12), min_size=1, max_size=300))
    words = list(np.cumsum([0, *lengths[:-1]]))
    for start, end in cuts(sum(lengths), 40, [], words):
        assert start in words
        assert end in words or end == sum(lengths)


def test_a_window_ends_with_a_sentence_of_its_second_half() -> None:
    words = list(range(0, 200, 2))
    assert cuts(200, 100, [0, 30, 80, 150], words)[0] == (0, 80)
    assert cuts(200, 100, [0, 30], words)[0] == (0, 100)


def test_a_word_longer_than_a_window_is_cut() -> None:
    assert cuts(250, 100, [], []) == [(0, 100), (100, 200), (200, 250)]


def test_a_text_that_fits_is_one_window(tokenizer: Tokenizer) -> None:
    reading = tokenizer.read("the film is good")
    (window,) = reading.windows()
    assert reading.fits
    assert (window.start, window.end) == (0, 16)
    assert window.ids.tolist() == reading.first().ids.tolist()
    assert len(window.ids) == reading.tokens == window.weight + 2


def test_the_first_piece_of_a_long_text_is_as_long_as_the_model_reads(tokenizer: Tokenizer) -> None:
    text = "the film is good . " * 40
    reading = tokenizer.read(text)
    piece = reading.first()
    assert not reading.fits
    assert len(piece.ids) == tokenizer.max_tokens
    assert piece.ids[[0, -1]].tolist() == tokenizer.read("a").first().ids[[0, -1]].tolist()
    assert piece.start == 0
    assert text[: piece.end].rstrip() == text[: piece.end]


PARTS = (
    *("the film is good . ", "it\u2019s bad! ", "@someone ", "see https://example.org/x?y=1 ", "&amp; ", "\r\n"),
    *("\U0001f621", "\U0001f44d\U0001f3fd", "e\u0301 ", "\u200b", "\u4f60\u597d\u3002", "\u05e9\u05dc "),
)
TEXTS = st.lists(st.one_of(st.sampled_from(PARTS), st.text(max_size=20)), min_size=1, max_size=60).map("".join)


@given(TEXTS)
def test_pieces_point_into_the_callers_text_in_order(text: str) -> None:
    artifact = Artifact.open(TINY)
    tokenizer = Tokenizer(artifact.path("tokenizer.json"), artifact.manifest.max_tokens, artifact.manifest.cleanup)
    try:
        reading = tokenizer.read(text)
    except InputError:
        return
    for pieces in (reading.windows(), reading.sentences()):
        assert all(0 <= piece.start < piece.end <= len(text) for piece in pieces)
        assert all(2 < len(piece.ids) <= tokenizer.max_tokens for piece in pieces)
        for before, after in pairwise(pieces):
            assert before.start <= after.start
            assert before.end <= after.end
    assert sum(piece.weight for piece in reading.sentences()) == reading.tokens - 2
    words = reading.words()
    assert words == sorted(words)
    assert all(0 <= start < end <= len(text) for start, end in words)


def test_sentences_and_words_of_a_text_with_everything_in_it(tokenizer: Tokenizer) -> None:
    text = "He\u2019s good \U0001f621\U0001f621. It isn't &lt;bad&gt;!\r\nCafe\u0301 time? https://example.org"
    reading = tokenizer.read(text)
    sentences = [text[piece.start : piece.end] for piece in reading.sentences()]
    assert sentences[0].startswith("He\u2019s good")
    assert sentences[-1].endswith("https://example.org")
    words = [text[start:end] for start, end in reading.words()]
    assert words[0] == "He\u2019s"
    assert "isn't" in words
    assert "\U0001f621" in words
    assert "Cafe\u0301" in words
    assert "https://example.org" in words


@given(TEXTS)
def test_a_text_with_spaces_is_searched_whole(text: str) -> None:
    assert list(parts(f"a {text} b")) == [f"a {text} b"]


@pytest.mark.parametrize("unit", ["\u5b57!", "\u4f60\u597d\u3002", "a", "?", "\u5b57\u3002 "])
def test_what_goes_on_without_a_space_is_searched_in_parts(unit: str) -> None:
    """A text of 50,000 sentences without a space took seconds."""
    text = "Before. " + unit * (20_000 // len(unit)) + " After."
    found = list(parts(text))
    assert "".join(found) == text
    assert max(len(one.split()[-1]) for one in found) <= UNBROKEN
    if unit == "\u4f60\u597d\u3002":
        assert all(one.endswith("\u3002") for one in found[:-1])
    if unit.endswith(" "):
        assert found == [text]


def test_masking_a_word_masks_its_tokens_alone(tokenizer: Tokenizer) -> None:
    text = "the film is good \U0001f621 !"
    reading = tokenizer.read(text)
    whole = reading.first().ids
    mask = tokenizer.mask
    assert mask is not None
    for word in reading.words():
        masked = reading.masked(word, mask)
        changed = np.flatnonzero(masked != whole)
        assert changed.size >= 1
        assert set(masked[changed]) == {mask}
        assert 0 not in changed
        assert len(whole) - 1 not in changed
    together = sum((reading.masked(word, mask) == mask).astype(int) for word in reading.words())
    assert np.all(together[1:-1] == 1)
