"""The published `huggingface_hub` client against a running service."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx2
import numpy as np
import pytest
from fastapi import FastAPI
from huggingface_hub import AsyncInferenceClient, InferenceClient, TextClassificationOutputElement, close_session
from huggingface_hub.errors import HfHubHTTPError

from tests.service.serving import overloaded

TEXT = "the film is good"
LONG = "good " * 200


@pytest.fixture
def labels(url: str) -> InferenceClient:
    return InferenceClient(f"{url}/hf/text-classification")


@pytest.fixture
def features(url: str) -> InferenceClient:
    return InferenceClient(f"{url}/hf/feature-extraction")


@pytest.fixture(scope="module", autouse=True)
def _session() -> Iterator[None]:
    """All of huggingface_hub's clients ask through one session."""
    yield
    close_session()


def classified(plain: httpx2.Client, **asked: object) -> dict[str, Any]:
    (found,) = plain.post("/classify", json={"inputs": TEXT, **asked}).json()["results"]
    return dict(found)


def test_every_label_best_first(labels: InferenceClient, plain: httpx2.Client) -> None:
    found = labels.text_classification(TEXT)
    scores = classified(plain)["scores"]
    assert {one.label: one.score for one in found} == scores
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)


def test_top_k(labels: InferenceClient) -> None:
    assert labels.text_classification(TEXT, top_k=2) == labels.text_classification(TEXT)[:2]


@pytest.mark.parametrize("function", ["softmax", "sigmoid", "none"])
def test_function_to_apply(labels: InferenceClient, plain: httpx2.Client, function: str) -> None:
    answer = classified(plain, raw_scores=True)
    logits = answer["logits"]
    expected = {
        "softmax": answer["scores"],
        "sigmoid": {label: 1 / (1 + np.exp(-logit)) for label, logit in logits.items()},
        "none": logits,
    }[function]
    found = labels.text_classification(TEXT, function_to_apply=function)  # type: ignore[arg-type]
    assert {one.label: one.score for one in found} == pytest.approx(expected, abs=2e-6)


def test_features_of_one_text_and_of_several(features: InferenceClient) -> None:
    one, several = features.feature_extraction(TEXT), features.feature_extraction([TEXT, "bad"])
    assert one.dtype == np.float32
    assert several.shape == (2, one.shape[1])
    assert (several[:1] == one).all()
    assert np.linalg.norm(several, axis=1) == pytest.approx([1, 1], abs=1e-6)


def test_normalize_and_dimensions(features: InferenceClient, plain: httpx2.Client) -> None:
    raw = features.feature_extraction(TEXT, normalize=False, dimensions=5)
    query: dict[str, Any] = {"pool": "mean", "dimensions": 5}
    own = plain.post("/embed", json={"inputs": TEXT}, params=query).json()["embeddings"]
    assert raw == pytest.approx(np.array(own), abs=1e-6)


def test_a_long_text_is_read_whole_cut_or_refused(features: InferenceClient) -> None:
    ends = ["bad", "fine"]
    whole = [features.feature_extraction(LONG + end) for end in ends]
    cut = [features.feature_extraction(LONG + end, truncate=True, truncation_direction="right") for end in ends]
    assert (whole[0] != whole[1]).any()
    assert (cut[0] == cut[1]).all()
    with pytest.raises(HfHubHTTPError, match="tokens and the model reads"):
        features.feature_extraction(LONG, truncate=False)


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"truncation_direction": "left"}, "truncation_direction: Input should be 'right'"),
        ({"prompt_name": "query"}, "prompt_name: this model has no prompts"),
        ({"encoding_format": "base64"}, "encoding_format: Input should be 'float'"),
        ({"dimensions": 10_000}, "dimensions is 10000"),
    ],
)
def test_what_cannot_be_done_is_refused(features: InferenceClient, asked: dict[str, object], reason: str) -> None:
    with pytest.raises(HfHubHTTPError, match=reason) as raised:
        features.feature_extraction(TEXT, **asked)  # type: ignore[arg-type]
    assert raised.value.response.status_code == 422


def test_one_bad_text_fails_the_request(features: InferenceClient) -> None:
    with pytest.raises(HfHubHTTPError, match="text 2 of 2: the text is empty"):
        features.feature_extraction([TEXT, ""])


def test_a_full_queue(labels: InferenceClient, app: FastAPI) -> None:
    with overloaded(app), pytest.raises(HfHubHTTPError) as raised:
        labels.text_classification(TEXT)
    assert raised.value.response.status_code == 429
    assert "retry-after" in raised.value.response.headers


def test_asynchronously(url: str, plain: httpx2.Client) -> None:
    async def asked() -> list[TextClassificationOutputElement]:
        async with AsyncInferenceClient(f"{url}/hf/text-classification") as client:
            found: list[TextClassificationOutputElement] = await client.text_classification(TEXT)
            return found

    assert asyncio.run(asked())[0].label == classified(plain)["label"]
