"""Texts that nobody writes, through all that is done to a text before the model: refused, or read, offsets fitting.

What holds for clean-up, tokenizer and windows each is in tests/service/test_{cleaning,tokenizer,reading}.py.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from service.artifact import Artifact
from service.errors import InputError
from service.reading import Reading
from service.settings import DEFAULT_MODEL
from service.tokenizer import Tokenizer

ARTIFACT = Artifact.open(DEFAULT_MODEL)
TOKENIZER = Tokenizer(ARTIFACT.path("tokenizer.json"), ARTIFACT.manifest.max_tokens, ARTIFACT.manifest.cleanup)

UNITS = (
    *(
        "a",
        " ",
        ".",
        "!",
        "?",
        ",",
        "'",
        '"',
        "(",
        "[",
        "<",
        "#",
        "@",
        "&",
        "\\",
        "\n",
        "\r\n",
        "\t",
        "\x07",
        "\x85",
        "0",
    ),
    *(
        "&amp;",
        "&#x41;",
        "&#xd800;",
        "\\u00e9",
        "\\ud83d",
        "http",
        "https://a.b/c",
        "www.",
        "@user",
        "[SEP]",
        "[MASK]",
        "##s",
    ),
    *("\u0301", "e\u0301", "\u0915\u094d", "\u0e01", "\u1100\u1161", "\u00df", "\u0130", "\ufb01", "\ufdfa", "\u1e9e"),
    *(
        "\u05d0",
        "\u05d0\u0591",
        "\u0627\u0644",
        "\u202e",
        "\u2066",
        "\u200b",
        "\u200d",
        "\u200e",
        "\ufeff",
        "\u00ad",
        "\u2028",
    ),
    *("\u5b57", "\u3002", "\uff01", "\u2026", "\u201c", "\u2018", "\U0001f600", "\U0001f44d\U0001f3fd", "\U0001f3fd"),
    *(
        "\U0001f468\u200d",
        "\U0001f468\u200d\U0001f469\u200d\U0001f467",
        "\U0001f1eb",
        "\U0001f1eb\U0001f1f7",
        "1\ufe0f\u20e3",
    ),
    *("\ufe0f", "\u20e3", "\U000e0067", "\U0001d400", "\uffff", "\U0010ffff", "\ud7ff", "\ue000"),
)
STRANGE = st.lists(st.sampled_from(UNITS) | st.text(alphabet=st.characters(), max_size=4), max_size=60).map("".join)


def read(text: str) -> Reading | None:
    """A text as it is read; none if it is refused, for what it is and in no other way."""
    try:
        return TOKENIZER.read(text)
    except InputError as error:
        assert error.code in {"empty_text", "nul_character", "lone_surrogate"}  # noqa: PT017 - most are read
        return None


def check(text: str, reading: Reading) -> None:
    """Every part of a text that is shown to a caller is where it is said to be."""
    maximum = ARTIFACT.manifest.max_tokens
    windows, sentences, words = reading.windows(), reading.sentences(), reading.words()
    for piece in (*windows, *sentences, reading.first()):
        assert 0 <= piece.start < piece.end <= len(text)
        assert 2 < len(piece.ids) <= maximum
        assert piece.ids.max() < TOKENIZER.vocabulary_size
    assert sum(piece.weight for piece in windows) >= reading.tokens - 2 == sum(piece.weight for piece in sentences)
    for before, after in pairwise(sentences):
        assert before.start <= after.start
        assert before.end <= after.end
    assert words == sorted(words)
    assert all(0 <= start < end <= len(text) for start, end in words)


@given(text=STRANGE)
@example(text="\ud800")
@example(text="a\0b")
@example(text="")
def test_any_text(text: str) -> None:
    if reading := read(text):
        check(text, reading)
        if reading.fits and (words := reading.words()):
            masked = reading.masked(words[0], TOKENIZER.mask or 0)
            assert len(masked) == reading.tokens


@given(first=st.sampled_from(UNITS), second=st.sampled_from(UNITS))
@example(first="\U0001f468", second="\u200d")
@example(first="\u5b57", second="!")
def test_a_few_signs_over_and_over(first: str, second: str) -> None:
    """As long as it takes for what grows with the square of a length to be felt."""
    unit = first + second
    text = unit * (20_000 // len(unit))
    if reading := read(text):
        check(text, reading)


@pytest.mark.parametrize("unit", ["a", "\u0301", "\u05d0", "\u5b57", "\U0001f468\u200d", "\u200b"])
def test_a_word_of_a_megabyte(unit: str) -> None:
    text = unit * (2**20 // len(unit.encode()))
    if reading := read(text):
        check(text, reading)
