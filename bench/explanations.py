"""What /explain says of sentences with a negation or a turn: `python -m bench.explanations`, for docs/api.md."""

from __future__ import annotations

from pathlib import Path

import typer

from service.cpu import usable_cores
from service.inference import Explanation, Inference, Limits
from service.metrics import Metrics
from service.scheduler import Scheduler
from service.settings import DEFAULT_MODEL

TEXTS = (
    "The food was not good.",
    "The food was not bad at all.",
    "I love the screen, but the battery is a joke.",
)


def main(model: Path = DEFAULT_MODEL) -> None:
    """Print each text with its label and the effects of its words."""
    metrics = Metrics()
    scheduler = Scheduler(usable_cores(), 1000, metrics)
    limits = Limits(texts=10, characters=1000, windows=1, sentences=10, words=100)
    inference = Inference.open(model, scheduler, metrics, limits)
    scheduler.start()
    typer.echo("| text | label | effect of each word |\n|---|---|---|")
    for text, answer in zip(TEXTS, inference.explain(TEXTS).result(), strict=True):
        assert isinstance(answer, Explanation)
        effects = ", ".join(f"{text[word.start : word.end]} {word.effect:+.2f}" for word in answer.words)
        typer.echo(f"| {text} | {answer.label} {answer.score:.2f} | {effects} |")
    scheduler.stop(timeout=10)


if __name__ == "__main__":
    typer.run(main)
