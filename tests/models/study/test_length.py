"""An opinion keeps its place among neutral sentences, and the measures say what is left of it."""

from collections.abc import Sequence
from pathlib import Path
from random import Random

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch belongs to the training set: make test-models")

from models.evaluation import DevSets  # noqa: E402
from models.study import heads, length  # noqa: E402
from models.study.encoder import Encoder  # noqa: E402
from models.study.heads import Head  # noqa: E402
from models.study.length import COUNTS, NEUTRAL, OPINIONS, PLACES, Read, surround  # noqa: E402
from models.study.record import Record, read  # noqa: E402
from service.artifact import Artifact  # noqa: E402
from service.engine import Engine  # noqa: E402

TINY = Path(__file__).parents[2] / "tiny"
LEFT, RIGHT = np.array([3, 0, 1], np.float32), np.array([0, 0, 3], np.float32)


def test_an_opinion_stands_first_in_the_middle_or_last() -> None:
    made = {place: surround("Oh!", 4, place, Random(0)) for place in PLACES}
    assert made["first"].startswith("Oh! ")
    assert made["last"].endswith(" Oh!")
    before, after = made["middle"].split(" Oh! ")
    assert before.count(".") == after.count(".") == 2
    assert len({frozenset(text.replace("Oh!", "").split()) for text in made.values()}) == 1
    assert surround("Oh!", 0, "middle", Random(0)) == "Oh!"
    assert surround("Oh!", 8, "last", Random(0)).startswith(surround("", 4, "last", Random(0)).strip())


def test_there_are_enough_different_sentences() -> None:
    assert len(set(NEUTRAL)) == len(NEUTRAL) >= max(COUNTS)
    assert len(set(OPINIONS)) == len(OPINIONS)


def fake(texts: Sequence[str]) -> list[Read]:
    """A model that knows each opinion alone, loses a quarter of its vector to every sentence, and then its label."""
    found = []
    for text in texts:
        opinion = next(i for i, opinion in enumerate(OPINIONS) if opinion in text)
        logits = RIGHT if opinion < len(OPINIONS) // 2 else LEFT
        sentences = text.count(".") - 1
        if sentences > 2:
            logits = logits + np.array([0, 9, 0], np.float32)
        angle = np.arccos(max(0.0, 1 - sentences / 4))
        found.append(Read(logits, {"cls": np.array([np.cos(angle), np.sin(angle)], np.float32)}))
    return found


def test_dilution_counts_kept_labels_sides_and_cosines() -> None:
    rows = [row for row in length.dilution(fake) if row["place"] == "first"]
    assert [row["sentences"] for row in rows] == list(COUNTS)
    assert [row["label"] for row in rows] == [1.0, 1.0, 1.0, 0.0, 0.0, 0.0]
    assert {row["side"] for row in rows} == {1.0}
    assert [row["cosine"] for row in rows[:4]] == [{"cls": value} for value in (1.0, 0.75, 0.5, 0.0)]
    assert rows[0]["opinions"] == len(OPINIONS)


def test_accuracy_is_counted_in_buckets_of_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(length, "BUCKETS", (1, 13, 40))
    texts = ["one two", "one two three", "word " * 13, "word " * 50]
    sets = DevSets(
        {"trees": texts[:2], "tweets": texts[2:]}, {"trees": np.array([2, 0]), "tweets": np.array([2, 2])}, [], {}
    )
    rows = list(length.by_length(lambda texts: [Read(RIGHT, {}) for _ in texts], sets))
    assert rows[0] == {"words": [1, 12], "texts": 2, "accuracy": 50.0}
    assert rows[1] == {"words": [13, 39], "texts": 1, "accuracy": 100.0}
    assert rows[-1] == {"words": [40, None], "texts": 1, "accuracy": 100.0}


def test_the_served_model_is_read_as_it_is_served() -> None:
    artifact = Artifact.open(TINY)
    (found,) = length.served(artifact)(["the film was great ."])
    from service.tokenizer import Tokenizer

    tokenizer = Tokenizer(artifact.path("tokenizer.json"), artifact.manifest.max_tokens, artifact.manifest.cleanup)
    ids = tokenizer.read("the film was great .").first().ids
    logits, cls = Engine(artifact).classify(ids)
    np.testing.assert_array_equal(found.logits, logits)
    np.testing.assert_array_equal(found.vectors["cls"], cls)
    np.testing.assert_array_equal(found.vectors["mean"], Engine(artifact).embed(ids))


SETTINGS = {"budget": {"each": 8}}


@pytest.fixture
def kept(start: Path, tmp_path: Path) -> Path:
    """A folder with the encoders of `heads`; what they were trained with lies beside it."""
    encoder = Encoder(start)
    for kind in heads.KEPT:
        heads.save(encoder, Head(kind, encoder), tmp_path / "work" / f"{kind}-0", SETTINGS)
    Record(tmp_path / "heads.json", SETTINGS).add(head="cls")
    return tmp_path / "work"


def test_kept_heads_and_the_served_model_are_measured(
    kept: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(length, "BUCKETS", (1, 9))
    monkeypatch.setattr(length, "dilution", lambda model: iter(()))
    length.run(kept, tmp_path / "heads.json", TINY, data, tmp_path / "length.json")
    rows = read(tmp_path / "length.json")[1]
    assert [(row["model"], row["seed"]) for row in rows[::2]] == [("cls", 0), ("mean", 0), ("served", None)]


def test_without_the_trained_heads_it_says_what_to_do(data: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"heads\.json and run `heads`"):
        length.run(tmp_path, tmp_path / "heads.json", TINY, data, tmp_path / "length.json")


def test_heads_of_another_budget_are_not_measured(kept: Path, data: Path, tmp_path: Path) -> None:
    Record(tmp_path / "heads.json", {"budget": {"each": 9}}).add(head="cls")
    with pytest.raises(ValueError, match="cls-0 was trained with other settings"):
        length.run(kept, tmp_path / "heads.json", TINY, data, tmp_path / "length.json")
    assert not (tmp_path / "length.json").exists()


def test_heads_of_an_unknown_budget_are_not_measured(kept: Path, data: Path, tmp_path: Path) -> None:
    (kept / "mean-0" / heads.SETTINGS).unlink()
    with pytest.raises(ValueError, match="mean-0 was trained with other settings"):
        length.run(kept, tmp_path / "heads.json", TINY, data, tmp_path / "length.json")
