"""Models by name: which answers, what a change does to requests that are under way, and what becomes of the old one."""

from __future__ import annotations

import gc
import platform
import re
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from service.catalog import Catalog
from service.errors import ArtifactError, ConflictError, RequestError, UnavailableError, UnknownModelError
from service.inference import Classification, Embedding, Inference, Limits
from service.memory import give_back
from service.metrics import Metrics
from service.scheduler import Scheduler
from service.settings import DEFAULT_MODEL
from tests.service.api.conftest import TINY
from tests.service.variants import OTHER_LABELS, lying, variant

LIMITS = Limits(texts=2000, characters=10_000, windows=20, sentences=50, words=40)
TEXTS = ["the film is good", "the film is awful", "", "the plot was dull. " * 40]


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def scheduler(metrics: Metrics) -> Iterator[Scheduler]:
    """One worker."""
    made = Scheduler(1, 5000, metrics)
    made.start()
    yield made
    made.stop(timeout=10)


@pytest.fixture
def release(scheduler: Scheduler) -> Iterator[threading.Event]:
    """The worker is held up, and what is asked waits, until this is set."""
    event = threading.Event()
    scheduler.submit([event.wait])
    yield event
    event.set()


@pytest.fixture
def other(tmp_path: Path) -> Path:
    return variant(tmp_path / "other")


@pytest.fixture
def catalog(scheduler: Scheduler, metrics: Metrics) -> Catalog:
    def open_model(folder: Path, name: str | None) -> Inference:
        return Inference.open(folder, scheduler, metrics, LIMITS, name)

    return Catalog(open_model, metrics, most=3)


def labels(answers: Sequence[object]) -> set[str]:
    return {answer.label for answer in answers if isinstance(answer, Classification)}


def gone(reference: weakref.ref[Inference]) -> bool:
    """Whether it is freed, or is once the worker has let go of what it ran last."""
    until = time.monotonic() + 10
    while reference() is not None and time.monotonic() < until:
        gc.collect()
        time.sleep(0.01)
    return reference() is None


def test_before_the_start_there_is_none(catalog: Catalog) -> None:
    assert catalog.not_ready() == "the model is being loaded"
    for name in (None, "a"):
        with pytest.raises(UnavailableError, match="being loaded"):
            catalog.get(name)
    with pytest.raises(UnavailableError, match="being loaded"):
        _ = catalog.loaded


def test_a_single_model_has_the_name_of_its_manifest(catalog: Catalog) -> None:
    catalog.start({None: TINY})
    assert catalog.default == "tiny"
    assert catalog.get() is catalog.get("tiny")
    assert catalog.not_ready() is None


def test_the_first_is_the_default_and_an_unknown_name_is_answered_with_those_there_are(
    catalog: Catalog, other: Path
) -> None:
    catalog.start({"b": other, "a": TINY})
    assert catalog.get() is catalog.get("b")
    assert [(entry.name, entry.state) for entry in catalog.entries] == [("b", "ready"), ("a", "ready")]
    assert catalog.get("a").digest != catalog.get("b").digest
    with pytest.raises(UnknownModelError, match="'tiny' does not exist here; there is b or a") as raised:
        catalog.get("tiny")
    assert (raised.value.code, raised.value.param) == ("unknown_model", "model")


def test_one_that_fails_at_the_start_makes_the_service_not_ready_and_the_others_answer(
    catalog: Catalog, other: Path, tmp_path: Path
) -> None:
    catalog.start({"a": tmp_path / "nowhere", "b": other})
    assert "manifest.json cannot be read" in str(catalog.not_ready())
    for name in (None, "a"):
        with pytest.raises(UnavailableError, match=r"manifest\.json cannot be read"):
            catalog.get(name)
    assert catalog.get("b").manifest.labels == tuple(OTHER_LABELS)
    assert [(entry.name, entry.state) for entry in catalog.entries] == [("b", "ready"), ("a", "failed")]
    catalog.load("a", TINY)
    assert catalog.not_ready() is None
    assert catalog.get() is catalog.get("a")


def test_one_that_failed_may_be_given_up(catalog: Catalog, tmp_path: Path) -> None:
    catalog.start({"a": TINY, "b": tmp_path / "nowhere"})
    assert catalog.not_ready()
    catalog.unload("b")
    assert catalog.not_ready() is None
    with pytest.raises(UnknownModelError):
        catalog.get("b")


def test_one_that_is_refused_later_changes_nothing(catalog: Catalog, tmp_path: Path) -> None:
    catalog.start({"a": TINY})
    before = catalog.get("a")
    for name in ("a", "new"):
        with pytest.raises(ArtifactError, match="golden text"):
            catalog.load(name, lying(tmp_path / name))
    assert catalog.get("a") is before
    assert catalog.not_ready() is None
    assert [entry.name for entry in catalog.entries] == ["a"]


def test_what_was_asked_before_is_answered_by_the_model_it_was_asked_of(
    catalog: Catalog, release: threading.Event, other: Path
) -> None:
    catalog.start({"a": TINY, "b": TINY})
    asked = {name: catalog.get(name).classify(["the film is good"]) for name in ("a", "b")}
    catalog.load("a", other)
    catalog.unload("b")
    later = catalog.get("a").classify(["the film is good"])
    with pytest.raises(UnknownModelError):
        catalog.get("b")
    release.set()
    for name in ("a", "b"):
        assert labels(asked[name].result(timeout=60)) <= {"negative", "neutral", "positive"}
        assert labels(asked[name].result())
    assert labels(later.result(timeout=60)) <= set(OTHER_LABELS)


def test_an_old_model_is_freed_with_its_last_answer(catalog: Catalog, release: threading.Event, other: Path) -> None:
    catalog.start({"a": TINY, "b": TINY})
    olds = [weakref.ref(catalog.get(name)) for name in ("a", "b")]
    asked = [old().classify(TEXTS) for old in olds]  # type: ignore[union-attr]
    catalog.load("a", other)
    catalog.unload("b")
    gc.collect()
    assert all(old() is not None for old in olds)
    release.set()
    for work in asked:
        work.result(timeout=60)
    del asked, work
    assert all(gone(old) for old in olds)


def test_one_pool_answers_for_all_models_in_turns_and_as_each_alone(
    catalog: Catalog, release: threading.Event, other: Path
) -> None:
    catalog.start({"a": TINY, "b": other})
    done: list[str] = []
    bulk = catalog.get("a").classify(TEXTS * 20)
    bulk.add_done_callback(lambda _: done.append("a"))
    single = catalog.get("b").classify(TEXTS)
    single.add_done_callback(lambda _: done.append("b"))
    vectors = catalog.get("b").embed(TEXTS[:1])
    release.set()
    together = [*bulk.result(timeout=60)[: len(TEXTS)], *single.result(timeout=60)]
    assert done == ["b", "a"]
    alone = [*catalog.get("a").classify(TEXTS).result(timeout=60)]
    for first, second, third in zip(together, together[len(TEXTS) :], alone, strict=False):
        if isinstance(third, Classification):
            assert isinstance(first, Classification)
            assert isinstance(second, Classification)
            assert first.logits.tobytes() == second.logits.tobytes() == third.logits.tobytes()
            assert OTHER_LABELS[int(first.probabilities.argmax())] == second.label
        else:
            assert type(first) is type(second) is type(third)
    (vector,), (again,) = vectors.result(timeout=60), catalog.get("a").embed(TEXTS[:1]).result(timeout=60)
    assert isinstance(vector, Embedding)
    assert isinstance(again, Embedding)
    assert np.array_equal(vector.vector, again.vector)


def test_one_is_loaded_at_a_time_and_the_others_answer_meanwhile(metrics: Metrics, scheduler: Scheduler) -> None:
    let_go, opened = threading.Event(), threading.Event()

    def open_model(folder: Path, name: str | None) -> Inference:
        if folder.name == "slow":
            opened.set()
            assert let_go.wait(60)
        return Inference.open(TINY, scheduler, metrics, LIMITS, name)

    catalog = Catalog(open_model, metrics, most=3)
    catalog.start({"a": TINY})
    thread = threading.Thread(target=catalog.load, args=("b", Path("slow")))
    thread.start()
    assert opened.wait(60)
    assert [(entry.name, entry.state) for entry in catalog.entries] == [("a", "ready"), ("b", "loading")]
    with pytest.raises(ConflictError, match="one at a time") as raised:
        catalog.load("c", TINY)
    assert raised.value.code == "loading"
    with pytest.raises(UnknownModelError):
        catalog.get("b")
    assert catalog.get("a")
    let_go.set()
    thread.join()
    assert catalog.get("b").name == "b"
    catalog.load("c", TINY)


def test_the_number_of_models_is_bounded_and_a_replacement_is_no_further_one(catalog: Catalog, other: Path) -> None:
    catalog.start({"a": TINY, "b": TINY, "c": TINY})
    with pytest.raises(RequestError, match="3 models are loaded and 3 may be") as raised:
        catalog.load("d", TINY)
    assert raised.value.code == "too_many_models"
    catalog.load("c", other)
    assert catalog.get("c").manifest.labels == tuple(OTHER_LABELS)


def test_the_default_cannot_be_unloaded_but_another_made_it(catalog: Catalog) -> None:
    catalog.start({"a": TINY, "b": TINY})
    with pytest.raises(ConflictError, match="a is the default") as raised:
        catalog.unload("a")
    assert raised.value.code == "default_model"
    with pytest.raises(UnknownModelError):
        catalog.set_default("c")
    catalog.set_default("b")
    assert catalog.get() is catalog.get("b")
    catalog.unload("a")
    for name in ("a", "c"):
        with pytest.raises(UnknownModelError):
            catalog.unload(name)


def test_the_metrics_name_the_models_that_are_loaded(catalog: Catalog, metrics: Metrics, other: Path) -> None:
    def shown() -> set[tuple[str, str]]:
        samples = [sample for family in metrics.model_info.collect() for sample in family.samples]
        assert all(sample.value == 1 for sample in samples)
        return {(sample.labels["model"], sample.labels["digest"]) for sample in samples}

    catalog.start({"a": TINY, "b": TINY})
    old = catalog.get("a").digest
    assert shown() == {("a", old), ("b", old)}
    catalog.load("a", other)
    catalog.unload("b")
    assert shown() == {("a", catalog.get("a").digest)}
    assert catalog.get("a").digest != old


def test_the_series_of_a_model_end_when_it_is_unloaded_and_never_begin_for_one_that_is_refused(
    catalog: Catalog, metrics: Metrics, release: threading.Event, tmp_path: Path
) -> None:
    def series(model: str) -> set[str]:
        families = (metrics.texts, metrics.tokens, metrics.predictions, metrics.model_info)
        samples = [sample for metric in families for family in metric.collect() for sample in family.samples]
        return {sample.name for sample in samples if sample.labels["model"] == model}

    catalog.start({"a": TINY, "b": TINY})
    asked = catalog.get("b").classify(["the film is good"])
    assert {"sentiment_texts_total", "sentiment_tokens_total", "sentiment_model_info"} <= series("a") == series("b")
    catalog.unload("b")
    release.set()
    asked.result(timeout=60)
    assert series("a")
    assert not series("b")
    with pytest.raises(ArtifactError):
        catalog.load("c", lying(tmp_path / "lying"))
    assert not series("c")


MEMORY = pytest.mark.skipif(
    sys.platform != "linux" or platform.libc_ver()[0] != "glibc", reason="memory is counted on Linux"
)


def resident() -> float:
    """Megabytes that are this process's own."""
    (line,) = re.findall(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text("ascii"))
    return int(line) / 1000


@MEMORY
def test_memory_comes_back(scheduler: Scheduler, metrics: Metrics) -> None:
    """What a model took is the system's again soon after it is unloaded; replacing it again and again adds nothing."""

    def settled(limit: float) -> float:
        until = time.monotonic() + 30
        while (now := resident()) > limit and time.monotonic() < until:
            time.sleep(0.1)
        return now

    def open_model(folder: Path, name: str | None) -> Inference:
        return Inference.open(folder, scheduler, metrics, LIMITS, name)

    catalog = Catalog(open_model, metrics, most=2)
    catalog.start({"a": TINY, "b": DEFAULT_MODEL})
    first = weakref.ref(catalog.get("b"))
    catalog.unload("b")
    assert gone(first)
    give_back()
    empty = resident()
    catalog.load("b", DEFAULT_MODEL)
    full = resident()
    assert full > empty + 10
    for _ in range(3):
        catalog.load("b", DEFAULT_MODEL)
    assert settled(full + 10) <= full + 10
    catalog.unload("b")
    assert settled((empty + full) / 2) <= (empty + full) / 2


AT_REST = f"""
from pathlib import Path
from service.catalog import Catalog
from service.inference import Inference
from service.metrics import Metrics
from service.scheduler import Scheduler
from tests.service.test_catalog import LIMITS, resident

metrics = Metrics()
scheduler = Scheduler(1, 5000, metrics)
scheduler.start()
catalog = Catalog(lambda folder, name: Inference.open(folder, scheduler, metrics, LIMITS, name), metrics, most=1)
catalog.start({{"a": Path({str(DEFAULT_MODEL)!r})}})
sizes = []
for _ in range(2):
    catalog.get().embed(["the plot was dull. " * 100], "mean").result()
    sizes.append(resident())
    catalog.rest()
    sizes.append(resident())
print(*sizes)
scheduler.stop(timeout=10)
"""


@MEMORY
def test_at_rest_the_memory_of_runs_is_given_back() -> None:
    """In a process of its own: in this one, other tests' memory comes and goes meanwhile."""
    ran = subprocess.run([sys.executable, "-W", "error", "-c", AT_REST], capture_output=True, text=True, check=True)
    first, rested, second, again = map(float, ran.stdout.splitlines()[-1].split())
    assert first > rested + 10
    assert second > rested + 10
    assert again < rested + 5


def test_answers_after_rest_are_those_before(catalog: Catalog) -> None:
    catalog.start({"a": DEFAULT_MODEL})
    model = catalog.get()

    def answers() -> list[object]:
        vectors = model.embed(TEXTS, "mean").result()
        return [
            *(one.vector.tobytes() for one in vectors if isinstance(one, Embedding)),
            *model.classify(TEXTS).result(),
        ]

    before = answers()
    catalog.rest()
    assert repr(answers()) == repr(before)
