"""Whether what is served is what was trained: torch, the float32 graphs and the served engine on the dev sets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from models import evaluation, metrics
from models.checkpoint import Floats
from models.evaluation import Answers, DevSets, Served
from models.export import FLOAT32
from models.fidelity import same_in_packs, same_on_two_threads
from models.manifest import broken, checksums, write
from service.artifact import Artifact, Golden, Manifest
from service.engine import Engine, Ids
from service.tokenizer import Tokenizer

GOLDEN_VALUES = 8
GOLDEN_TEXTS = (
    "good",
    "I go to work.",
    "The meeting was held at 2 PM.",
    "What a waste of two hours.",
    "I'm very happy that I'm not in collaboration with you",
    "An unexpectedly moving film: funny, humane, and beautifully shot.",
    "@user the new update is great \U0001f60d but my battery \U0001f62d http://example.com/a?b=c",
    "Caf\u00e9 &amp; cr\u00eape \u2014 d\u00e9licieux! \u4f60\u597d",
    "not bad at all, though the last act drags and the ending makes no sense whatsoever .",
    "The room was clean and the staff kind, but the noise from the street kept us awake all night. " * 8,
    "This battery lasts for days. " * 120,
)


@dataclass(frozen=True)
class Verdict:
    """What was measured, and a sentence for each bound that is broken."""

    metrics: dict[str, float]
    broken: list[str]


def verify(out: Path, folder: Path, checkpoint: Path | None = None) -> Verdict:
    """Measure a model folder on the dev sets of a data folder.

    A model that was just made, whose float32 graphs are still in `out/fp32`, gets its temperature, its golden texts and
    its measures: its manifest is written. A finished one is only checked, against its own golden texts too. The graphs
    are compared with torch if a checkpoint is given. Raises ArtifactError for a folder that is not a model.
    """
    console = Console(stderr=True)
    artifact = Artifact.open(out)
    tokenizer = Tokenizer(artifact.path("tokenizer.json"), artifact.manifest.max_tokens, artifact.manifest.cleanup)
    engine = Engine(artifact)
    sets = DevSets.read(folder)
    console.print("answering the dev sets as served")
    served = evaluation.answer(Served(engine), tokenizer, sets)
    made = (out / FLOAT32).is_dir()
    temperature = fit_temperature(within_classes(served, sets).values()) if made else artifact.manifest.temperature
    found = evaluation.scores(served, sets)
    if made:
        console.print("answering them in float32")
        bare = DevSets.read(folder, rated=False)
        original = Artifact(out / FLOAT32, artifact.manifest.model_copy(update={"words": None}))  # its own are float32
        exact = evaluation.answer(Served(Engine(original)), tokenizer, bare)
        found |= _against(exact, served, sets)
        if checkpoint:
            console.print("answering them in torch")
            found |= _exported(evaluation_in_torch(checkpoint, tokenizer, bare), exact)
    found |= evaluation.ratings(served, sets, temperature) | calibration_error(served, sets, temperature)
    found["megabytes"] = sum(artifact.path(name).stat().st_size for name in artifact.manifest.files) / 1e6
    found = {name: round(float(value), 6) for name, value in found.items()}
    problems = broken(artifact.manifest.bounds, found)
    console.print("comparing one thread with two")
    wide = same_on_two_threads(artifact, _every_length(tokenizer))
    if artifact.manifest.graphs.packed and not same_in_packs(artifact, list(_every_length(tokenizer))):
        problems.append("several texts in a run do not give the bits that each gives alone")
    if made:
        answers = golden(engine, tokenizer, artifact.manifest.labels)
        write(out, _finished(artifact, found, temperature, answers, checkpoint, wide=wide))
    else:
        if artifact.manifest.wide and not wide:
            problems.append("two threads do not give the bits that one does, and the manifest says they do")
        problems += _golden_problems(
            artifact.manifest,
            golden(
                engine,
                tokenizer,
                artifact.manifest.labels,
                [expected.text for expected in artifact.manifest.golden],
            ),
        )
    return Verdict(found, problems)


def within_classes(answers: Answers, sets: DevSets) -> dict[str, tuple[Floats, NDArray[np.int64]]]:
    """Logits [n, classes] and classes [n] of each labelled set, over the classes that occur in it.

    SST-2 has no neutral texts: there, as for its accuracy, positive stands against negative.
    """
    found: dict[str, tuple[Floats, NDArray[np.int64]]] = {}
    for name, classes in sets.classes.items():
        present, indices = np.unique(classes, return_inverse=True)
        found[name] = answers.logits[name][:, present], indices
    return found


def fit_temperature(labelled: Iterable[tuple[Floats, NDArray[np.int64]]]) -> float:
    """The temperature that makes the classes [n] most likely under softmax(logits [n, classes] / temperature), over
    several sets that count alike."""
    from scipy.optimize import minimize_scalar

    known = list(labelled)

    def loss(log_temperature: float) -> float:
        temperature = float(np.exp(log_temperature))
        return -sum(
            float(np.log(metrics.softmax(logits, temperature)[np.arange(len(classes)), classes] + 1e-12).mean())
            for logits, classes in known
        )

    return round(float(np.exp(minimize_scalar(loss, bounds=(-3, 3), method="bounded").x)), 4)


def calibration_error(answers: Answers, sets: DevSets, temperature: float) -> dict[str, float]:
    """Expected calibration error of each labelled set with the temperature, without it (`_raw`), and the error that
    sampling alone would show of a perfectly calibrated model with these confidences (`_chance`)."""
    found: dict[str, float] = {}
    for name, (logits, classes) in within_classes(answers, sets).items():
        probabilities = metrics.softmax(logits, temperature)
        found[f"{name}_ece"] = metrics.expected_calibration_error(probabilities, classes)
        found[f"{name}_ece_raw"] = metrics.expected_calibration_error(metrics.softmax(logits), classes)
        found[f"{name}_ece_chance"] = metrics.calibration_error_by_chance(probabilities)
    return found


def golden(
    engine: Engine, tokenizer: Tokenizer, labels: Sequence[str], texts: Sequence[str] = GOLDEN_TEXTS
) -> tuple[Golden, ...]:
    """Texts of several kinds and lengths with the answers they get."""
    found: list[Golden] = []
    for text in texts:
        ids = tokenizer.read(text).first().ids
        logits, mean = engine.classify(ids).logits, engine.embed(ids)[:GOLDEN_VALUES]
        label = labels[int(logits.argmax())]
        found.append(Golden(text=text, logits=_rounded(logits), mean=_rounded(mean), label=label))
    return tuple(found)


def evaluation_in_torch(checkpoint: Path, tokenizer: Tokenizer, sets: DevSets) -> Answers:
    """The answers of the checkpoint itself, in float32."""
    import torch
    from transformers import BertForSequenceClassification

    model: Any = BertForSequenceClassification.from_pretrained(checkpoint).eval()

    def run(texts: Sequence[str]) -> tuple[Floats, Floats]:
        ids = [tokenizer.read(text).first().ids for text in texts]
        logits: list[Any] = [None] * len(ids)
        means: list[Any] = [None] * len(ids)
        for rows, padded, mask in _batches(ids):
            with torch.inference_mode():
                output = model(
                    input_ids=torch.from_numpy(padded),
                    attention_mask=torch.from_numpy(mask),
                    output_hidden_states=True,
                )
            kept = torch.from_numpy(mask).unsqueeze(-1).float()
            mean = (output.hidden_states[-1] * kept).sum(1) / kept.sum(1)
            for position, row in enumerate(rows):
                logits[row], means[row] = output.logits[position].numpy(), mean[position].numpy()
        return np.stack(logits), np.stack(means)

    return Answers({name: run(texts)[0] for name, texts in sets.texts.items()}, run(sets.sentences)[1])


def _batches(ids: Sequence[Ids], size: int = 32) -> Iterator[tuple[list[int], Ids, Ids]]:
    order = sorted(range(len(ids)), key=lambda row: len(ids[row]))
    for rows in (order[start : start + size] for start in range(0, len(order), size)):
        padded = np.zeros((len(rows), len(ids[rows[-1]])), np.int64)
        mask = np.zeros_like(padded)
        for position, row in enumerate(rows):
            padded[position, : len(ids[row])] = ids[row]
            mask[position, : len(ids[row])] = 1
        yield rows, padded, mask


def _against(exact: Answers, served: Answers, sets: DevSets) -> dict[str, float]:
    ours, theirs = evaluation.scores(served, sets), evaluation.scores(exact, sets)
    return (
        evaluation.fidelity(served, exact)
        | evaluation.points_lost(ours, theirs)
        | {f"{name}_float32": value for name, value in theirs.items()}
    )


def _exported(checkpoint: Answers, exact: Answers) -> dict[str, float]:
    """How far the float32 graphs are from torch: the largest difference of any logit or value of a mean vector."""
    logits = [np.abs(checkpoint.logits[name] - exact.logits[name]).max() for name in exact.logits]
    return {"export_difference": float(max(*logits, np.abs(checkpoint.vectors - exact.vectors).max()))}


def _finished(
    artifact: Artifact,
    found: dict[str, float],
    temperature: float,
    answers: tuple[Golden, ...],
    checkpoint: Path | None,
    *,
    wide: bool,
) -> Manifest:
    made_with = {name: version(name) for name in ("torch", "transformers")} if checkpoint else {}
    return artifact.manifest.model_copy(
        update={
            "temperature": temperature,
            "wide": wide,
            "golden": answers,
            "metrics": dict(sorted(found.items())),
            "files": checksums(artifact.folder, artifact.manifest.graphs),
            "versions": artifact.manifest.versions | made_with,
        }
    )


def _every_length(tokenizer: Tokenizer) -> Iterator[Ids]:
    """Token ids of each length that the model reads, drawn from its vocabulary."""
    rng = np.random.default_rng(0)
    for length in range(1, tokenizer.max_tokens + 1):
        yield rng.integers(0, tokenizer.vocabulary_size, length)


def _golden_problems(manifest: Manifest, answers: Sequence[Golden]) -> list[str]:
    found: list[str] = []
    for expected, answer in zip(manifest.golden, answers, strict=True):
        difference = np.abs(np.array(expected.logits + expected.mean) - np.array(answer.logits + answer.mean)).max()
        if not difference <= manifest.tolerance:
            found.append(
                f"golden text {expected.text[:40]!r} is off by {difference:.4g}; tolerance {manifest.tolerance:g}"
            )
    return found


def _rounded(values: Floats) -> tuple[float, ...]:
    return tuple(round(float(value), 6) for value in values)
