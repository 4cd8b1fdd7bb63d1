"""The service with a part of it replaced by a constant, to know what the rest costs: `python -m bench.stub PART FLAGS`.

PART `inference` gives every text the first text's answer, without queue, tokenizer or engine: what is left is HTTP,
validation and JSON. PART `run` leaves out the run of the graph alone: queue, workers and tokenizer do their work. FLAGS
are those of `sentiment serve`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

from service import cli
from service.engine import ClassifyOutput, Engine, Ids
from service.inference import Inference
from service.scheduler import Ticket


def once_inferred(real: Callable[..., Ticket[list[Any]]]) -> Callable[..., Ticket[list[Any]]]:
    """`Inference.classify`, asked for one text until that has its answer, and never again."""
    first: list[Any] = []

    def classify(inference: Inference, texts: Sequence[str], *rest: Any, **named: Any) -> Ticket[list[Any]]:
        if not first:
            asked = real(inference, texts, *rest, **named)
            asked.add_done_callback(lambda done: first.append(done.result()[0]))
            return asked
        answered: Ticket[list[Any]] = Ticket()
        answered.set_result(first * len(texts))
        return answered

    return classify


def once_run(real: Callable[..., ClassifyOutput]) -> Callable[..., ClassifyOutput]:
    """`Engine.classify`, run for the first text alone."""
    first: list[ClassifyOutput] = []

    def classify(engine: Engine, ids: Ids, **how: Any) -> ClassifyOutput:
        if not first:
            first.append(real(engine, ids, **how))
        return first[0]

    return classify


def one_by_one(engine: Engine, texts: Sequence[Ids]) -> list[ClassifyOutput]:
    """`Engine.classify_all` without a run that texts share."""
    return [engine.classify(ids) for ids in texts]


def main() -> None:
    """Serve."""
    part, *flags = sys.argv[1:]
    sys.argv = ["sentiment", "serve", *flags]
    with ExitStack() as replaced:
        if part == "inference":
            replaced.enter_context(patch.object(Inference, "classify", once_inferred(Inference.classify)))
        elif part == "run":
            # The golden texts, asked at the start, would get each other's answers.
            replaced.enter_context(patch.object(Inference, "check_golden", lambda _inference: None))
            replaced.enter_context(patch.object(Engine, "classify", once_run(Engine.classify)))
            replaced.enter_context(patch.object(Engine, "classify_all", one_by_one))
        else:
            sys.exit(f"{part} is no part that can be left out: inference or run")
        cli.main()


if __name__ == "__main__":
    main()
