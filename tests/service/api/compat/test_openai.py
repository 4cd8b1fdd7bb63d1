"""The published `openai` client against a running service."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from typing import Any

import httpx2
import numpy as np
import openai
import pytest
from fastapi import FastAPI

from tests.service.serving import overloaded

TEXTS = ["the film is good", "the film is bad"]


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0) as made:
        yield made


def test_a_list_of_texts(client: openai.OpenAI, model: str) -> None:
    answer = client.embeddings.create(model=model, input=TEXTS, encoding_format="float")
    assert (answer.object, answer.model) == ("list", model)
    assert [one.index for one in answer.data] == [0, 1]
    assert [np.linalg.norm(one.embedding) for one in answer.data] == pytest.approx([1, 1], abs=1e-6)
    assert answer.usage.prompt_tokens == answer.usage.total_tokens > 0


def test_base64_holds_the_same_numbers(client: openai.OpenAI, plain: httpx2.Client, model: str) -> None:
    asked: dict[str, Any] = {"model": model, "input": TEXTS[0]}
    (as_floats,) = client.embeddings.create(**asked, encoding_format="float").data
    (decoded,) = client.embeddings.create(**asked).data
    raw = plain.post("/v1/embeddings", json={**asked, "encoding_format": "base64"}).json()
    values = np.frombuffer(base64.b64decode(raw["data"][0]["embedding"]), "<f4")
    assert decoded.embedding == values.tolist()
    assert values == pytest.approx(as_floats.embedding, abs=1e-7)


def test_dimensions_keeps_the_first_values_at_unit_length(client: openai.OpenAI, model: str) -> None:
    (whole,) = client.embeddings.create(model=model, input=TEXTS[0]).data
    (cut,) = client.embeddings.create(model=model, input=TEXTS[0], dimensions=5, user="someone").data
    first = np.array(whole.embedding[:5])
    assert cut.embedding == pytest.approx((first / np.linalg.norm(first)).tolist(), abs=1e-6)


@pytest.mark.parametrize(("suffix", "pool"), [("", "mean"), (":mean", "mean"), (":cls", "cls")])
def test_the_name_says_which_pool(
    client: openai.OpenAI, plain: httpx2.Client, model: str, suffix: str, pool: str
) -> None:
    (found,) = client.embeddings.create(model=model + suffix, input=TEXTS[0]).data
    own = plain.post("/embed", json={"inputs": TEXTS[0]}, params={"pool": pool, "normalize": "true"}).json()
    assert found.embedding == pytest.approx(own["embeddings"][0], abs=1e-6)


def test_a_long_text_is_read_to_its_end(client: openai.OpenAI, model: str) -> None:
    start = "good " * 200
    vectors = [client.embeddings.create(model=model, input=start + end).data[0] for end in ("bad", "fine")]
    assert vectors[0].embedding != vectors[1].embedding


def test_models(client: openai.OpenAI, model: str) -> None:
    assert [one.id for one in client.models.list()] == [model, f"{model}:mean", f"{model}:cls"]
    assert client.models.retrieve(f"{model}:cls").id == f"{model}:cls"


def test_asynchronously(url: str, model: str) -> None:
    async def asked() -> int:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="unused") as client:
            return len((await client.embeddings.create(model=model, input=TEXTS)).data)

    assert asyncio.run(asked()) == 2


@pytest.mark.parametrize(
    ("asked", "param", "code"),
    [
        ({"input": ""}, "input", "empty_text"),
        ({"input": ["good", ""]}, "input", "empty_text"),
        ({"input": []}, "input", "no_texts"),
        ({"input": ["good"] * 9}, "input", "too_many_texts"),
        ({"input": [1, 2, 3]}, "input", "invalid_request"),
        ({"input": "good", "dimensions": 10_000}, "dimensions", "invalid_request"),
        ({"input": "good", "extra_body": {"dimension": 3}}, "dimension", "invalid_request"),
    ],
)
def test_what_the_caller_did_wrong_is_a_bad_request(
    client: openai.OpenAI, model: str, asked: dict[str, Any], param: str, code: str
) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        client.embeddings.create(**{"model": model, **asked})
    assert (raised.value.param, raised.value.code, raised.value.type) == (param, code, "invalid_request_error")


def test_a_text_at_fault_is_named(client: openai.OpenAI, model: str) -> None:
    with pytest.raises(openai.BadRequestError, match="text 2 of 3: the text is empty"):
        client.embeddings.create(model=model, input=["good", "", "bad"])


def test_a_body_that_is_not_json(plain: httpx2.Client) -> None:
    headers = {"content-type": "application/json"}
    for body in (b"{", b"\xff"):
        answer = plain.post("/v1/embeddings", content=body, headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "malformed_json")


def test_an_unknown_model_is_not_found(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="does not exist here") as raised:
        client.embeddings.create(model="text-embedding-3-small", input="good")
    assert (raised.value.code, raised.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("text-embedding-3-small")


def test_a_full_queue_is_a_rate_limit_with_when_to_come_back(client: openai.OpenAI, app: FastAPI, model: str) -> None:
    with overloaded(app), pytest.raises(openai.RateLimitError) as raised:
        client.embeddings.create(model=model, input="good")
    assert raised.value.type == "rate_limit_error"
    assert int(raised.value.response.headers["retry-after"]) >= 1


def test_a_service_without_its_model_is_a_server_error(client: openai.OpenAI, unloaded: None) -> None:
    with pytest.raises(openai.InternalServerError) as raised:
        client.models.list()
    assert (raised.value.status_code, raised.value.type) == (503, "server_error")
