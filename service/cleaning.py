"""Text clean-up shared by training and serving, with a way back to the caller's own character offsets.

A model is served with the steps it was trained with: their names stand in its manifest, in order.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

Span = tuple[int, int]
Edit = tuple[int, int, str]


LONGEST_RUN = 256

_RUN = re.compile(r"[#*0-9\x80-\U0010ffff]+")
# A character and one that belongs to it: a variation, a key cap, a skin tone, half of a flag, a tag, or what is joined.
_INSIDE = re.compile(
    r".[\u200d\ufe0e\ufe0f\u20e3\U0001f3fb-\U0001f3ff\U0001f1e6-\U0001f1ff\U000e0020-\U000e007f]|\u200d.", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Cleaned:
    """A cleaned text and, for each of its characters, the span of the original it came from (code points).

    `spans` is None where nothing changed, so that the common case costs nothing.
    """

    text: str
    spans: tuple[Span, ...] | None = None

    def original(self, start: int, end: int) -> Span:
        """The span of the original that characters `start` to `end` of the cleaned text, at least one, stand for."""
        if self.spans is None:
            return start, end
        return self.spans[start][0], self.spans[end - 1][1]


def clean(text: str, steps: Sequence[str]) -> Cleaned:
    """Apply the named steps in order. Raises KeyError for a name that is not in `STEPS`."""
    cleaned = Cleaned(text)
    for name in steps:
        edits = list(STEPS[name](cleaned.text))
        if edits:
            cleaned = _apply(cleaned, edits)
    return cleaned


def _apply(cleaned: Cleaned, edits: Iterable[Edit]) -> Cleaned:
    """Replace non-overlapping, ascending spans; each new character points at the whole span it replaces."""
    before = cleaned.spans or tuple((i, i + 1) for i in range(len(cleaned.text)))
    parts: list[str] = []
    spans: list[Span] = []
    position = 0
    for start, end, replacement in edits:
        parts += cleaned.text[position:start], replacement
        spans += before[position:start]
        spans += [(before[start][0], before[end - 1][1])] * len(replacement)
        position = end
    parts.append(cleaned.text[position:])
    spans += before[position:]
    return Cleaned("".join(parts), tuple(spans))


_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_ESCAPE = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u(?![dD][89a-fA-F])[0-9a-fA-F]{4}")
_LINK = re.compile(r"(?:https?://|\bwww\.(?=\w))[^\s<>\"]+", re.IGNORECASE)
_HANDLE = re.compile(r"(?<![\w@./])@\w+")
_PLAIN = dict.fromkeys("\u2018\u2019\u201a\u201b\u2032", "'") | dict.fromkeys("\u201c\u201d\u201e\u201f\u2033", '"')
_PLAIN["\u2026"] = "..."
_QUOTE = re.compile(f"[{''.join(_PLAIN)}]")
_SKIN_TONE = re.compile(r"_?(?:medium-)?(?:light|medium|dark)_skin_tone")
_CONTROL = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]|[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufe00-\ufe0f\ufeff]+"
)


def _html_entities(text: str) -> Iterable[Edit]:
    if "&" not in text:
        return
    for match in _ENTITY.finditer(text):
        character = html.unescape(match[0])
        if character != match[0]:
            yield match.start(), match.end(), character


def _unicode_escapes(text: str) -> Iterable[Edit]:
    """Characters that a JSON encoder escaped once too often, as in the tweets of the SemEval sets."""
    if "\\u" not in text:
        return ()
    return ((m.start(), m.end(), json.loads(f'"{m[0]}"')) for m in _ESCAPE.finditer(text))


def _links(text: str) -> Iterable[Edit]:
    """Every link reads `http`, as in the tweets of the SemEval sets."""
    if "//" not in text and "www." not in text.lower():
        return ()
    return ((m.start(), m.end(), "http") for m in _LINK.finditer(text))


def _handles(text: str) -> Iterable[Edit]:
    """Every handle reads `@user`, as in the tweets of the SemEval sets: whom a text is addressed to is not its tone."""
    if "@" not in text:
        return ()
    return ((m.start(), m.end(), "@user") for m in _HANDLE.finditer(text) if m[0] != "@user")


def _quotes(text: str) -> Iterable[Edit]:
    """Typographic quotes and ellipses in the plain form that most training text has."""
    if text.isascii():
        return ()
    return ((m.start(), m.end(), _PLAIN[m[0]]) for m in _QUOTE.finditer(text))


def _emoji(text: str) -> Iterable[Edit]:
    """Emoji as their names, without skin tones, a run of one emoji once: BERT's vocabulary has none of them."""
    if text.isascii():
        return
    import emoji  # loads its tables, which plain ASCII text never needs

    last: tuple[str, int] | None = None
    for begin, stop in _runs(text):
        for found in emoji.emoji_list(text[begin:stop]):
            start, end = begin + int(found["match_start"]), begin + int(found["match_end"])
            words = _emoji_words(str(found["emoji"]))
            repeated = last == (words, start)
            last = words, end
            yield start, end, "" if repeated else f" {words} "


def _runs(text: str) -> Iterable[Span]:
    """Where emoji can be: what is not ASCII, with the signs that a key cap is made of.

    At most `LONGEST_RUN` characters each, since the search takes the square of the joiners in what it is given: 50,000
    took minutes. A longer run is cut between emoji, or anywhere if they are joined from end to end.
    """
    for run in _RUN.finditer(text):
        if run[0].isascii():
            continue
        start, end = run.span()
        while end - start > LONGEST_RUN:
            places = range(start + LONGEST_RUN, start + LONGEST_RUN // 2, -1)
            cut = next((place for place in places if not _INSIDE.match(text, place - 1)), places[0])
            yield start, cut
            start = cut
        yield start, end


@cache
def _emoji_words(character: str) -> str:
    import emoji

    name = emoji.demojize(character, delimiters=("", ""))
    return _SKIN_TONE.sub("", name).replace("_", " ")


def _control(text: str) -> Iterable[Edit]:
    """Control characters part words; invisible format characters do not."""
    if text.isascii() and text.isprintable():
        return ()
    return ((m.start(), m.end(), " " if ord(m[0][0]) < 0xA0 else "") for m in _CONTROL.finditer(text))


STEPS: dict[str, Callable[[str], Iterable[Edit]]] = {
    "html_entities": _html_entities,
    "unicode_escapes": _unicode_escapes,
    "links": _links,
    "handles": _handles,
    "quotes": _quotes,
    "emoji": _emoji,
    "control": _control,
}
