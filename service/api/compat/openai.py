"""OpenAI's embeddings and list of models, for its client and the many that speak like it: base URL /v1."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Request, Response
from pydantic import Field
from typing_extensions import TypedDict

from service.api.compat.base import PeerRoute, failures, reply, whole
from service.api.errors import MalformedError, MediaTypeError
from service.api.guards import answer
from service.api.routes import Deadline, Service
from service.api.schemas import Encoding, Fields, Inputs, vector_values
from service.catalog import Catalog
from service.errors import InputError, RequestError, ServiceError, UnknownModelError
from service.inference import Inference, Pool


class Problem(TypedDict):
    """What went wrong: a sentence, the kind of error, the parameter at fault and a stable code."""

    message: str
    type: str
    param: str | None
    code: str


class Failure(TypedDict):
    """The one shape of every error."""

    error: Problem


class OpenAIRoute(PeerRoute):
    """Failures as OpenAI's client reads them: what the caller did wrong is a 400."""

    statuses = PeerRoute.statuses | dict.fromkeys(
        (InputError, RequestError, MalformedError, MediaTypeError), HTTPStatus.BAD_REQUEST
    )

    @classmethod
    def body(cls, error: ServiceError) -> Mapping[str, object]:
        """The error object."""
        status = cls.status(error)
        kind = "server_error" if status >= 500 else "invalid_request_error"
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            kind = "rate_limit_error"
        param = "input" if error.param == "inputs" else error.param
        code = "model_not_found" if isinstance(error, UnknownModelError) else error.code
        return Failure(error={"message": error.message, "type": kind, "param": param, "code": code})


class EmbeddingsRequest(Fields):
    """Texts to embed. Token ids are refused: they are of another tokenizer's making."""

    model: Annotated[str, Field(description="The model's name, with `:cls` after it for the other pool.")]
    input: Inputs
    encoding_format: Encoding = "float"
    dimensions: Annotated[int | None, Field(strict=True, description="Keep the first so many values.")] = None
    user: Annotated[str | None, Field(description="Taken and not used.")] = None


class EmbeddingObject(TypedDict):
    """One text's vector: numbers, or little-endian float32 in base64."""

    object: str
    index: int
    embedding: list[float] | str


class EmbeddingsUsage(TypedDict):
    """Tokens read."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingsResponse(TypedDict):
    """The vectors, in the order of the texts."""

    object: str
    model: str
    data: list[EmbeddingObject]
    usage: EmbeddingsUsage


class Model(TypedDict):
    """A model's name; when it was made is not known."""

    id: str
    object: str
    created: int
    owned_by: str


class ModelList(TypedDict):
    """The models there are."""

    object: str
    data: list[Model]


router = APIRouter(prefix="/v1", route_class=OpenAIRoute, tags=["OpenAI"], responses=failures(Failure))


@router.post("/embeddings", response_model=EmbeddingsResponse)
async def embeddings(request: Request, body: EmbeddingsRequest, service: Service, seconds: Deadline) -> Response:
    """Turn each text into a vector of unit length; a text longer than the model reads is read in windows."""
    inference, pool = _known(service.models, body.model)
    work = inference.embed(body.input, pool, normalize=True, dimensions=body.dimensions)
    answers = whole(request, await answer(request, work, seconds))
    values = [vector_values(one, body.encoding_format) for one in answers]
    tokens = sum(one.tokens for one in answers)
    content: EmbeddingsResponse = {
        "object": "list",
        "model": body.model,
        "data": [{"object": "embedding", "index": index, "embedding": value} for index, value in enumerate(values)],
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }
    return reply(content)


@router.get("/models")
async def models(service: Service) -> ModelList:
    """Each model once for each way of pooling."""
    return {"object": "list", "data": [_model(name) for model in service.models.loaded for name in _pools(model)]}


@router.get("/models/{model}")
async def model(model: str, service: Service) -> Model:
    """The model of that name."""
    _known(service.models, model)
    return _model(model)


def _pools(inference: Inference) -> dict[str, Pool]:
    """Who embeds through this door wants sentences compared: the mean, unless the name asks for [CLS]."""
    name = inference.name
    return {name: "mean", f"{name}:mean": "mean", f"{name}:cls": "cls"}


def _known(models: Catalog, model: str) -> tuple[Inference, Pool]:
    loaded = models.loaded
    for inference in loaded:
        if pool := _pools(inference).get(model):
            return inference, pool
    raise UnknownModelError(model, [name for inference in loaded for name in _pools(inference)])


def _model(name: str) -> Model:
    return {"id": name, "object": "model", "created": 0, "owned_by": "sentiment-service"}
