"""Short labelled texts from templates: plain statements, negation, emoji, irony, changes of mind.

What the labelled sets hold little of, and people test first. The idea of capabilities and templates is that of
CheckList (Ribeiro et al. 2020, "Beyond Accuracy: Behavioral Testing of NLP Models with CheckList"); the words are ours.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from models.data import HARD, Example

WORDS: dict[str, tuple[str, ...]] = {
    "thing": (
        "film",
        "phone",
        "hotel",
        "service",
        "book",
        "update",
        "food",
        "battery",
        "course",
        "staff",
        "app",
        "seat",
    ),
    "good": ("great", "excellent", "lovely", "good", "wonderful", "pleasant", "reliable", "fantastic", "helpful"),
    "bad": ("bad", "terrible", "awful", "boring", "useless", "disappointing", "horrible", "unreliable", "rude"),
    "very": ("very", "really", "so", "absolutely", "quite", "truly", "extremely"),
    "who": ("I", "We", "They", "My sister", "The manager", "Our neighbour", "The team"),
    "plain": (
        "took the bus to the station",
        "moved the meeting to Thursday",
        "bought two tickets and a map",
        "read the report before lunch",
        "opened the window",
        "went to work at nine",
        "sent the documents by post",
        "walked along the river",
        "changed the password",
        "counted the boxes in the hall",
    ),
    "fact": (
        "The office opens at nine",
        "The train to Leeds leaves from platform four",
        "The bill was passed to the committee on Monday",
        "The table is one metre wide",
        "The package contains three cables",
        "The museum is closed on Mondays",
        "The figures for March were published today",
        "The river runs north of the town",
        "The form has to be signed on page two",
        "The talk was held in room 12",
    ),
    "when": ("", " today", " this morning", " on Tuesday", " last week", " at 4 PM"),
    "ask": (
        "What time does the shop open",
        "Where can I find the manual",
        "How many pages does the form have",
        "Which bus goes to the airport",
        "Is the meeting on Monday or on Tuesday",
    ),
    "loving": (
        "\U0001f60d",
        "\u2764\ufe0f",
        "\U0001f60a",
        "\U0001f970",
        "\U0001f389",
        "\U0001f44d",
        "\U0001f601",
        "\U0001f60e",
    ),
    "angry": (
        "\U0001f621",
        "\U0001f620",
        "\U0001f92c",
        "\U0001f62d",
        "\U0001f44e",
        "\U0001f922",
        "\U0001f612",
        "\U0001f494",
    ),
    "glad": ("happy", "glad", "pleased", "delighted", "relieved"),
    "apart": (
        "don't work with you",
        "do not have to see you again",
        "never met you before",
        "am no longer on your team",
        "left your company",
        "won't have to talk to you any more",
        "did not go into business with him",
    ),
    "together": (
        "work with you",
        "get to see you again",
        "met you",
        "am on your team",
        "joined your company",
        "can talk to you any time",
        "went into business with him",
    ),
    "trouble": (
        "another delay",
        "one more bug",
        "my flight is cancelled again",
        "it broke after one day",
        "an hour on hold",
        "the printer is jammed again",
        "a third surprise fee",
    ),
    "irony": ("Great,", "Oh wonderful,", "Just what I needed,", "Fantastic,", "How nice,", "Perfect,"),
    "harm": (
        "disappear for ever",
        "stop breathing",
        "jump off a bridge",
        "hurt yourself",
        "get hit by a car",
        "die alone",
    ),
    "urge": ("I suggest that you", "You should", "Why don't you just", "I hope you", "Do us a favour and"),
    "loved": ("love it", "adore it", "recommend it", "would buy it again", "enjoy it every day"),
    "hated": ("hate it", "regret it", "cannot stand it", "want my money back", "would not buy it again"),
}

TEMPLATES: dict[str, tuple[str, ...]] = {
    "neutral": (
        "{who} {plain}{when}.",
        "{fact}.",
        "{fact}, and {who} {plain}{when}.",
        "{ask}?",
        "Someone asked: {ask}?",
    ),
    "positive": (
        "The {thing} is {good}.",
        "The {thing} was {very} {good}!",
        "This {thing} isn't {bad} at all.",
        "The {thing} was not {bad}, it was {good}.",
        "Nothing {bad} about this {thing}, I {loved}.",
        "{who} {plain}{when} {loving}",
        "{fact} {loving}{loving}",
        "{loving}",
        "I am {very} {glad} that I {together}.",
        "The {thing} looked {bad} at first, but now I {loved}.",
        "I used to think the {thing} was {bad}; today I {loved}.",
        "They say the {thing} is {bad}, but I {loved}.",
    ),
    "negative": (
        "The {thing} is {bad}.",
        "The {thing} was {very} {bad}!",
        "This {thing} isn't {good} at all.",
        "The {thing} was not {good}, it was {bad}.",
        "I don't think that the {thing} is {good}.",
        "Nothing {good} about this {thing}, I {hated}.",
        "{who} {plain}{when} {angry}",
        "{fact} {angry}{angry}",
        "{angry}",
        "I am {very} {glad} that I {apart}.",
        "The {thing} looked {good} at first, but now I {hated}.",
        "I used to think the {thing} was {good}; today I {hated}.",
        "They say the {thing} is {good}, but I {hated}.",
        "{irony} {trouble}.",
        "{irony} {trouble}{when}!",
        "{urge} {harm}.",
    ),
}


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
    lines = [f"{names[example.target]}\t{example.text}\n" for example in examples if example.target]
    out.write_text("label\ttext\n" + "".join(lines), encoding="utf-8")
    return len(lines)


def fill(template: str) -> Iterator[str]:
    """Every text that a template stands for."""
    names = re.findall(r"{(\w+)}", template)
    parts = re.split(r"{\w+}", template)
    for words in product(*(WORDS[name] for name in names)):
        yield parts[0] + "".join(word + part for word, part in zip(words, parts[1:], strict=True))
