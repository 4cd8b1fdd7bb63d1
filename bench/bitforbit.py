"""Whether a text has one answer, to the last bit: `python -m bench.bitforbit`, some minutes.

Each of 10,000 texts is answered alone, in lists of random sizes, and in random order with 64 callers at once. Logits,
probabilities and mean vectors are compared as they leave the model, not as JSON rounds them.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated

import typer

from bench.client import texts as some_texts
from bench.figures import Write, publish
from service.cpu import usable_cores
from service.errors import ServiceError
from service.inference import Inference, Limits
from service.metrics import Metrics
from service.scheduler import Scheduler
from service.settings import Settings

CALLERS = 64


def main(
    model: Annotated[Path | None, typer.Option(help="Folder of the model; unset: the default one.")] = None,
    texts: Annotated[int, typer.Option(help="How many texts.")] = 10_000,
    write: Write = False,
) -> None:
    """Print how many answers differ. Ends with 1 if one does."""
    settings = Settings(queue=2048)
    metrics = Metrics()
    scheduler = Scheduler(usable_cores(), settings.queue, metrics)
    scheduler.start()
    inference = Inference.open(model or settings.model, scheduler, metrics, Limits(**settings.limits))
    inference.hasten()
    asked = some_texts(texts, 60, seed=3)
    began = time.perf_counter()
    alone = [answers(inference, [text])[0] for text in asked]
    listed = in_lists(inference, asked)
    crowded = in_a_crowd(inference, asked)
    scheduler.stop(10.0)
    differing = [sum(one != other for one, other in zip(alone, others, strict=True)) for others in (listed, crowded)]
    figures = {
        "texts": f"{texts:,}, of {len(set(alone)):,} different answers",
        "answers in lists that differ from those alone": differing[0],
        f"answers with {CALLERS} callers at once, in random order, that differ": differing[1],
        "took": f"{time.perf_counter() - began:.0f} s",
    }
    publish("bitforbit", figures, write=write)
    raise typer.Exit(int(any(differing)))


def answers(inference: Inference, texts: Sequence[str]) -> list[bytes]:
    """Every bit of the answers to texts of one request: logits, probabilities, mean vector. Raises ServiceError."""
    pairs = zip(inference.classify(texts).result(), inference.embed(texts, "mean").result(), strict=True)
    found = []
    for label, vector in pairs:
        if isinstance(label, ServiceError):
            raise label
        if isinstance(vector, ServiceError):
            raise vector
        found.append(label.logits.tobytes() + label.probabilities.tobytes() + vector.vector.tobytes())
    return found


def in_lists(inference: Inference, texts: Sequence[str]) -> list[bytes]:
    """The answers when texts are sent in lists, in the order of the texts."""
    return [one for some in lists(texts) for one in answers(inference, some)]


def in_a_crowd(inference: Inference, texts: Sequence[str]) -> list[bytes]:
    """The answers when many callers send a text each, in random order; in the order of the texts."""
    order = random.Random(5).sample(range(len(texts)), len(texts))
    with ThreadPoolExecutor(CALLERS) as pool:
        found = dict(zip(order, pool.map(lambda index: answers(inference, [texts[index]])[0], order), strict=True))
    return [found[index] for index in range(len(texts))]


def lists(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Texts in lists of one to 200, in order."""
    rng = random.Random(4)
    place = 0
    while place < len(texts):
        size = rng.randint(1, 200)
        yield texts[place : place + size]
        place += size


if __name__ == "__main__":
    typer.run(main)
