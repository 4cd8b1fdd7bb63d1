"""The model in training: its tokens, its outputs, its arithmetic."""

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch belongs to the training set: make test-models")

from models import finetuned, metrics  # noqa: E402
from models.finetuned import Finetuned  # noqa: E402
from tests.models.words import TEXTS  # noqa: E402

HAS_BF16 = finetuned.has_bf16
pytestmark = pytest.mark.usefixtures("exact")


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
    read = model.read

    def spy(ids: Any) -> Any:
        sizes.append(len(ids) * max(len(one) for one in ids))
        return read(ids)

    monkeypatch.setattr(model, "read", spy)
    texts = ["good " * (1 + i % 40) for i in range(100)]
    expected = model.predict(texts).logits
    monkeypatch.setattr(finetuned, "TOKENS_AT_ONCE", 128)
    sizes.clear()
    assert torch.allclose(model.predict(texts).logits, expected, atol=1e-5)
    assert max(sizes) <= 128


def test_the_vectors_are_the_mean_of_the_tokens_that_are_no_padding_and_the_first(start: str) -> None:
    model = Finetuned(start, 0.0)
    model.model.eval()
    short, long = model.encode(["good film", "the film is good and the book is long"], 32)
    with torch.no_grad():
        hidden = model.model(torch.tensor([short]), output_hidden_states=True).hidden_states[-1]
        found = model.read([short, long]).outputs()
    assert torch.allclose(found.mean[0], hidden[0].mean(0), atol=1e-5)
    assert torch.allclose(found.cls[0], hidden[0, 0], atol=1e-5)


def test_half_precision_changes_little_and_is_not_seen_outside(
    trained: tuple[Path, list[float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Finetuned(str(trained[0]), 0.0)
    exact = model.predict(TEXTS)
    monkeypatch.setattr(finetuned, "has_bf16", lambda: True)
    rough = model.predict(TEXTS)
    assert {one.dtype for one in rough} == {torch.float32}
    assert not torch.equal(rough.logits, exact.logits)
    assert torch.allclose(rough.logits, exact.logits, atol=0.3)
    assert metrics.cosine(rough.mean.numpy(), exact.mean.numpy()).min() > 0.999


def test_dropout_is_what_was_asked_for(start: str) -> None:
    config = Finetuned(start, 0.25).model.config
    assert config.hidden_dropout_prob == config.attention_probs_dropout_prob == 0.25


def test_half_precision_is_used_where_the_processor_has_it() -> None:
    assert HAS_BF16() in (True, False)
