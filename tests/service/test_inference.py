"""What is asked is what is answered: alone, in lists and under load, bit for bit."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from service.artifact import Artifact
from service.engine import Engine
from service.errors import ArtifactError, EngineError, InputError, RequestError
from service.heads import softmax
from service.inference import Classification, Embedding, Inference, Limits, Pool
from service.metrics import Metrics
from service.scheduler import Scheduler

TINY = Path(__file__).parents[1] / "tiny"
LIMITS = Limits(texts=2000, characters=10_000, windows=16, sentences=16, words=40)
WORDS = ("the", "film", "is", "good", "bad", "not", "very", "and", "but", "a", "plot", "boring", "great", "!", ".", "?")


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def inference(metrics: Metrics) -> Iterator[Inference]:
    scheduler = Scheduler(2, 4000, metrics)
    scheduler.start()
    yield Inference.open(TINY, scheduler, metrics, LIMITS)
    scheduler.stop(timeout=10)


def texts(count: int, seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(1, 90))) for _ in range(count)]


def test_alone_in_a_list_and_under_load_the_answer_is_the_same_to_the_last_bit(inference: Inference) -> None:
    asked = texts(300)
    alone = [inference.classify([text]).result()[0] for text in asked]
    order = random.Random(1).sample(range(len(asked)), len(asked))
    together = dict(zip(order, inference.classify([asked[i] for i in order]).result(), strict=True))
    with ThreadPoolExecutor(16) as pool:
        loaded = list(pool.map(lambda text: inference.classify([text, "other"]).result()[0], asked))
    for index, answer in enumerate(alone):
        for other in (together[index], loaded[index]):
            assert isinstance(answer, Classification)
            assert isinstance(other, Classification)
            assert answer.logits.tobytes() == other.logits.tobytes()
            assert answer.probabilities.tobytes() == other.probabilities.tobytes()


@pytest.mark.parametrize("pool", ["cls", "mean", "max", "cls,mean"])
def test_vectors_are_the_same_alone_and_together(inference: Inference, pool: Pool) -> None:
    asked = texts(60, seed=2)
    together = inference.embed(asked, pool).result()
    for text, answer in zip(asked, together, strict=True):
        alone = inference.embed([text], pool).result()[0]
        assert isinstance(answer, Embedding)
        assert isinstance(alone, Embedding)
        assert answer.vector.dtype == np.float32
        assert answer.vector.tobytes() == alone.vector.tobytes()


def test_the_cls_vector_is_the_one_behind_the_logits(inference: Inference) -> None:
    ids = inference._tokenizer.read("the film is good").first().ids
    answer = inference.embed(["the film is good"], "cls").result()[0]
    assert isinstance(answer, Embedding)
    assert answer.vector.tobytes() == Engine(Artifact.open(TINY)).classify(ids).cls.tobytes()


def test_a_pool_that_the_graphs_lack_is_refused(inference: Inference, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model made before there were more pools has the mean alone."""
    monkeypatch.setattr(inference._engine._embed, "outputs", frozenset({"mean"}))
    assert inference.pools == ["cls", "mean"]
    with pytest.raises(RequestError, match="no pool cls,mean; its pools: cls; mean"):
        inference.embed(["good"], "cls,mean")


def test_a_failed_run_fails_its_own_text(inference: Inference, monkeypatch: pytest.MonkeyPatch) -> None:
    run = inference._engine.classify

    def failing(ids: np.ndarray[tuple[int], np.dtype[np.int64]], *, wide: bool) -> object:
        if len(ids) > 20:
            raise EngineError("the run failed")
        return run(ids, wide=wide)

    monkeypatch.setattr(inference._engine, "classify", failing)
    good, bad, also_good = inference.classify(["good", "bad " * 25, "film"]).result()
    assert isinstance(good, Classification)
    assert isinstance(bad, EngineError)
    assert isinstance(also_good, Classification)


def test_texts_that_wait_share_runs_and_are_answered_as_alone(
    inference: Inference, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ["good", "the film is good", "bad " * 60, "", "a joy , in the second part ."] * 5

    def answers() -> str:
        vectors = [one.vector.tobytes() for one in inference.embed(asked[:3]).result() if isinstance(one, Embedding)]
        return repr([*inference.classify(asked).result(), *inference.explain(asked[1:2]).result(), *vectors])

    def runs() -> tuple[float | None, ...]:
        names = ("run_texts_sum", "run_texts_count", "inference_seconds_count")
        return tuple(metrics.registry.get_sample_value(f"sentiment_{name}", {"graph": "classify"}) for name in names)

    before = answers()
    ran, *alone = runs()
    assert alone == [ran, ran]
    inference.hasten()
    packs: list[int] = []
    run = inference._engine.classify_all

    def counting(each: Sequence[NDArray[np.int64]]) -> object:
        packs.append(len(each))
        return run(each)

    monkeypatch.setattr(inference._engine, "classify_all", counting)
    assert answers() == before
    assert max(packs) > 1
    assert ran is not None
    assert runs() == (2 * ran, 2 * ran - sum(packs) + len(packs), 2 * ran - sum(packs) + len(packs))


def test_a_text_that_fails_in_company_fails_alone(inference: Inference, monkeypatch: pytest.MonkeyPatch) -> None:
    inference.hasten()

    def failing(texts: Sequence[NDArray[np.int64]]) -> list[object]:
        return [EngineError("the run failed") if len(ids) > 20 else inference._engine.classify(ids) for ids in texts]

    monkeypatch.setattr(inference._engine, "classify_all", failing)
    answers = inference.classify(["good", "bad " * 25, "film"] * 3).result()
    assert [type(answer) for answer in answers] == [Classification, EngineError, Classification] * 3


def test_every_limit_names_both_numbers(inference: Inference) -> None:
    for asked, kind, message in (
        ("a" * 10_001, {}, "10001 characters; 10000 are allowed"),
        ("good . " * 900, {}, "windows; 16 are allowed"),
        ("Good film. " * 20, {"detail": "sentences"}, "20 sentences; 16 are allowed"),
    ):
        (answer,) = inference.classify([asked], **kind).result()  # type: ignore[arg-type]
        assert isinstance(answer, InputError)
        assert message in answer.message
    (answer,) = inference.explain(["a " * 41]).result()  # type: ignore[assignment]
    assert isinstance(answer, InputError)
    assert "41 words; 40 are allowed" in answer.message
    for wrong in ([], ["a"] * 2001):
        with pytest.raises(RequestError, match=f"{len(wrong)} texts in one request; 1 to 2000 are allowed"):
            inference.classify(wrong)
    with pytest.raises(RequestError, match="this pool has 1 to 32"):
        inference.embed(["a"], dimensions=33)


def test_golden_texts_gate_a_model(inference: Inference, tmp_path: Path) -> None:
    manifest = inference.manifest
    first = manifest.golden[0]
    wrong = first.model_copy(update={"logits": tuple(value + 1 for value in first.logits)})
    folder = Path(shutil.copytree(TINY, tmp_path / "model"))
    lying = manifest.model_copy(update={"golden": (wrong,)})
    (folder / "manifest.json").write_text(lying.model_dump_json())
    with pytest.raises(ArtifactError, match=r"golden text .* classify is off by 1\.0000, allowed 0\.05"):
        Inference.open(folder, inference._scheduler, Metrics(), LIMITS)


def test_a_vector_without_length_cannot_be_normalized(inference: Inference, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inference._engine, "embed", lambda ids, pooled: np.zeros(32, np.float32))
    (answer,) = inference.embed(["good"], "mean", normalize=True).result()
    assert isinstance(answer, EngineError)
    (answer,) = inference.embed(["good"], "mean").result()
    assert isinstance(answer, Embedding)


def test_a_model_without_a_mask_token_does_not_explain(inference: Inference, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(inference._tokenizer), "mask", None)
    with pytest.raises(RequestError, match="no mask token"):
        inference.explain(["good"])


def test_softmax_takes_the_temperature_and_large_logits() -> None:
    probabilities = softmax(np.array([1000.0, 998.0, -1000.0], np.float32), 2.0)
    assert probabilities.tolist() == pytest.approx([0.731058579, 0.268941421, 0.0], abs=1e-9)


def test_only_a_process_of_two_workers_has_runs_on_two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.engine.worth_sharing", lambda _seconds: 16)
    assert Artifact.open(TINY).manifest.wide
    for workers in (1, 2):
        metrics = Metrics()
        inference = Inference.open(TINY, Scheduler(workers, 10, metrics), metrics, LIMITS)
        inference.hasten()
        assert inference._engine.wide == (workers == 2)
