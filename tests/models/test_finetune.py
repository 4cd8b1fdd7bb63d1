"""Training, end to end on a tiny encoder that learns a few words, and the pieces it is made of."""

import json
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

torch = pytest.importorskip("torch", reason="PyTorch belongs to the training set: make test-models")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from models import finetune, metrics, teacher  # noqa: E402
from models.data import Example  # noqa: E402
from models.finetune import Recipe  # noqa: E402
from models.finetuned import Finetuned  # noqa: E402
from tests.models.words import EXAMPLES, LEARNED, NEGATIVE, POSITIVE, TEXTS, write_encoder  # noqa: E402

RECIPE = Recipe(**LEARNED)
pytestmark = pytest.mark.usefixtures("exact")


# A whole run


def mean_vectors(folder: str) -> NDArray[np.float32]:
    """What a model makes of the texts."""
    vectors: NDArray[np.float32] = Finetuned(folder, 0.0).predict(TEXTS).mean.numpy()
    return vectors


def test_the_loss_falls_until_the_words_are_learned(trained: tuple[Path, list[float]]) -> None:
    folder, losses = trained
    assert len(losses) == 8 * math.ceil(len(EXAMPLES) / RECIPE.batch)
    assert np.mean(losses[:6]) > 0.8
    assert np.mean(losses[-6:]) < 0.2
    logits = Finetuned(str(folder), 0.0).predict(TEXTS).logits
    assert logits.argmax(-1).tolist() == [int(np.argmax(example.target or ())) for example in EXAMPLES]


def test_the_checkpoint_names_its_labels_and_its_record_tells_the_run(
    trained: tuple[Path, list[float]], start: str
) -> None:
    folder, _ = trained
    config = json.loads((folder / "config.json").read_text())
    assert config["id2label"] == {"0": "negative", "1": "neutral", "2": "positive"}
    record = json.loads((folder / "training.json").read_text())
    assert record["start"] == Path(start).name
    assert record["texts"] == len(EXAMPLES)
    assert Recipe(**record["recipe"]) == replace(RECIPE, epochs=8)
    assert len(record["epochs"]) == 8
    assert record["epochs"][-1].keys() == {"sst2", "tweets", "trees", "stsb"}
    assert record["epochs"][-1]["sst2"] == 1.0
    assert record["minutes"] >= 0
    assert str(Path(start).parent) not in (folder / "training.json").read_text()


def test_what_is_written_loads_again_and_answers_the_same(
    trained: tuple[Path, list[float]], dev: Path, start: str, tmp_path: Path
) -> None:
    folder, _ = trained
    scores = finetune.evaluate(Finetuned(str(folder), 0.0), dev)
    assert scores == json.loads((folder / "training.json").read_text())["epochs"][-1]


def test_the_recipe_decides_the_run(start: str, dev: Path, tmp_path: Path) -> None:
    recipe = replace(RECIPE, epochs=1, dropout=0.1)
    for name, seed in (("one", 0), ("again", 0), ("other", 1)):
        finetune.finetune(start, EXAMPLES, dev, tmp_path / name, replace(recipe, seed=seed), teacher=None)
    one, again, other = (Finetuned(str(tmp_path / n), 0.0).predict(TEXTS).logits for n in ("one", "again", "other"))
    assert torch.equal(one, again)
    assert not torch.allclose(one, other, atol=1e-3)


def test_a_batch_that_does_not_fill_up_still_ends_an_epoch(start: str, dev: Path, tmp_path: Path) -> None:
    finetune.finetune(start, EXAMPLES[:7], dev, tmp_path, replace(RECIPE, epochs=3, batch=4), teacher=None)
    assert len(json.loads((tmp_path / "training.json").read_text())["epochs"]) == 3


def test_the_embedding_term_keeps_the_mean_vectors_close(start: str, dev: Path, tmp_path: Path) -> None:
    before = mean_vectors(start)
    closeness = {}
    for keep in (0.0, 10.0):
        out = tmp_path / str(keep)
        finetune.finetune(start, EXAMPLES, dev, out, replace(RECIPE, keep_embedding=keep), teacher=None)
        closeness[keep] = float(metrics.cosine(before, mean_vectors(str(out))).mean())
    assert closeness[10.0] > 0.9
    assert closeness[0.0] < closeness[10.0] - 0.05


def test_the_mean_vectors_kept_are_those_of_the_anchor(start: str, dev: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    keeping = replace(RECIPE, keep_embedding=10.0)
    finetune.finetune(start, EXAMPLES, dev, first, replace(RECIPE, keep_embedding=0.0), teacher=None)
    finetune.finetune(str(first), EXAMPLES, dev, second, keeping, teacher=None, anchor=start)
    anchored, drifted, again = (mean_vectors(str(one)) for one in (start, first, second))
    assert metrics.cosine(anchored, again).mean() > metrics.cosine(anchored, drifted).mean() + 0.02


def test_what_is_frozen_stays_as_it_is(start: str, dev: Path, tmp_path: Path) -> None:
    finetune.finetune(start, EXAMPLES, dev, tmp_path, replace(RECIPE, epochs=1, freeze=1), teacher=None)
    before, after = (Finetuned(one, 0.0).model.state_dict() for one in (start, str(tmp_path)))
    same = {name for name in after if name in before and torch.equal(before[name], after[name])}
    encoder = {name for name in after if name.startswith("bert.")}
    assert {name for name in encoder if ".embeddings." in name or ".layer.0." in name} <= same
    assert not {name for name in encoder if ".layer.1." in name and name.endswith("weight")} & same


def test_a_text_of_which_nothing_is_known_is_refused(start: str, dev: Path, tmp_path: Path) -> None:
    unlabelled = [*EXAMPLES, Example("who knows")]
    with pytest.raises(ValueError, match="neither a label nor a teacher says anything of 'who knows'"):
        finetune.finetune(start, unlabelled, dev, tmp_path, RECIPE, teacher=None)


# With a teacher


def test_texts_without_a_label_are_learned_from_the_teacher(
    trained: tuple[Path, list[float]], start: str, dev: Path, tmp_path: Path
) -> None:
    folder, _ = trained
    teacher.label(str(folder), TEXTS, tmp_path / "labels.parquet")
    unlabelled = [Example(text) for text in TEXTS]
    finetune.finetune(start, unlabelled, dev, tmp_path / "out", replace(RECIPE, epochs=8), tmp_path / "labels.parquet")
    taught = Finetuned(str(folder), 0.0).predict(TEXTS).logits.argmax(-1).numpy()
    student = Finetuned(str(tmp_path / "out"), 0.0).predict(TEXTS).logits.argmax(-1).numpy()
    assert metrics.accuracy(student, taught) > 0.9


def test_a_student_that_imitates_comes_closer_to_what_the_teacher_reads(
    trained: tuple[Path, list[float]], start: str, dev: Path, tmp_path: Path
) -> None:
    folder, _ = trained
    labels = tmp_path / "labels.parquet"
    teacher.label(str(folder), TEXTS, labels)
    unlabelled = [Example(text) for text in TEXTS]
    states = teacher.read_labels(labels, TEXTS).states.float()
    alike = {}
    for imitate in (0.0, 3.0):
        out = tmp_path / str(imitate)
        finetune.finetune(start, unlabelled, dev, out, replace(RECIPE, epochs=6, imitate=imitate), labels)
        alike[imitate] = alignment(Finetuned(str(out), 0.0).predict(TEXTS).cls, states)
    assert alike[3.0] > alike[0.0]


def alignment(one: Any, two: Any) -> float:
    """Linear CKA (Kornblith et al. 2019) of two sets of vectors of the same texts; 1 if one is the other turned."""
    one, two = one - one.mean(0), two - two.mean(0)
    shared, *own = (torch.linalg.matrix_norm(a.T @ b) for a, b in ((one, two), (one, one), (two, two)))
    return float(shared**2 / (own[0] * own[1]))


def test_imitating_nobody_is_refused(start: str, dev: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no teacher to imitate"):
        finetune.finetune(start, EXAMPLES, dev, tmp_path, replace(RECIPE, imitate=1.0), teacher=None)


def test_a_student_that_imitates_tokens_comes_closer_to_the_states_of_a_layer_below(
    start: str, dev: Path, tmp_path: Path
) -> None:
    labels, large = tmp_path / "labels.parquet", str(tmp_path / "large")
    Path(large).mkdir()
    write_encoder(Path(large), layers=4, hidden=48, seed=1)
    teacher.label(large, TEXTS, labels)
    unlabelled = [Example(text) for text in TEXTS]

    def states(one: str, layer: int) -> Any:
        model = Finetuned(one, 0.0)
        model.model.eval()
        with torch.no_grad():
            read = model.read(model.encode(TEXTS, 16))
        return read.hidden[layer][read.mask]

    alike = {}
    for imitate in (0.0, 3.0):
        out = str(tmp_path / str(imitate))
        recipe = replace(RECIPE, epochs=6, rate=2e-3, imitate_tokens=imitate)
        finetune.finetune(start, unlabelled, dev, Path(out), recipe, labels, tutor=large)
        alike[imitate] = alignment(states(out, layer=1), states(large, layer=2))
    assert alike[3.0] > alike[0.0] + 0.05


@pytest.mark.parametrize("named", ["labels", "tutor"])
def test_imitating_the_tokens_of_nobody_is_refused(
    named: str, trained: tuple[Path, list[float]], start: str, dev: Path, tmp_path: Path
) -> None:
    teacher.label(str(trained[0]), TEXTS, tmp_path / "labels.parquet")
    labels = tmp_path / "labels.parquet" if named == "labels" else None
    tutor = str(trained[0]) if named == "tutor" else None
    with pytest.raises(ValueError, match="no teacher whose tokens to imitate: name its labels and its checkpoint"):
        finetune.finetune(start, EXAMPLES, dev, tmp_path, replace(RECIPE, imitate_tokens=1.0), labels, tutor=tutor)


# Batches and the rate


@given(lengths=st.lists(st.integers(1, 100), max_size=300), size=st.integers(1, 20), seed=st.integers(0, 3))
def test_batches_hold_every_text_once(lengths: list[int], size: int, seed: int) -> None:
    found = finetune.batches(lengths, size, random.Random(seed))
    assert sorted(i for batch in found for i in batch) == list(range(len(lengths)))
    assert len(found) == math.ceil(len(lengths) / size)
    assert sum(len(batch) < size for batch in found) <= 1
    assert found == finetune.batches(lengths, size, random.Random(seed))


def test_texts_of_a_batch_have_similar_lengths_and_batches_come_in_no_order() -> None:
    lengths = [random.Random(i).randint(1, 100) for i in range(1000)]
    found = finetune.batches(lengths, 20, random.Random(0))
    spreads = [max(lengths[i] for i in batch) - min(lengths[i] for i in batch) for batch in found]
    assert np.mean(spreads) < 5
    means = [np.mean([lengths[i] for i in batch]) for batch in found]
    assert abs(np.corrcoef(means, range(len(means)))[0, 1]) < 0.5
    assert found != finetune.batches(lengths, 20, random.Random(1))


@given(steps=st.integers(1, 1000), warmup=st.floats(0, 0.9))
def test_the_rate_rises_to_its_full_and_falls_to_none(steps: int, warmup: float) -> None:
    shares = [finetune.schedule(step, steps, warmup) for step in range(steps + 1)]
    assert all(0 <= share <= 1 for share in shares)
    top = shares.index(max(shares))
    assert shares[: top + 1] == sorted(shares[: top + 1])
    assert shares[top:] == sorted(shares[top:], reverse=True)
    assert shares[-1] == 0


def test_the_rate_at_some_steps() -> None:
    assert [finetune.schedule(step, 100, 0.1) for step in (0, 5, 10, 55, 100)] == [0, 0.5, 1.0, 0.5, 0]


# The loss


def loss(
    targets: list[Any], teacher: list[Any] | None = None, weights: list[float] | None = None, **recipe: Any
) -> float:
    """Of even odds for everything: each row's cross-entropy is log 3 times what its target sums to."""
    count = len(targets)
    return float(
        finetune.loss_of(
            logits=recipe.pop("logits", torch.zeros(count, 3)),
            pooled=recipe.pop("pooled", torch.ones(count, 4)),
            targets=torch.tensor(targets),
            weights=torch.tensor(weights or [1.0] * count),
            teacher=None if teacher is None else torch.tensor(teacher),
            start=torch.ones(count, 4),
            recipe=Recipe(**recipe),
        )
    )


def test_the_loss_is_the_cross_entropy_of_soft_targets() -> None:
    logits = torch.log(torch.tensor([[0.7, 0.2, 0.1]]))
    assert loss([NEGATIVE], logits=logits) == pytest.approx(-math.log(0.7))
    expected = -(0.5 * math.log(0.7) + 0.3 * math.log(0.2) + 0.2 * math.log(0.1))
    assert loss([(0.5, 0.3, 0.2)], logits=logits) == pytest.approx(expected)


def test_a_weight_counts_as_so_many_texts() -> None:
    logits = torch.log(torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]]))
    both = loss([NEGATIVE, POSITIVE], logits=logits, weights=[3.0, 1.0])
    assert both == pytest.approx(-(3 * math.log(0.7) + math.log(0.8)) / 4)


def test_the_teacher_has_its_share_of_a_labelled_text_and_all_of_another() -> None:
    logits = torch.log(torch.tensor([[0.7, 0.2, 0.1]]))
    certain = [[-50.0, -50.0, 50.0]]  # positive
    blended = loss([NEGATIVE], certain, logits=logits, teacher_share=0.25)
    assert blended == pytest.approx(-(0.75 * math.log(0.7) + 0.25 * math.log(0.1)), rel=1e-5)
    assert loss([(0.0, 0.0, 0.0)], certain, logits=logits, teacher_share=0.25) == pytest.approx(
        -math.log(0.1), rel=1e-5
    )


def test_where_the_teacher_gave_no_label_the_texts_own_speaks_alone() -> None:
    logits = torch.log(torch.tensor([[0.7, 0.2, 0.1]]))
    assert loss([NEGATIVE], [[math.nan] * 3], logits=logits, teacher_share=0.6) == pytest.approx(-math.log(0.7))
    assert loss([(0.0, 0.0, 0.0)], [[math.nan] * 3], logits=logits, teacher_share=0.6) == 0.0


def test_a_text_with_neither_label_nor_teacher_teaches_nothing() -> None:
    assert loss([(0.0, 0.0, 0.0)]) == 0.0


def test_drift_is_the_angle_to_the_start_and_costs_what_the_recipe_says() -> None:
    none = [(0.0, 0.0, 0.0)]
    turned = torch.tensor([[1.0, 1.0, -1.0, -1.0]])  # a right angle
    assert loss(none, pooled=turned, keep_embedding=0.0) == pytest.approx(0.0)
    assert loss(none, pooled=turned, keep_embedding=3.0) == pytest.approx(3.0)
    assert loss(none, pooled=torch.full((1, 4), 9.0), keep_embedding=3.0) == pytest.approx(0.0, abs=1e-6)


def test_vectors_and_norms_do_not_decay(start: str) -> None:
    plain, decayed = finetune._parameter_groups(Finetuned(start, 0.0).model, replace(RECIPE, weight_decay=0.3))
    assert plain["weight_decay"] == 0.0
    assert decayed["weight_decay"] == 0.3
    assert {parameter.ndim for parameter in plain["params"]} == {1}
    assert {parameter.ndim for parameter in decayed["params"]} == {2}
