"""Training, end to end on a tiny encoder that learns a few words, and the pieces it is made of."""

import json
import math
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

torch = pytest.importorskip("torch", reason="PyTorch belongs to the training set: make test-models")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from transformers import BertConfig, BertModel, BertTokenizer  # noqa: E402

from models import finetune, metrics  # noqa: E402
from models.data import Example  # noqa: E402
from models.finetune import Finetuned, Recipe  # noqa: E402

NEGATIVE, NEUTRAL, POSITIVE = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)
SUBJECTS = ["film", "book", "song", "talk", "meal", "trip"]
OPINIONS = {
    "awful": NEGATIVE,
    "boring": NEGATIVE,
    "long": NEUTRAL,
    "new": NEUTRAL,
    "good": POSITIVE,
    "lovely": POSITIVE,
}
EXAMPLES = [Example(f"the {s} is {o}", target) for s in SUBJECTS for o, target in OPINIONS.items()]
TEXTS = [example.text for example in EXAMPLES]
HAS_BF16 = finetune.has_bf16
RECIPE = Recipe(epochs=2, batch=6, rate=1e-2, dropout=0.0, max_tokens=16)


@pytest.fixture(scope="module", autouse=True)
def exact() -> Iterator[None]:
    """The same arithmetic on every CPU, on as many threads as so small a model can use."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finetune, "has_bf16", lambda: False)
        yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A random encoder, without a head: 2 layers, 32 wide, and the words of the texts."""
    folder = tmp_path_factory.mktemp("start")
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = [*special, *OPINIONS, *SUBJECTS, "the", "is", "and", "@", "user", "http", ".", "it"]
    (folder / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        initializer_range=0.1,
    )
    BertModel(config).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of what training is measured on."""
    folder = tmp_path_factory.mktemp("dev")
    (folder / "sst2_dev.tsv").write_text("sentence\tlabel\nthe film is lovely\t1\nthe meal is awful\t0\n")
    tweets = "text\tlabel\n@jack the song is good\tpositive\nthe trip is long\tneutral\nthe talk is boring\tnegative\n"
    (folder / "tweets_dev.tsv").write_text(tweets)
    (folder / "sst_trees_dev.txt").write_text("(4 (2 the) (3 good))\n(0 (2 the) (1 awful))\n(2 (2 the) (2 new))\n")
    pairs = [
        "5\tthe film is good\tthe film is good",
        "2\tthe film is good\tthe book is good",
        "0\tgood film\tit is awful",
    ]
    (folder / "stsb_dev.tsv").write_text("\n".join(["score\tsentence1\tsentence2", *pairs]))
    return folder


@pytest.fixture(scope="module")
def trained(start: str, dev: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[float]]:
    """The checkpoint of one run, and the loss of each of its steps."""
    out = tmp_path_factory.mktemp("trained")
    losses: list[float] = []
    step = finetune.Run.step

    def spy(run: finetune.Run, batch: list[int], rate: float) -> float:
        losses.append(step(run, batch, rate))
        return losses[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finetune.Run, "step", spy)
        finetune.finetune(start, EXAMPLES, dev, out, replace(RECIPE, epochs=8), teacher=None)
    return out, losses


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


# Teachers


def test_a_teachers_labels_come_back_as_it_gave_them(trained: tuple[Path, list[float]], tmp_path: Path) -> None:
    folder, _ = trained
    texts = [
        "the film is good",
        "it",
        "the film is good",
        "the long and boring talk is awful .",
        "caf\u00e9 \U0001f600",
    ]
    finetune.label(str(folder), texts, tmp_path / "labels.parquet")
    found = finetune.read_labels(tmp_path / "labels.parquet", list(reversed(texts)))
    expected = Finetuned(str(folder), 0.0).predict(list(reversed(texts)))
    assert torch.allclose(found.logits, expected.logits, atol=1e-5)
    assert torch.allclose(found.states.float(), expected.cls, atol=1e-2)
    tokenized, written = finetune.read_labels(
        tmp_path / "labels.parquet", ["the long and boring talk is awful .", "the long and boring talk is awful."]
    ).logits
    assert torch.equal(tokenized, written)
    for unknown in finetune.read_labels(tmp_path / "labels.parquet", ["another"]):
        assert unknown.isnan().all()


def test_more_texts_than_are_labelled_at_once(trained: tuple[Path, list[float]], tmp_path: Path) -> None:
    folder, _ = trained
    texts = [f"it {'is ' * (i % 5)}good {i}" for i in range(4100)]
    finetune.label(str(folder), texts, tmp_path / "labels.parquet", max_tokens=8)
    logits, states = finetune.read_labels(tmp_path / "labels.parquet", texts)
    assert (logits.shape, states.shape) == ((4100, 3), (4100, 32))
    assert not logits.isnan().any()
    one = Finetuned(str(folder), 0.0).predict(texts[4000:4001], max_tokens=8)
    assert torch.allclose(logits[4000], one.logits, atol=1e-5)


def test_texts_without_a_label_are_learned_from_the_teacher(
    trained: tuple[Path, list[float]], start: str, dev: Path, tmp_path: Path
) -> None:
    folder, _ = trained
    finetune.label(str(folder), TEXTS, tmp_path / "labels.parquet")
    unlabelled = [Example(text) for text in TEXTS]
    finetune.finetune(start, unlabelled, dev, tmp_path / "out", replace(RECIPE, epochs=8), tmp_path / "labels.parquet")
    teacher = Finetuned(str(folder), 0.0).predict(TEXTS).logits.argmax(-1).numpy()
    student = Finetuned(str(tmp_path / "out"), 0.0).predict(TEXTS).logits.argmax(-1).numpy()
    assert metrics.accuracy(student, teacher) > 0.9


def test_a_student_that_imitates_comes_closer_to_what_the_teacher_reads(
    trained: tuple[Path, list[float]], start: str, dev: Path, tmp_path: Path
) -> None:
    folder, _ = trained
    labels = tmp_path / "labels.parquet"
    finetune.label(str(folder), TEXTS, labels)
    unlabelled = [Example(text) for text in TEXTS]
    states = finetune.read_labels(labels, TEXTS).states.float()
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


# The model in training


def test_a_text_is_cleaned_as_in_serving_and_cut(start: str) -> None:
    model = Finetuned(start, 0.0)
    plain, cleaned, long = model.encode(
        ["@user http it is .", "@jack https://a.b it is .", "good " * 50], max_tokens=10
    )
    assert plain == cleaned
    assert len(long) == 10
    assert (long[0], long[-1]) == (model.tokenizer.cls_token_id, model.tokenizer.sep_token_id)


def test_an_answer_depends_neither_on_its_place_nor_on_its_neighbours(start: str) -> None:
    model = Finetuned(start, 0.0)
    texts = [("the film is good and " * (1 + i % 4)).strip() for i in range(70)]
    found = model.predict(texts)
    assert [tuple(one.shape) for one in found] == [(70, 3), (70, 32), (70, 32)]
    assert {one.dtype for one in found} == {torch.float32}
    for i in (0, 3, 69):
        for alone, together in zip(model.predict([texts[i]]), found, strict=True):
            assert torch.allclose(alone[0], together[i], atol=1e-5)


def test_texts_are_run_in_chunks_of_bounded_size(start: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Finetuned(start, 0.0)
    sizes: list[int] = []
    forward = model.forward

    def spy(ids: Any) -> Any:
        sizes.append(len(ids) * max(len(one) for one in ids))
        return forward(ids)

    monkeypatch.setattr(model, "forward", spy)
    texts = ["good " * (1 + i % 40) for i in range(100)]
    expected = model.predict(texts).logits
    monkeypatch.setattr(finetune, "TOKENS_AT_ONCE", 128)
    sizes.clear()
    assert torch.allclose(model.predict(texts).logits, expected, atol=1e-5)
    assert max(sizes) <= 128


def test_the_vectors_are_the_mean_of_the_tokens_that_are_no_padding_and_the_first(start: str) -> None:
    model = Finetuned(start, 0.0)
    model.model.eval()
    short, long = model.encode(["good film", "the film is good and the book is long"], 32)
    with torch.no_grad():
        hidden = model.model(torch.tensor([short]), output_hidden_states=True).hidden_states[-1]
        found = model.forward([short, long])
    assert torch.allclose(found.mean[0], hidden[0].mean(0), atol=1e-5)
    assert torch.allclose(found.cls[0], hidden[0, 0], atol=1e-5)


def test_half_precision_changes_little_and_is_not_seen_outside(
    trained: tuple[Path, list[float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Finetuned(str(trained[0]), 0.0)
    exact = model.predict(TEXTS)
    monkeypatch.setattr(finetune, "has_bf16", lambda: True)
    rough = model.predict(TEXTS)
    assert {one.dtype for one in rough} == {torch.float32}
    assert not torch.equal(rough.logits, exact.logits)
    assert torch.allclose(rough.logits, exact.logits, atol=0.3)
    assert metrics.cosine(rough.mean.numpy(), exact.mean.numpy()).min() > 0.999


def test_dropout_is_what_was_asked_for(start: str) -> None:
    config = Finetuned(start, 0.25).model.config
    assert config.hidden_dropout_prob == config.attention_probs_dropout_prob == 0.25


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


def test_teachers_vectors_are_standardized_as_a_whole() -> None:
    states = torch.tensor([[1.0, 10.0], [3.0, 10.0], [math.nan, math.nan]]).half()
    found = finetune.standardized(states)
    assert found[:2].flatten().tolist() == pytest.approx([-math.sqrt(2), 0.0, math.sqrt(2), 0.0], abs=1e-3)
    assert found[2].isnan().all()


def test_unlikeness_is_the_mean_square_over_the_texts_that_the_teacher_read() -> None:
    imitated = torch.tensor([[1.0, 0.0], [5.0, 5.0]], requires_grad=True)
    states = torch.tensor([[0.0, 2.0], [math.nan, math.nan]])
    far = finetune.unlike(imitated, states)
    assert far.item() == pytest.approx(2.5)
    far.backward()
    assert imitated.grad is not None
    assert imitated.grad[1].tolist() == [0.0, 0.0]
    assert finetune.unlike(imitated, states[1:].expand(2, 2)).item() == 0.0


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


def test_half_precision_is_used_where_the_processor_has_it() -> None:
    assert HAS_BF16() in (True, False)
