"""text-embeddings-inference's wire format: /predict, /embed, /info and /health, under /tei."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field, PlainValidator, StrictBool, WithJsonSchema, field_validator
from typing_extensions import TypedDict

from service import __version__
from service.api.compat.base import Numbers, PeerRoute, Prediction, failures, ranked, reply, rows, vectors, whole
from service.api.errors import BodyTooLargeError, MalformedError, MediaTypeError, TooSlowError, UnauthorizedError
from service.api.guards import answer
from service.api.routes import Chosen, Deadline, Service
from service.api.schemas import Inputs
from service.errors import (
    DeadlineError,
    EngineError,
    InputError,
    OverloadedError,
    RequestError,
    ServiceError,
    UnavailableError,
    UnknownModelError,
)
from service.inference import LongText

Kind = Literal["Backend", "Empty", "Overloaded", "Tokenizer", "Unhealthy", "Validation"]

KINDS: dict[type[ServiceError], Kind] = {
    InputError: "Tokenizer",
    RequestError: "Validation",
    UnknownModelError: "Validation",
    MalformedError: "Validation",
    MediaTypeError: "Validation",
    BodyTooLargeError: "Validation",
    TooSlowError: "Validation",
    UnauthorizedError: "Validation",
    OverloadedError: "Overloaded",
    UnavailableError: "Unhealthy",
    DeadlineError: "Backend",
    EngineError: "Backend",
}

TOO_MUCH = {"too_many_tokens", "text_too_long", "too_many_texts"}
"""Codes of what is too much for one request."""

NOTHING = {"no_texts", "empty_text"}
"""Codes of what holds nothing to read."""


class Failure(TypedDict):
    """What went wrong, and the kind of it."""

    error: str
    error_type: Kind


class TEIRoute(PeerRoute):
    """Failures as text-embeddings-inference tells them."""

    statuses = PeerRoute.statuses | {EngineError: HTTPStatus.FAILED_DEPENDENCY}

    @classmethod
    def status(cls, error: ServiceError) -> HTTPStatus:
        """The kind's own status, but for what is too much or nothing."""
        if error.code in TOO_MUCH:
            return HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        return HTTPStatus.BAD_REQUEST if error.code in NOTHING else super().status(error)

    @classmethod
    def body(cls, error: ServiceError) -> Mapping[str, object]:
        """A sentence and the kind of error."""
        kind = KINDS[type(error)]
        if error.code in TOO_MUCH:
            kind = "Validation"
        elif error.code in NOTHING:
            kind = "Empty"
        return Failure(error=error.message, error_type=kind)


class Sequences(NamedTuple):
    """What /predict is asked: one text, or a batch."""

    texts: list[str]
    batch: bool


def _sequences(value: Any) -> Sequences:
    batch = isinstance(value, list) and bool(value) and all(isinstance(item, list) for item in value)
    groups = value if batch else [[value] if isinstance(value, str) else value]
    if any(isinstance(group, list) and len(group) == 2 for group in groups):
        raise ValueError("a pair of texts is nothing that this model reads; a batch is [[first], [second]]")
    if any(not (isinstance(group, list) and len(group) == 1 and isinstance(group[0], str)) for group in groups):
        raise ValueError("must be a string, or a batch of them as [[first], [second], ...]")
    return Sequences([text for (text,) in groups], batch)


class Truncation(BaseModel):
    """What both operations say of a text longer than the model reads."""

    truncate: StrictBool | None = None
    truncation_direction: Annotated[
        Literal["right", "Right"], Field(description="What is left out is the end; leaving out the start is refused.")
    ] = "right"

    @property
    def long_text(self) -> LongText:
        """Truncating is for those who ask for it."""
        return "truncate" if self.truncate else "error"


class PredictRequest(Truncation):
    """Texts to label."""

    inputs: Annotated[
        Sequences,
        PlainValidator(_sequences),
        WithJsonSchema(
            {
                "description": "One text, or a batch: a list of lists of one text each.",
                "anyOf": [
                    {"type": "string"},
                    {"type": "array", "items": {"type": "array", "items": {"type": "string"}, "maxItems": 1}},
                ],
                "examples": ["I like you.", [["I like you."], ["I hate pineapples."]]],
            }
        ),
    ]
    raw_scores: StrictBool = False


class EmbedRequest(Truncation):
    """Texts to embed."""

    inputs: Inputs
    normalize: StrictBool = True
    dimensions: Annotated[int | None, Field(strict=True, description="Keep the first so many values.")] = None
    prompt_name: str | None = None

    @field_validator("prompt_name")
    @classmethod
    def _no_prompts(cls, value: str | None) -> None:
        if value is not None:
            raise ValueError("this model has no prompts")


class ClassifierModel(TypedDict):
    """The labels by number, and the numbers by label."""

    id2label: dict[str, str]
    label2id: dict[str, int]


class ModelType(TypedDict):
    """What the model is for."""

    classifier: ClassifierModel


class Info(TypedDict):
    """The model and the limits."""

    model_id: str
    model_sha: str | None
    model_dtype: str
    model_type: ModelType
    max_concurrent_requests: int
    max_input_length: int
    max_batch_tokens: int
    max_batch_requests: int
    max_client_batch_size: int
    auto_truncate: bool
    tokenization_workers: int
    version: str
    sha: str | None
    docker_label: str | None


router = APIRouter(prefix="/tei", route_class=TEIRoute, tags=["text-embeddings-inference"], responses=failures(Failure))


@router.post("/predict", response_model=list[Prediction] | list[list[Prediction]])
async def predict(request: Request, body: PredictRequest, inference: Chosen, seconds: Deadline) -> Response:
    """Label one text or a batch, every label with its score, best first."""
    work = inference.classify(body.inputs.texts, body.long_text)
    answers = whole(request, await answer(request, work, seconds))
    scores: Numbers = np.stack([one.outputs for one in answers])
    if body.raw_scores:
        scores = np.stack([one.logits for one in answers])
    found = ranked(inference.manifest.labels, scores)
    return reply(found if body.inputs.batch else found[0])


@router.post("/embed", response_model=list[list[float]])
async def embed(request: Request, body: EmbedRequest, inference: Chosen, seconds: Deadline) -> Response:
    """Turn each text into a vector: the mean over its tokens, of unit length unless told otherwise."""
    work = inference.embed(body.inputs, "mean", body.long_text, normalize=body.normalize, dimensions=body.dimensions)
    return reply(rows(vectors(whole(request, await answer(request, work, seconds))), 7))


@router.get("/info")
async def info(service: Service, inference: Chosen) -> Info:
    """The model and the limits. A text is run alone, so that a batch is as long as one text may be."""
    manifest, limits = inference.manifest, inference.limits
    labels = {str(number): label for number, label in enumerate(manifest.labels)}
    return {
        "model_id": inference.name,
        "model_sha": inference.digest,
        "model_dtype": manifest.quantization.classify,
        "model_type": {
            "classifier": {"id2label": labels, "label2id": {label: int(number) for number, label in labels.items()}}
        },
        "max_concurrent_requests": service.scheduler.capacity,
        "max_input_length": manifest.max_tokens,
        "max_batch_tokens": manifest.max_tokens,
        "max_batch_requests": 1,
        "max_client_batch_size": limits.texts,
        "auto_truncate": False,
        "tokenization_workers": service.scheduler.size,
        "version": __version__,
        "sha": None,
        "docker_label": None,
    }


@router.get("/health", response_class=Response)
async def health(service: Service) -> Response:
    """Nothing, when all is well."""
    reason = service.not_ready()
    if reason:
        raise UnavailableError(reason)
    return Response()
