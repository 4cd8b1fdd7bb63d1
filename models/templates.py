"""Short labelled texts from templates: plain statements, negation, emoji, irony, changes of mind, who somebody is.

What the labelled sets hold little of, and people test first. The idea of capabilities and templates is that of
CheckList (Ribeiro et al. 2020, "Beyond Accuracy: Behavioral Testing of NLP Models with CheckList"); the words, in
`templates.toml`, are ours.
"""

from __future__ import annotations

import random
import re
import tomllib
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from models.data import HARD, Example, write_tsv

_WRITTEN = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
WORDS: dict[str, list[str]] = _WRITTEN["words"]
TEMPLATES: dict[str, list[str]] = _WRITTEN["templates"]
# "an update", "an awful film", but "a useless film".
BEFORE_VOWEL = re.compile(r"\b([Aa]) (?=[aeio]|u[^s])")


def texts(each: int, seed: int) -> list[Example]:
    """At most `each` distinct texts of every template, drawn by seed; more where a label has fewer templates."""
    rng = random.Random(seed)
    most = max(len(templates) for templates in TEMPLATES.values())
    found: list[Example] = []
    for label, templates in TEMPLATES.items():
        share = each * most // len(templates)
        for template in templates:
            filled = list(fill(template))
            drawn = rng.sample(filled, share) if len(filled) > share else filled
            found += (Example(text, HARD[label]) for text in drawn)
    return found


def write(out: Path, each: int, seed: int) -> int:
    """Write the texts as TSV with columns `label` and `text`; how many there are."""
    examples = texts(each, seed)
    names = {target: label for label, target in HARD.items()}
    rows = [(names[example.target], example.text) for example in examples if example.target]
    return write_tsv(out, ("label", "text"), rows)


def fill(template: str) -> Iterator[str]:
    """Every text that a template stands for."""
    names = re.findall(r"{(\w+)}", template)
    parts = re.split(r"{\w+}", template)
    for words in product(*(WORDS[name] for name in names)):
        text = parts[0] + "".join(word + part for word, part in zip(words, parts[1:], strict=True))
        yield BEFORE_VOWEL.sub(r"\1n ", text)
