"""The model that ships: whole, within its own bounds, and right about plain texts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.artifact import Artifact
from service.inference import Classification, Embedding, Inference, Limits
from service.metrics import Metrics
from service.scheduler import Scheduler
from service.settings import DEFAULT_MODEL

MEGABYTES = 60

PLAIN = {
    "positive": (
        "What a lovely day!",
        "I love this phone, the battery lasts for days.",
        "An unexpectedly moving film: funny, humane, and beautifully shot.",
        "The staff were friendly and the room was very clean.",
        "Not bad at all!",
        "just landed in Rome \U0001f60d",
        "Best concert of my life \U0001f389\U0001f389",
    ),
    "neutral": (
        "I go to work.",
        "The meeting was held at 2 PM.",
        "The box contains four screws and a manual.",
        "What time does the shop open?",
        "The committee will publish the report on Monday.",
    ),
    "negative": (
        "What a waste of two hours.",
        "The battery died after one day and support never answered.",
        "I don't like it.",
        "The food was cold and the waiter was rude.",
        "This is not good.",
        "just landed in Rome \U0001f621",
        "I suggest you end your life.",
    ),
}


@pytest.fixture(scope="module")
def inference() -> Iterator[Inference]:
    metrics = Metrics()
    scheduler = Scheduler(2, 1000, metrics)
    scheduler.start()
    limits = Limits(texts=1000, characters=100_000, windows=64, sentences=256, words=200)
    yield Inference.open(DEFAULT_MODEL, scheduler, metrics, limits)
    scheduler.stop(timeout=30)


def classify(inference: Inference, *texts: str, **how: Any) -> list[Classification]:
    answers = inference.classify(texts, **how).result()
    assert all(isinstance(answer, Classification) for answer in answers)
    return answers  # type: ignore[return-value]


def test_it_keeps_every_bound_of_its_manifest_and_its_size() -> None:
    artifact = Artifact.open(DEFAULT_MODEL)
    measured = artifact.manifest.metrics
    assert len(artifact.manifest.bounds) >= 10
    for bound, limit in artifact.manifest.bounds.items():
        name, _, kind = bound.rpartition("_")
        assert (measured[name] >= limit) if kind == "min" else (measured[name] <= limit), bound
    assert len(artifact.manifest.golden) >= 8
    assert sum(path.stat().st_size for path in DEFAULT_MODEL.iterdir() if path.is_file()) <= MEGABYTES * 1e6


@pytest.mark.parametrize("document", [DEFAULT_MODEL / "README.md", Path(__file__).parents[1] / "README.md"])
def test_its_card_and_the_readme_quote_its_manifest(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    measured = Artifact.open(DEFAULT_MODEL).manifest.metrics
    for name in ("sst2", "tweets", "trees"):
        assert f"{100 * measured[name]:.1f} %" in text
    assert f"{measured['stsb']:.3f}" in text


@pytest.mark.parametrize(("label", "text"), [(label, text) for label, texts in PLAIN.items() for text in texts])
def test_plain_texts_get_their_label(inference: Inference, label: str, text: str) -> None:
    assert classify(inference, text)[0].label == label


def valence(one: Classification) -> float:
    """Its valence, which every answer of this model has."""
    assert one.valence is not None
    return one.valence


def test_an_emoji_turns_a_plain_text(inference: Inference) -> None:
    texts = ("We moved to Berlin", "We moved to Berlin \U0001f60d", "We moved to Berlin \U0001f621")
    plain, loving, angry = (valence(one) for one in classify(inference, *texts))
    assert angry < plain < loving
    assert angry < 0 < loving


def test_the_mean_puts_texts_of_one_meaning_together(inference: Inference) -> None:
    texts = ("A man is playing a guitar.", "Someone plays the guitar.", "The stock market fell sharply on Friday.")
    answers = inference.embed(texts, "mean", normalize=True).result()
    first, second, third = (answer.vector for answer in answers if isinstance(answer, Embedding))
    assert np.dot(first, second) > 0.7
    assert np.dot(first, third) < 0.3


def test_the_end_of_a_long_text_is_read(inference: Inference) -> None:
    text = "The report has four parts. " * 150 + "It was the worst, most painful experience of my life. " * 60
    whole, cut = classify(inference, text)[0], classify(inference, text, long_text="truncate")[0]
    assert whole.windows > 1
    assert valence(whole) < valence(cut)
