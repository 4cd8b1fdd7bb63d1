"""A model folder put through the checklist, as it is served."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from models import metrics
from models.checklist.suite import Case, Suite
from models.data import LABELS
from service.artifact import Artifact
from service.engine import Engine
from service.tokenizer import Tokenizer

TOLERANCE = 0.1
"""How far a valence may move the wrong way in a direction test; CheckList's own figure for sentiment."""

METRIC = "checklist"

Probabilities = NDArray[np.float64]
Answer = Callable[[str], Probabilities]


@dataclass(frozen=True, slots=True)
class Judgement:
    """A case with the probabilities float64 [texts, 3] its texts got, and whether that passes."""

    case: Case
    probabilities: Probabilities
    passed: bool


def check(folder: Path) -> list[Judgement]:
    """Answer and judge every case. Raises ArtifactError for a folder that is no model, ValueError for other labels."""
    artifact = Artifact.open(folder)
    about = artifact.manifest
    if set(about.labels) != set(LABELS):
        raise ValueError(
            f"the checklist is for the labels {', '.join(LABELS)}; this model has {', '.join(about.labels)}"
        )
    tokenizer = Tokenizer(artifact.path("tokenizer.json"), about.max_tokens, about.cleanup)
    engine = Engine(artifact)
    order = [about.labels.index(label) for label in LABELS]

    def answer(text: str) -> Probabilities:
        logits = engine.classify(tokenizer.read(text).first().ids).logits
        return metrics.softmax(logits[order], about.temperature)

    return [judge(case, answer) for case in Suite.read().cases()]


def judge(case: Case, answer: Answer) -> Judgement:
    """Answer one case's texts and judge them by its test."""
    probabilities = np.stack([answer(text) for text in case.texts])
    return Judgement(case, probabilities, _passes(case, probabilities))


def _passes(case: Case, probabilities: Probabilities) -> bool:
    labels = [LABELS[index] for index in probabilities.argmax(axis=-1)]
    if case.test.expect:
        return labels[0] in case.test.expect
    if case.test.same:
        return len(set(labels)) == 1
    before, after = probabilities[:, 2] - probabilities[:, 0]
    moved = float(after - before)
    return (moved if case.test.direction == "up" else -moved) >= -TOLERANCE


def rates(judgements: Sequence[Judgement]) -> dict[str, dict[str, int]]:
    """Cases and passes by capability, in the suite's order."""
    found: dict[str, dict[str, int]] = {}
    for judgement in judgements:
        row = found.setdefault(judgement.case.test.capability, {"cases": 0, "passed": 0})
        row["cases"] += 1
        row["passed"] += judgement.passed
    return found


def record(folder: Path, judgements: Sequence[Judgement]) -> None:
    """Write the pass rates into the manifest's measures, where the model card finds them."""
    from models import manifest  # needs onnx, which judging does not

    about = Artifact.open(folder).manifest
    measures = dict(sorted((about.metrics | {METRIC: rates(judgements)}).items()))
    manifest.write(folder, about.model_copy(update={"metrics": measures}))


def table(judgements: Sequence[Judgement]) -> str:
    """Pass rates as a plain table."""
    rows = rates(judgements)
    total = {key: sum(row[key] for row in rows.values()) for key in ("cases", "passed")}
    return "\n".join(
        f"{name:32} {row['passed']:5} of {row['cases']:5}  {100 * row['passed'] / row['cases']:5.1f} %"
        for name, row in [*rows.items(), ("all", total)]
    )


def failure(judgement: Judgement) -> str:
    """What went wrong with a case, a line for each of its texts."""
    test = judgement.case.test
    wanted = " or ".join(test.expect) or (f"valence {test.direction}" if test.direction else "one label")
    lines = [
        f"  {LABELS[int(row.argmax())]:8} {row[2] - row[0]:+.2f}  {text}"
        for text, row in zip(judgement.case.texts, judgement.probabilities, strict=True)
    ]
    return "\n".join([f"{test.capability}: {wanted}", *lines])
