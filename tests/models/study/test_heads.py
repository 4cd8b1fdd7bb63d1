"""Each head pools what it says, whatever the padding; training goes on where it stopped."""

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch belongs to the training set: make test-models")

from models.study import heads  # noqa: E402
from models.study.encoder import Encoder  # noqa: E402
from models.study.heads import HEADS, Budget, Head  # noqa: E402
from models.study.record import read  # noqa: E402

TEXTS = ["the film was great .", "it", "the hotel seems cold and bland , as everyone said , again and again ."]


def test_a_vector_does_not_depend_on_the_padding(start: Path) -> None:
    encoder = Encoder(start)
    encoder.model.eval()
    ids = encoder.encode(TEXTS)
    assert len({len(one) for one in ids}) == 3
    with torch.inference_mode():
        for kind in HEADS:
            head = Head(kind, encoder)
            together = head.vector(*encoder.states(ids))
            for row, one in zip(together, ids, strict=True):
                torch.testing.assert_close(head.vector(*encoder.states([one]))[0], row, rtol=1e-4, atol=1e-5)


def test_a_vector_is_what_its_head_says(start: Path) -> None:
    encoder = Encoder(start)
    encoder.model.eval()
    with torch.inference_mode():
        states, mask = encoder.states(encoder.encode(TEXTS[:1]))
        layers = [state[0].numpy() for state in states]
        vectors = {kind: Head(kind, encoder).vector(states, mask)[0].numpy() for kind in HEADS}
    last = layers[-1]
    expected = {
        "cls": last[0],
        "mean": last.mean(0),
        "max": last.max(0),
        "cls-mean": np.concatenate([last[0], last.mean(0)]),
        "cls-last4": np.concatenate([layer[0] for layer in layers[-4:]]),
    }
    for kind, vector in expected.items():
        np.testing.assert_allclose(vectors[kind], vector, rtol=1e-4, atol=1e-5)
    assert np.abs(vectors["cls-pooler"]).max() < 1
    low, high = last.min(0) - 1e-5, last.max(0) + 1e-5
    assert ((vectors["attention"] >= low) & (vectors["attention"] <= high)).all()


def test_runs_are_the_same_again_and_go_on_where_they_stopped(
    start: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heads, "HEADS", {kind: HEADS[kind] for kind in ("mean", "attention")})
    budget = Budget(each=16, batch=8, max_tokens=24, seeds=(0,))
    first, second = tmp_path / "1" / "heads.json", tmp_path / "2" / "heads.json"
    heads.run(start, data, first, tmp_path / "work", budget)
    heads.run(start, data, second, tmp_path / "work", budget)
    measured = [{**row, "cpu_minutes": 0} for row in read(first)[1]]
    assert measured == [{**row, "cpu_minutes": 0} for row in read(second)[1]]
    assert [row["head"] for row in measured] == ["mean", "attention"]
    written = first.read_bytes()
    heads.run(start, data, first, tmp_path / "work", budget)
    assert first.read_bytes() == written
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["mean-0"]


def test_a_kept_head_answers_as_it_did(start: Path, data: Path, tmp_path: Path) -> None:
    encoder = Encoder(start)
    head, _ = heads.train(encoder, "mean", data, Budget(each=8, batch=8, max_tokens=24), seed=0)
    heads.save(encoder, head, tmp_path, {})
    loaded, again = heads.load(tmp_path, "mean")
    ids = encoder.encode(TEXTS)
    np.testing.assert_allclose(loaded.each(ids, again), encoder.each(ids, head), rtol=1e-4, atol=1e-5)
