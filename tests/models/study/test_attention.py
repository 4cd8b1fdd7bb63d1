"""Shares of attention add up, and the words that are marked are those that count as opinions."""

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch belongs to the training set: make test-models")

from models.study import attention
from models.study.encoder import Encoder
from models.study.record import read


def test_shares_add_up_and_marked_words_are_counted(start: Path) -> None:
    rows = attention.shares(Encoder(start, attentions=True), "the film was *great* and *moving* .")
    assert len(rows) == 4
    for row in rows:
        assert sum(row[target] for target in attention.TARGETS) == pytest.approx(1, abs=3e-4)
        assert all(0 < row[target] < 1 for target in attention.TARGETS)
        assert (row["tokens"], row["opinion_tokens"]) == (9, 2)


def test_without_marked_words_no_attention_is_an_opinions(start: Path) -> None:
    assert {row["opinion"] for row in attention.shares(Encoder(start, attentions=True), "the film was great .")} == {0}


def test_each_layer_of_each_sentence_is_recorded(start: Path, tmp_path: Path) -> None:
    attention.run({"start": start}, tmp_path / "attention.json")
    settings, rows = read(tmp_path / "attention.json")
    assert len(rows) == 4 * len(settings["sentences"])
    assert all("*" in sentence for sentence in settings["sentences"])
