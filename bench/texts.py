"""The texts that everything is measured with, synthetic sentences of real lengths: `python -m bench.texts` writes them.

`short.txt` has as many tokens a text as the 872 sentences of SST-2's dev set, 25 on average. Of `mixed.txt` one text in
ten has 100 to 300 tokens and one in fifty 512; the others are like the short ones.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from service.tokenizer import Tokenizer

FOLDER = Path(__file__).parent / "texts"
TOKENIZER = Path(__file__).parents[1] / "models" / "sentiment-en" / "tokenizer.json"
LONGEST = 512
SHORTEST_TEXT = 4
# How many sentences of SST-2's dev set have 4, 5, 6 ... 55 tokens, special ones included.
SST2_LENGTHS = (
    "2 1 2 7 12 12 22 17 28 20 28 23 23 23 34 29 38 29 31 25 30 37 31 33 27 26 27 23 24 16 21 21 15 13 12 17 17 18 8 4 "
    "14 3 3 5 4 5 2 1 2 4 2 1"
)
MIXED_TEXTS = 500

WORDS = {
    "subject": "the film|this restaurant|the hotel staff|my new headphones|the second season|"
    "an otherwise clever screenplay|the battery|their customer service|the soundtrack|a cast of unknowns|"
    "the delivery|our guide|the director|this jacket|the airline|the ending|her performance|the keyboard|"
    "the update|a mediocre sequel|the neighbourhood|the translation",
    "verb": "is|was|feels|seems|looks|turned out|remains|became|sounded|has always been|can be|was said to be|"
    "never felt|struck me as|managed to be|will probably be",
    "degree": "|very|rather|almost|surprisingly|not|hardly|quite|a little too|unexpectedly|consistently|so|less",
    "adjective": "charming|tedious|overpriced|brilliant|clumsy|heartfelt|noisy|delicious|predictable|unwatchable|"
    "friendly|exhausting|gorgeous|mediocre|reliable|pretentious|hilarious|bland|comfortable|disappointing|spotless|"
    "sluggish|broken|available online|scheduled for Tuesday|made of aluminium|about two brothers|"
    "longer than the book",
    "link": ", and|, but|, although|; meanwhile,|, because|, while|. Still,|, so|. After three days,|"
    ", which is why|, even if|. In the end,|: I suppose",
    "end": ".|!| .|...|?|, to be honest.| -- or so I was told.| (again).",
    "filler": " really| once| more| now| then| too| here| also| just| only| yet",
}
CHOICES = {kind: words.split("|") for kind, words in WORDS.items()}


def generate(tokenizer: Tokenizer, lengths: list[int], seed: int) -> list[str]:
    """A sentence of exactly so many tokens for each length, in random order."""
    rng = random.Random(seed)
    rng.shuffle(lengths)
    return [_sentence(tokenizer, length, rng) for length in lengths]


def short_lengths() -> list[int]:
    """The lengths of the short texts."""
    return [SHORTEST_TEXT + index for index, count in enumerate(SST2_LENGTHS.split()) for _ in range(int(count))]


def mixed_lengths(seed: int) -> list[int]:
    """The lengths of the mixed texts."""
    rng = random.Random(seed)
    long, longest = MIXED_TEXTS // 10, MIXED_TEXTS // 50
    short = rng.choices(short_lengths(), k=MIXED_TEXTS - long - longest)
    return short + [rng.randint(100, 300) for _ in range(long)] + [LONGEST] * longest


def read(name: str) -> list[str]:
    """The texts of `short` or `mixed`."""
    return (FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines()


def tokens(texts: list[str]) -> list[int]:
    """How many tokens each text has, special ones included."""
    tokenizer = Tokenizer(TOKENIZER, LONGEST, ())
    return [tokenizer.read(text).tokens for text in texts]


def write(folder: Path) -> None:
    """Write both files."""
    tokenizer = Tokenizer(TOKENIZER, LONGEST, ())
    for seed, (name, lengths) in enumerate({"short": short_lengths(), "mixed": mixed_lengths(2)}.items()):
        lines = generate(tokenizer, lengths, seed)
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _sentence(tokenizer: Tokenizer, length: int, rng: random.Random) -> str:
    """Words up to the last that fits, then one-token words until the length is met, then the end."""
    while True:
        end = rng.choice(CHOICES["end"])
        text, words = "", _words(rng)
        while tokenizer.read(longer := text + next(words) + end).tokens <= length:
            text = longer.removesuffix(end)
        while text and tokenizer.read(text + end).tokens < length:
            text += rng.choice(CHOICES["filler"])
        if text and tokenizer.read(text + end).tokens == length:
            return (text + end).strip()


def _words(rng: random.Random) -> Iterator[str]:
    """The words of clauses without end, the space before each included."""
    while True:
        clause = [rng.choice(CHOICES[kind]) for kind in ("subject", "verb", "degree", "adjective")]
        for word in " ".join(clause).split():
            yield f" {word}"
        yield rng.choice(CHOICES["link"])


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    write(FOLDER)
