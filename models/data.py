"""Labelled text in the forms it comes in, read into one: a text and the probabilities it should get."""

from __future__ import annotations

import csv
import json
import math
import random
import re
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

LABELS = ("negative", "neutral", "positive")
Target = tuple[float, float, float]

HARD: dict[str, Target] = {
    "negative": (1.0, 0.0, 0.0),
    "neutral": (0.0, 1.0, 0.0),
    "positive": (0.0, 0.0, 1.0),
}
_TREE_CLASSES = ("negative", "negative", "neutral", "positive", "positive")


@dataclass(frozen=True, slots=True)
class Example:
    """A text with its target probabilities (negative, neutral, positive), a mean rating in [-4, 4], or neither.

    `whole` is false for a phrase taken out of a sentence.
    """

    text: str
    target: Target | None = None
    valence: float | None = None
    weight: float = 1.0
    whole: bool = True


def load(path: Path) -> list[Example]:
    """Read one file of examples: CSV, TSV, JSONL or Parquet with `text` (or `sentence`) and `label`, `valence` or
    neither, or bracketed treebank trees, a tree a line.

    A label is a name of `LABELS`, or 0/1 for negative/positive as in GLUE. Raises ValueError naming the file,
    the row or line and what was expected.
    """
    if path.suffix == ".txt":
        return list(_distinct(_trees(path)))
    with closing(_rows(path)) as rows:  # a bad row ends the reading: the file is closed then, not some time later
        return [_example(path, number, row) for number, row in enumerate(rows, start=1)]


def load_pairs(path: Path) -> list[tuple[float, str, str]]:
    """Read sentence pairs with a similarity: columns `score`, `sentence1`, `sentence2`."""
    with closing(_rows(path)) as rows:
        return [(float(row["score"]), row["sentence1"], row["sentence2"]) for row in rows]


def _rows(path: Path) -> Generator[dict[str, Any], None, None]:
    if path.suffix in {".csv", ".tsv"}:
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield from csv.DictReader(file) if path.suffix == ".csv" else _tab_separated(file)
    elif path.suffix == ".jsonl":
        with path.open(encoding="utf-8-sig") as file:
            yield from (_object(path, number, line) for number, line in enumerate(file, start=1) if line.strip())
    elif path.suffix == ".parquet":
        import pyarrow.parquet

        for batch in pyarrow.parquet.ParquetFile(path).iter_batches():
            yield from batch.to_pylist()
    else:
        raise ValueError(f"{path}: unknown kind of file; use .csv, .tsv, .jsonl, .parquet, or .txt for trees")


def write_tsv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> int:
    """Write a file that `load` reads; how many rows it has. A text keeps its quotation marks, not its tabs."""
    lines = ["\t".join(value.translate(_TO_SPACES) for value in row) for row in (columns, *rows)]
    path.write_text("\n".join([*lines, ""]), encoding="utf-8", newline="")
    return len(lines) - 1


def write_texts(path: Path, texts: Iterable[str]) -> int:
    """Write texts without labels, for a teacher to label, as a file that `load` reads; how many there are."""
    return write_tsv(path, ("text",), ([text] for text in texts))


_TO_SPACES = str.maketrans("\t\n\r", "   ")


def _tab_separated(file: Iterable[str]) -> Iterator[dict[str, str]]:
    """Tabs part the columns and a quotation mark is a character like any other, as in the sets of this field."""
    return csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)


def _object(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise ValueError(f"{path}, line {number}: not JSON: {error}") from None
    if not isinstance(row, dict):
        raise ValueError(f"{path}, line {number}: not a JSON object")
    return row


def _example(path: Path, number: int, row: dict[str, Any]) -> Example:
    text = row.get("text", row.get("sentence"))
    if not isinstance(text, str):
        raise ValueError(f"{path}, row {number}: no `text`; it has {', '.join(map(str, row))}")
    if "valence" in row:
        valence = _rating(path, number, row["valence"])
        return Example(text, _target_of_rating(valence), valence)
    if "label" not in row:
        return Example(text)
    label = str(row["label"])
    target = HARD.get({"0": "negative", "1": "positive"}.get(label, label))
    if target is None:
        raise ValueError(f"{path}, row {number}: label {label!r}; use {', '.join(LABELS)}, or 0 and 1")
    return Example(text, target)


def _rating(path: Path, number: int, written: Any) -> float:
    try:
        valence = float(written)
    except (TypeError, ValueError):
        valence = math.nan
    if not -4 <= valence <= 4:
        raise ValueError(f"{path}, row {number}: valence {written!r}; use a number from -4 to 4")
    return valence


def _target_of_rating(valence: float) -> Target:
    """Soft labels from a mean rating in [-4, 4]: even odds of neutral at +-0.6, nearly certain 0.6 further out."""
    positive = 1 / (1 + math.exp(-(valence - 0.6) / 0.2))
    negative = 1 / (1 + math.exp(-(-valence - 0.6) / 0.2))
    return negative, 1 - positive - negative, positive


def _trees(path: Path) -> Iterator[Example]:
    for words, nodes in read_trees(path):
        *phrases, sentence = ((node.label, " ".join(words[node.start : node.end])) for node in nodes)
        yield from (Example(text, HARD[_TREE_CLASSES[label]], whole=False) for label, text in phrases)
        yield Example(sentence[1], HARD[_TREE_CLASSES[sentence[0]]])


@dataclass(frozen=True, slots=True)
class Node:
    """A constituent of a sentence: its label (0 to 4) and its words, from `start` up to `end`."""

    label: int
    start: int
    end: int


def read_trees(path: Path) -> Iterator[tuple[list[str], list[Node]]]:
    """The words and nodes of each tree of a file, a tree a line. Raises ValueError naming a line that is none."""
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, start=1):
            try:
                yield read_tree(line)
            except IndexError:
                raise ValueError(f"{path}, line {number}: not a bracketed tree with labels 0 to 4") from None


def read_tree(tree: str) -> tuple[list[str], list[Node]]:
    """The words of a bracketed tree and its nodes; each comes after those inside it, the whole sentence last.

    Raises IndexError for brackets that do not match, or are not there.
    """
    words: list[str] = []
    nodes: list[Node] = []
    opened: list[tuple[int, int]] = []
    for opening, word in re.findall(r"\(([0-4]) |([^\s()]+)|\)", tree):
        if opening:
            opened.append((int(opening), len(words)))
        elif word:
            if not opened:
                raise IndexError
            words.append(word)
        else:
            nodes.append(Node(*opened.pop(), len(words)))
    if opened or not nodes:
        raise IndexError
    return words, nodes


def _distinct(examples: Iterable[Example]) -> Iterator[Example]:
    """Each text once, a whole sentence before an equal phrase."""
    seen: dict[str, Example] = {}
    for example in examples:
        if example.text not in seen or (example.whole and not seen[example.text].whole):
            seen[example.text] = example
    yield from seen.values()


_DETOKENIZE = (
    (re.compile(r"-LRB-\s?", re.IGNORECASE), "("),
    (re.compile(r"\s?-RRB-", re.IGNORECASE), ")"),
    (re.compile(r"`` ?| ?''"), '"'),
    (re.compile(r"\\([/*])"), r"\1"),
    (re.compile(r" (n't|'s|'re|'ve|'ll|'d|'m)\b", re.IGNORECASE), r"\1"),
    (re.compile(r" ([.,!?;:%])"), r"\1"),
)


def detokenize(text: str) -> str:
    """Treebank tokens as people write them: `do n't stop .` reads `don't stop.`"""
    for pattern, replacement in _DETOKENIZE:
        text = pattern.sub(replacement, text)
    return text


@dataclass(frozen=True, slots=True)
class Source:
    """A file of examples and how much of it is wanted.

    `take` bounds its texts; `phrases` and `neutral_phrases` bound the partial phrases drawn from trees: those with an
    opinion, and those without. None takes all. Phrases of fewer than `phrase_words` words are left out.
    """

    path: Path
    weight: float = 1.0
    take: int | None = None
    phrases: int | None = None
    neutral_phrases: int | None = None
    phrase_words: int = 1

    @classmethod
    def parse(cls, written: str) -> Source:
        """Read `PATH[,weight=F][,take=N][,phrases=N][,neutral_phrases=N][,phrase_words=N]`.

        Raises ValueError for anything else.
        """
        path, *options = written.split(",")
        values: dict[str, float | int] = {}
        for option in options:
            name, _, value = option.partition("=")
            if name not in {"weight", "take", "phrases", "neutral_phrases", "phrase_words"}:
                raise ValueError(
                    f"{written}: unknown option {name!r}; use weight, take, phrases, neutral_phrases or phrase_words"
                )
            values[name] = float(value) if name == "weight" else int(value)
        return cls(Path(path), **values)  # type: ignore[arg-type]


def mix(sources: Sequence[Source], seed: int) -> list[Example]:
    """Read, bound and weight several sources as one training set.

    Half of the treebank's texts, drawn at random, lose their tokenization.
    """
    rng = random.Random(seed)
    chosen: list[Example] = []
    for source in sources:
        examples = [replace(example, weight=source.weight) for example in load(source.path)]
        if source.path.suffix == ".txt":
            examples = _draw_phrases(examples, source, rng)
            examples = [replace(e, text=detokenize(e.text)) if rng.random() < 0.5 else e for e in examples]
        chosen += _sample(examples, source.take, rng)
    return chosen


def _draw_phrases(examples: list[Example], source: Source, rng: random.Random) -> list[Example]:
    whole = [e for e in examples if e.whole]
    phrases = [e for e in examples if not e.whole and len(e.text.split()) >= source.phrase_words]
    neutral = [e for e in phrases if e.target == HARD["neutral"]]
    opinion = [e for e in phrases if e.target != HARD["neutral"]]
    return whole + _sample(opinion, source.phrases, rng) + _sample(neutral, source.neutral_phrases, rng)


def _sample(examples: list[Example], limit: int | None, rng: random.Random) -> list[Example]:
    return examples if limit is None or limit >= len(examples) else rng.sample(examples, limit)
