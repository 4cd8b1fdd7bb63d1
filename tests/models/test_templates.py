"""Texts from templates are distinct, balanced, drawn by seed, and readable as a training file."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from models import data, templates


def test_every_template_fills_with_known_words() -> None:
    for label, written in templates.TEMPLATES.items():
        assert label in data.LABELS
        for template in written:
            filled = list(templates.fill(template))
            assert filled
            assert len(set(filled)) == len(filled)
            assert not any("{" in text for text in filled)


def test_texts_are_drawn_by_seed_and_no_label_is_rare() -> None:
    found = templates.texts(40, seed=1)
    assert found == templates.texts(40, seed=1) != templates.texts(40, seed=2)
    counts = Counter(example.target for example in found)
    assert set(counts) == set(data.HARD.values())
    assert max(counts.values()) < 3 * min(counts.values())


def test_the_written_file_is_a_training_file(tmp_path: Path) -> None:
    out = tmp_path / "templates.tsv"
    count = templates.write(out, each=5, seed=0)
    read = data.load(out)
    assert len(read) == count
    assert [(one.text, one.target) for one in read] == [(one.text, one.target) for one in templates.texts(5, seed=0)]
