"""What a teacher says, kept and read again, and how far a student is from it."""

import math
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch belongs to the training set: make test-models")

from models import teacher  # noqa: E402
from models.finetuned import Finetuned, Reading  # noqa: E402
from models.teacher import Tutor  # noqa: E402
from tests.models.words import TEXTS  # noqa: E402

pytestmark = pytest.mark.usefixtures("exact")


def test_a_teachers_labels_come_back_as_it_gave_them(trained: tuple[Path, list[float]], tmp_path: Path) -> None:
    folder, _ = trained
    texts = [
        "the film is good",
        "it",
        "the film is good",
        "the long and boring talk is awful .",
        "caf\u00e9 \U0001f600",
    ]
    teacher.label(str(folder), texts, tmp_path / "labels.parquet")
    found = teacher.read_labels(tmp_path / "labels.parquet", list(reversed(texts)))
    expected = Finetuned(str(folder), 0.0).predict(list(reversed(texts)))
    assert torch.allclose(found.logits, expected.logits, atol=1e-5)
    assert torch.allclose(found.states.float(), expected.cls, atol=1e-2)
    tokenized, written = teacher.read_labels(
        tmp_path / "labels.parquet", ["the long and boring talk is awful .", "the long and boring talk is awful."]
    ).logits
    assert torch.equal(tokenized, written)
    for unknown in teacher.read_labels(tmp_path / "labels.parquet", ["another"]):
        assert unknown.isnan().all()


def test_more_texts_than_are_labelled_at_once(trained: tuple[Path, list[float]], tmp_path: Path) -> None:
    folder, _ = trained
    texts = [f"it {'is ' * (i % 5)}good {i}" for i in range(4100)]
    teacher.label(str(folder), texts, tmp_path / "labels.parquet", max_tokens=8)
    logits, states = teacher.read_labels(tmp_path / "labels.parquet", texts)
    assert (logits.shape, states.shape) == ((4100, 3), (4100, 32))
    assert not logits.isnan().any()
    one = Finetuned(str(folder), 0.0).predict(texts[4000:4001], max_tokens=8)
    assert torch.allclose(logits[4000], one.logits, atol=1e-5)


def test_teachers_vectors_are_standardized_as_a_whole() -> None:
    states = torch.tensor([[1.0, 10.0], [3.0, 10.0], [math.nan, math.nan]]).half()
    found = teacher.standardized(states)
    assert found[:2].flatten().tolist() == pytest.approx([-math.sqrt(2), 0.0, math.sqrt(2), 0.0], abs=1e-3)
    assert found[2].isnan().all()


def test_unlikeness_is_the_mean_square_over_the_texts_that_the_teacher_read() -> None:
    imitated = torch.tensor([[1.0, 0.0], [5.0, 5.0]], requires_grad=True)
    states = torch.tensor([[0.0, 2.0], [math.nan, math.nan]])
    far = teacher.unlike(imitated, states)
    assert far.item() == pytest.approx(2.5)
    far.backward()
    assert imitated.grad is not None
    assert imitated.grad[1].tolist() == [0.0, 0.0]
    assert teacher.unlike(imitated, states[1:].expand(2, 2)).item() == 0.0


@pytest.fixture
def student(start: str) -> Finetuned:
    return Finetuned(start, 0.0)


@pytest.fixture
def tutor(student: Finetuned, trained: tuple[Path, list[float]]) -> Tutor:
    """A teacher who reads along all texts but the last."""
    known = torch.tensor([True] * (len(TEXTS) - 1) + [False])
    torch.manual_seed(0)
    return Tutor(Finetuned(str(trained[0]), 0.0), student, TEXTS, known, 16)


def read(model: Finetuned, texts: list[str]) -> Reading:
    return model.read(model.encode(texts, 16))


def test_layers_that_lie_as_deep() -> None:
    assert teacher.layers(6, 12) == [(2, 4), (4, 8), (5, 10)]
    assert teacher.layers(12, 12) == [(4, 4), (8, 8), (11, 11)]
    assert teacher.layers(2, 6) == [(1, 3)]
    assert teacher.layers(1, 4) == [(1, 4)]


def test_a_student_that_says_the_mean_of_all_tokens_is_one_from_its_tutor(tutor: Tutor, student: Finetuned) -> None:
    for parameter in tutor.parameters():
        torch.nn.init.zeros_(parameter)
    batch = list(range(len(TEXTS)))
    assert tutor.unlike(batch, read(student, TEXTS)).item() == pytest.approx(1.0, abs=1e-5)


def test_a_tutor_looks_at_neither_padding_nor_texts_that_it_does_not_know(tutor: Tutor, student: Finetuned) -> None:
    last = len(TEXTS) - 1
    alone = tutor.unlike([0, 3], read(student, [TEXTS[0], TEXTS[3]]))
    longer = TEXTS[last] + " and it is good"
    among = tutor.unlike([0, last, 3], read(student, [TEXTS[0], longer, TEXTS[3]]))
    assert among.item() == pytest.approx(alone.item(), rel=1e-4)
    assert alone.item() > 0.1
    assert tutor.unlike([last], read(student, [longer])).item() == 0.0


def test_imitation_reaches_the_student_and_not_the_teacher(tutor: Tutor, student: Finetuned) -> None:
    tutor.unlike([0, 3], read(student, [TEXTS[0], TEXTS[3]])).backward()
    learning = {name for name, parameter in student.model.named_parameters() if parameter.grad is not None}
    assert any(".layer.0." in name for name in learning)
    assert not any(".layer.1." in name or "classifier" in name for name in learning)
    assert all(parameter.grad is not None for parameter in tutor.parameters())
    assert len(list(tutor.parameters())) == 2


def test_a_tutor_that_splits_texts_otherwise_is_refused(
    student: Finetuned, trained: tuple[Path, list[float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = student.encode
    monkeypatch.setattr(student, "encode", lambda texts, most: [ids[1:] for ids in encode(texts, most)])
    with pytest.raises(ValueError, match="the teacher has 6 tokens and the student 5 in 'the film is awful'"):
        Tutor(Finetuned(str(trained[0]), 0.0), student, TEXTS, torch.ones(len(TEXTS), dtype=torch.bool), 16)
