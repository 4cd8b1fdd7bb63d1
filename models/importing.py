"""A fine-tuned classifier, as Hugging Face saves it, made into what the service loads."""

from __future__ import annotations

import math
import platform
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from models import fidelity, heads, source, storage, vocabulary
from models.checkpoint import Floats
from models.export import CLASSIFY, EMBED
from models.families import FAMILIES
from models.families.encoder import Encoder
from models.fidelity import EXACT, Answers, Way, difference, served, write_graphs
from models.graph import Product
from models.manifest import PACKAGES, broken, checksums, write
from models.original import Original
from models.products import float32
from models.source import RefusedError, Source
from models.verify import GOLDEN_TEXTS, GOLDEN_VALUES
from service.artifact import Artifact, Golden, Graphs, Head, Manifest, Quantization
from service.engine import Engine, Ids
from service.errors import InputError
from service.tokenizer import Tokenizer

SENTENCES = Path(__file__).with_name("sentences.txt")
LONGEST = 2048
"""Tokens read at once unless more are asked for: what attention takes grows with the square. The rest takes windows."""

BOUNDS = {
    "export_difference_max": 1e-4,
    "agreement_min": 0.985,
    "score_difference_mean_max": 0.02,
    "cosine_mean_min": 0.999,
    "cosine_worst_min": 0.995,
}


@dataclass(frozen=True)
class Wishes:
    """What whoever imports a model asks for; None is what the model says itself, or what measurement finds."""

    labels: Sequence[str] | None = None
    head: Head | None = None
    threshold: float = 0.5
    valences: Sequence[float] | None = None
    max_tokens: int | None = None
    quantize: str | None = None
    texts: Path | None = None


def import_model(name: str, out: Path, wishes: Wishes) -> Manifest:
    """Make the folder `out` of a folder or hub id; returns its manifest. Raises RefusedError, which says what to do.

    The graphs are compared with PyTorch on sentences from one token to the most that the model reads, then stored in
    the smallest way that keeps within the bounds. The golden texts' answers are the original's.
    """
    console = Console(stderr=True)
    found = source.check(source.find(name))
    if out.exists() and any(out.iterdir()):
        raise RefusedError(f"{out} is not empty: give a new folder, or remove it")
    sentences = read_texts(wishes.texts)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent) as scratch:
        work = Path(scratch)
        stated = vocabulary.write(found, work / "tokenizer.json", sentences)
        console.print(f"loading a {found.family} classifier")
        original, encoder = load(found)
        manifest = _draft(out, found, encoder, wishes, stated, console)
        tokenizer = Tokenizer(work / "tokenizer.json", manifest.max_tokens, ())
        _Import(work, original, encoder, manifest, _ids(tokenizer, sentences), console).finish(
            tokenizer, wishes.quantize
        )
        out.mkdir(exist_ok=True)
        for path in work.iterdir():
            if path.is_file():
                shutil.move(path, out / path.name)
    return Artifact.open(out).manifest


def load(found: Source) -> tuple[Original, Encoder]:
    """The original in PyTorch, and its weights as the graphs take them. Raises RefusedError."""
    try:
        original = Original.load(found.folder)
    except (OSError, ValueError, RuntimeError) as error:
        raise RefusedError(f"{found.folder} cannot be loaded: {error}") from error
    if original.missing:
        raise RefusedError(f"the weights lack {', '.join(sorted(original.missing)[:4])}: save the whole model again")
    try:
        return original, FAMILIES[found.family](original.state, original.config)
    except ValueError as error:
        raise RefusedError(f"this {found.family} cannot be exported: {error}") from error


def read_texts(path: Path | None) -> list[str]:
    """The texts to compare on, one a line: the user's, or those that come with the project. Raises RefusedError."""
    texts = [line for line in (path or SENTENCES).read_text(encoding="utf-8").splitlines() if line.strip()]
    if not texts:
        raise RefusedError(f"{path} holds no texts: give a file with one text a line")
    return texts


class _Import:
    """A model being made in a folder, measured on texts as token ids."""

    def __init__(
        self,
        folder: Path,
        original: Original,
        encoder: Encoder,
        manifest: Manifest,
        texts: Sequence[Ids],
        console: Console,
    ) -> None:
        self._folder, self._original, self._encoder = folder, original, encoder
        self._manifest, self._texts, self._console = manifest, texts, console

    def finish(self, tokenizer: Tokenizer, way: str | None) -> None:
        """Write graphs and manifest. Raises RefusedError if the graphs do not compute what the original does."""
        self._console.print(f"answering {len(self._texts)} texts in PyTorch")
        expected = Answers.of(self._original.answer, self._texts)
        if not (np.isfinite(expected.logits).all() and np.isfinite(expected.means).all()):
            raise RefusedError("in PyTorch too, the model gives values that are not finite: its training went astray")
        exact = self._answers(EXACT, float32)
        found = {"export_difference": difference(exact, expected)}
        if problems := broken(BOUNDS, found):
            raise RefusedError(f"the graphs do not compute what PyTorch does ({problems[0]}): please report this model")
        classify, embed = self._choose(expected, exact, way)
        write_graphs(self._folder, self._encoder, classify, embed)
        chosen = Quantization(classify=classify.name, embed=embed.name)
        golden, tolerance = self._golden(tokenizer, chosen)
        sizes = sum(path.stat().st_size for path in self._folder.iterdir() if path.is_file())
        measured = {**classify.measures, **embed.measures, **found, "megabytes": sizes / 1e6}
        words = storage.words(self._folder, (CLASSIFY, EMBED))
        made = Artifact(self._folder, self._manifest.model_copy(update={"words": words}))
        update: dict[str, Any] = {
            "quantization": chosen,
            "words": words,
            "wide": fidelity.same_on_two_threads(made, self._texts),
            "golden": golden,
            "tolerance": tolerance,
            "metrics": {name: round(float(value), 6) for name, value in sorted(measured.items())},
            "files": checksums(self._folder, self._manifest.graphs),
        }
        write(self._folder, self._manifest.model_copy(update=update))

    def _choose(self, expected: Answers, exact: Answers, way: str | None) -> tuple[Way, Way]:
        """The first way within the bounds for each graph, from the smallest to float32; or the named one for both."""
        chosen: dict[str, Way] = {}
        ways = fidelity.ways(self._encoder, self._texts, self._original.model.num_parameters())
        if way and way not in ways:
            raise RefusedError(f"--quantize {way} is not known; there is {', '.join(ways)}")
        for name in [way] if way else ways:
            product = ways[name]()
            if product is None:
                continue
            answers = exact if name == EXACT else self._answers(name, product)
            for graph, found in fidelity.measures(self._manifest, answers, expected).items():
                problems = [] if name in (way, EXACT) else broken(BOUNDS, found)
                said = f"{graph} {name}: {'; '.join(problems) or 'within the bounds'}"
                self._console.print(said, highlight=False, soft_wrap=True)
                if not problems:
                    chosen.setdefault(graph, Way(name, product, found))
            if len(chosen) == 2:
                break
        if not chosen:
            raise RefusedError(f"--quantize {way} is not for a model of this family or size: take another way")
        return chosen["classify"], chosen["embed"]

    def _answers(self, name: str, product: Product) -> Answers:
        folder = self._folder / name
        way = Way(name, product, {})
        write_graphs(folder, self._encoder, way, way)
        answers = Answers.of(served(Engine(Artifact(folder, self._manifest))), self._texts)
        shutil.rmtree(folder)
        return answers

    def _golden(self, tokenizer: Tokenizer, chosen: Quantization) -> tuple[tuple[Golden, ...], float]:
        """The original's answers to the golden texts, and how far the served ones may be from them."""
        manifest = self._manifest.model_copy(update={"quantization": chosen})
        answer = served(Engine(Artifact(self._folder, manifest)))
        golden: list[Golden] = []
        worst = 0.0
        for text in GOLDEN_TEXTS:
            ids = tokenizer.read(text).first().ids
            theirs, ours = self._original.answer(ids), answer(ids)
            logits, mean = theirs.logits, theirs.mean[:GOLDEN_VALUES]
            pairs = ((theirs.logits, ours.logits), (theirs.mean, ours.mean))
            worst = max(worst, *(float(np.abs(a - b).max()) for a, b in pairs))
            best, served_best = int(logits.argmax()), int(ours.logits.argmax())
            label = manifest.labels[best] if best == served_best else None
            golden.append(Golden(text=text, logits=_rounded(logits), mean=_rounded(mean), label=label))
        # Half as much again, for processors that round otherwise.
        return tuple(golden), math.ceil(1000 * (1.5 * worst + 0.001)) / 1000


def _rounded(values: Floats) -> tuple[float, ...]:
    return tuple(round(float(value), 6) for value in values)


def _ids(tokenizer: Tokenizer, sentences: Sequence[str]) -> list[Ids]:
    """Token ids of each sentence, of the shortest text and of ones as long as the model reads and half of that."""
    joined = " ".join(sentences)
    while tokenizer.read(joined).fits:
        joined += f" {joined}"
    whole = tokenizer.read(joined).first().ids
    half = np.concatenate([whole[: len(whole) // 2], whole[-1:]])
    found = [np.concatenate([whole[:2], whole[-1:]]), half, whole]
    for sentence in sentences:
        try:
            found.append(tokenizer.read(sentence).first().ids)
        except InputError:
            continue
    return found


def _draft(
    out: Path, found: Source, encoder: Encoder, wishes: Wishes, stated: int | None, console: Console
) -> Manifest:
    """What is known of a model before it is measured. Raises RefusedError."""
    config = {"id2label": dict(enumerate(encoder.labels)), "problem_type": found.config.get("problem_type")}
    labels = heads.names(config, wishes.labels)
    head = wishes.head or heads.kind(config)
    if head == "regression" and len(labels) > 1:
        raise RefusedError(f"--head regression is for one output, and there are {len(labels)}")
    if head == "softmax" and len(labels) < 2:
        raise RefusedError(
            "--head softmax is for two outputs or more, and there is one: take multi_label or regression"
        )
    if heads.unnamed(labels) and head != "regression":
        console.print(f"warning: the labels are called {', '.join(labels)}: give --labels to name them", soft_wrap=True)
    longest = min(encoder.max_tokens, stated or encoder.max_tokens)
    if wishes.max_tokens and not 3 <= wishes.max_tokens <= longest:
        raise RefusedError(f"--max-tokens {wishes.max_tokens} is not between 3 and the {longest} that the model reads")
    if longest > LONGEST and not wishes.max_tokens:
        console.print(f"warning: {LONGEST} of {longest} tokens are read at once: --max-tokens {longest} reads them all")
    packages = (*PACKAGES, "torch", "transformers")
    return Manifest(
        format=1,
        name=out.resolve().name,
        family=found.family,
        labels=labels,
        head=head,
        threshold=wishes.threshold,
        valences=heads.valences(head, labels, wishes.valences),
        hidden_size=encoder.hidden_size,
        max_tokens=wishes.max_tokens or min(longest, LONGEST),
        cleanup=(),
        temperature=1.0,
        last_layer=encoder.last_layer,
        graphs=Graphs(classify=CLASSIFY, embed=EMBED),
        quantization=Quantization(classify=EXACT, embed=EXACT),
        files={},
        golden=(),
        tolerance=1.0,
        bounds=BOUNDS,
        metrics={},
        versions={"python": platform.python_version()} | {package: version(package) for package in packages},
    )
