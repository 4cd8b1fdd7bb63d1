"""More sentences from parsed ones: a part of one takes the place of a part of another; without labels, for a teacher.

After the substructure substitution of Shi et al. 2021 ("Substructure Substitution: Structured Data Augmentation for
NLP"), which exchanges constituents of one kind. The treebank's brackets name no kinds: two constituents that begin with
the same common word ("of the genre", "of a life half lived") are taken for one.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

from models.data import Node

Words = tuple[str, ...]
Parsed = tuple[list[str], list[Node]]

SHORTEST, LONGEST = 2, 12
"""How many words a part has."""
OPENERS = 40
"""So many of the words that parts begin with are common enough to tell of what kind a part is."""
EXCHANGED = (1, 2, 3)
"""How many parts of a sentence are exchanged, each as likely."""


def recombine(sentences: Sequence[Parsed], each: int, seed: int) -> list[str]:
    """At most `each` distinct new sentences of every one, in its order, in the tokens of the treebank."""
    rng = random.Random(seed)
    parts = parts_by_opener(sentences)
    seen = {" ".join(words) for words, _ in sentences}
    made: list[str] = []
    for words, nodes in sentences:
        places = [node for node in nodes if is_part(words, node) and words[node.start].lower() in parts]
        for _ in range(each if places else 0):
            new = " ".join(exchange(words, places, parts, rng))
            if new not in seen:
                seen.add(new)
                made.append(new)
    return made


def parts_by_opener(sentences: Sequence[Parsed]) -> dict[str, list[Words]]:
    """The distinct parts of all sentences that begin with each of the `OPENERS` commonest first words."""
    parts: dict[str, set[Words]] = {}
    counts: Counter[str] = Counter()
    for words, nodes in sentences:
        for node in nodes:
            if is_part(words, node):
                opener = words[node.start].lower()
                counts[opener] += 1
                parts.setdefault(opener, set()).add(tuple(words[node.start : node.end]))
    return {opener: sorted(parts[opener]) for opener, _ in counts.most_common(OPENERS)}


def is_part(words: Sequence[str], node: Node) -> bool:
    """Whether a constituent is some words of a sentence and not all of it."""
    return SHORTEST <= node.end - node.start <= min(LONGEST, len(words) - 1)


def exchange(
    words: Sequence[str], places: Sequence[Node], parts: dict[str, list[Words]], rng: random.Random
) -> list[str]:
    """A sentence with some of its places, none inside another, taken by other parts that begin alike."""
    chosen: list[Node] = []
    for node in rng.sample(places, len(places)):
        if all(node.end <= other.start or other.end <= node.start for other in chosen):
            chosen.append(node)
    chosen = chosen[: rng.choice(EXCHANGED)]
    new = list(words)
    for node in sorted(chosen, key=lambda node: -node.start):
        new[node.start : node.end] = rng.choice(parts[words[node.start].lower()])
    return new
