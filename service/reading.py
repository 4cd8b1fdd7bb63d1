"""A text as the encoder can take it: whole, in windows, sentence by sentence, or with one word masked."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import regex
import sentencex
import tokenizers
from numpy.typing import NDArray

from service.cleaning import Cleaned

Ids = NDArray[np.int64]
Range = tuple[int, int]

OVERLAP = 64
"""Tokens that a window repeats of the one before, at most: what stands at a cut is read in its context once."""

UNBROKEN = 2000

_UNBROKEN = re.compile(rf"\S{{{UNBROKEN + 1},}}")
_ENDS = re.compile(r"[.!?\u3002\uff01\uff1f\u2026]+")

# Not the standard library's: its \w leaves out the marks that combine with letters, in many scripts the vowels.
_WORD = regex.compile(r"[\w\p{M}]+(?:['-][\w\p{M}]+)*|[^\w\p{M}\s]+")


@dataclass(frozen=True, slots=True)
class Piece:
    """Token ids int64 [n], special ones included, and the code points `start` to `end` of the text they stand for."""

    ids: Ids
    start: int
    end: int

    @property
    def weight(self) -> int:
        """Tokens of the text itself."""
        return len(self.ids) - 2


class Reading:
    """One tokenized text. Offsets are looked up only when a text is taken apart, which most never are."""

    def __init__(self, original: str, cleaned: Cleaned, encoding: tokenizers.Encoding, max_tokens: int) -> None:
        self._original = original
        self._cleaned = cleaned
        self._encoding = encoding
        self._ids: list[int] = encoding.ids
        self._size = max_tokens - 2

    @property
    def tokens(self) -> int:
        """How many tokens the text has, special tokens included."""
        return len(self._ids)

    def count(self, id_: int) -> int:
        """How many of the tokens have this id."""
        return self._ids.count(id_)

    @property
    def fits(self) -> bool:
        """Whether the model reads it in one piece."""
        return len(self._ids) - 2 <= self._size

    def first(self) -> Piece:
        """As much from the start as the model reads: all of a text that fits."""
        if self.fits:
            return Piece(np.array(self._ids, np.int64), 0, len(self._original))
        return self._piece((0, self._size))

    def windows(self) -> list[Piece]:
        """The whole text in overlapping windows, cut between sentences where it can be, else between words."""
        if self.fits:
            return [self.first()]
        sentences = [self._token_at(start) for start, _ in self._sentences()]
        return [self._piece(cut) for cut in cuts(len(self._ids) - 2, self._size, sentences, self._word_starts())]

    def sentences(self) -> list[Piece]:
        """The text sentence by sentence; one longer than the model reads comes in several pieces."""
        found: list[Piece] = []
        for start, end in self._sentences():
            first, last = self._token_at(start), self._token_at(end)
            whole = range(first, last, self._size)
            found += (self._piece((token, min(token + self._size, last))) for token in whole)
        return found

    def words(self) -> list[Range]:
        """The spans of the caller's text that are words or runs of punctuation, each once, in order."""
        spans = (self._cleaned.original(*match.span()) for match in _WORD.finditer(self._cleaned.text))
        return list(dict.fromkeys(spans))

    def masked(self, word: Range, mask: int) -> Ids:
        """Token ids with those of one word replaced by the mask token."""
        ids = np.array(self._ids, np.int64)
        for token, (start, end) in enumerate(self._offsets, start=1):
            begins, ends = self._cleaned.original(start, end)
            if begins < word[1] and ends > word[0]:
                ids[token] = mask
        return ids

    def _piece(self, cut: Range) -> Piece:
        offsets = self._offsets
        start, end = self._cleaned.original(offsets[cut[0]][0], offsets[cut[1] - 1][1])
        ids = [self._ids[0], *self._ids[cut[0] + 1 : cut[1] + 1], self._ids[-1]]
        return Piece(np.array(ids, np.int64), start, end)

    @cached_property
    def _offsets(self) -> list[Range]:
        """Spans in the cleaned text of the tokens between the special ones, without a space that begins a token."""
        text = self._cleaned.text
        return [(end - len(text[start:end].lstrip()), end) for start, end in self._encoding.offsets[1:-1]]

    def _token_at(self, character: int) -> int:
        """The first token that starts at or behind a character of the cleaned text."""
        return bisect_left(self._offsets, (character, 0))

    def _word_starts(self) -> list[int]:
        """Tokens behind a space. Where a vocabulary has a token for the space itself, that one is the word's first."""
        text = self._cleaned.text
        starts = [start for start, _ in self._offsets]
        pairs = enumerate(pairwise([-1, *starts]))
        return [i for i, (before, start) in pairs if start != before and text[start - 1 : start].isspace()]

    def _sentences(self) -> Iterator[Range]:
        position = 0
        for part in parts(self._cleaned.text):
            for sentence in sentencex.segment("en", part):
                yield position, position + len(sentence)
                position += len(sentence)


def parts(text: str) -> Iterator[str]:
    """A text as the search for sentences is given it: whole, but for what goes on for `UNBROKEN` characters without a
    space, which is cut, behind the end of a sentence where there is one. The search takes the square of such a length:
    seconds, for a text as long as a request may hold."""
    start = 0
    for run in _UNBROKEN.finditer(text):
        while run.end() - max(start, run.start()) > UNBROKEN:
            latest = max(start, run.start()) + UNBROKEN
            ends = [match.end() for match in _ENDS.finditer(text, latest - UNBROKEN // 2, latest)]
            cut = ends[-1] if ends else latest
            yield text[start:cut]
            start = cut
    yield text[start:]


def cuts(count: int, size: int, sentences: Sequence[int], words: Sequence[int]) -> list[Range]:
    """Ranges of at most `size` that cover `count` tokens. `sentences` and `words` are where one starts, ascending.

    A window ends with a sentence if one ends in its second half, else with a word; only a word longer than a window
    is cut inside. The next window repeats up to `OVERLAP` tokens, from the start of a sentence or word.
    """
    found: list[Range] = []
    start = end = 0
    while count - start > size:
        # Behind the end before: a window that only repeats is none.
        latest = _last(sentences, max(start + size // 2, end + 1), start + size)
        end = latest or _last(words, end + 1, start + size) or start + size
        found.append((start, end))
        overlap = OVERLAP if end - start > 2 * OVERLAP else 0
        start = _first(sentences, end - overlap, end) or _first(words, end - overlap, end) or end
    return [*found, (start, count)]


def _last(boundaries: Sequence[int], low: int, high: int) -> int | None:
    index = bisect_right(boundaries, high) - 1
    return boundaries[index] if index >= 0 and boundaries[index] >= low else None


def _first(boundaries: Sequence[int], low: int, high: int) -> int | None:
    index = bisect_left(boundaries, low)
    return boundaries[index] if index < len(boundaries) and boundaries[index] < high else None
