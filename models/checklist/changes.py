"""Changes of a text that do not change what it says."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

SHORTEST = 5


def _inner(text: str, replace: Callable[[str, int], str]) -> str:
    """Replace at one place inside one word of at least five letters; which, the text itself decides."""
    rng = random.Random(text)
    words = list(re.finditer(rf"[a-z]{{{SHORTEST},}}", text))
    # Two equal neighbours would swap to the same word.
    places = [at for word in words for at in range(word.start() + 1, word.end() - 2) if text[at] != text[at + 1]]
    return replace(text, rng.choice(places)) if places else text


CHANGES: dict[str, Callable[[str], str]] = {
    "swapped letters": lambda text: _inner(text, lambda t, at: t[:at] + t[at + 1] + t[at] + t[at + 2 :]),
    "dropped letter": lambda text: _inner(text, lambda t, at: t[:at] + t[at + 1 :]),
    "doubled letter": lambda text: _inner(text, lambda t, at: t[: at + 1] + t[at:]),
    "handle": lambda text: f"@lena_k {text}",
    "link": lambda text: f"{text} https://example.org/2024/05",
    "topic": lambda text: f"{text} #monday",
    "upper case": str.upper,
    "lower case": str.lower,
    "no full stop": lambda text: text.rstrip("."),
    "three dots": lambda text: text.rstrip(".") + "...",
    "exclamation mark": lambda text: text.rstrip(".") + "!",
    "double spaces": lambda text: text.replace(" ", "  "),
    "no apostrophes": lambda text: text.replace("'", ""),
    "curly apostrophes": lambda text: text.replace("'", "\u2019"),
}
