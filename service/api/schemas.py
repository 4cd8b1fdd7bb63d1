"""The wire format: what a request may hold, and what an answer looks like."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema
from typing_extensions import TypedDict

from service.errors import ServiceError
from service.inference import Classification, Embedding


def _text(value: Any) -> str:
    # pydantic's own str refuses lone surrogates, which would fail the whole list: here they are one text's error.
    if not isinstance(value, str):
        raise ValueError("must hold strings alone")
    return value


def _inputs(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        raise ValueError("must be a string or a list of strings")
    return [_text(item) for item in value]


Inputs = Annotated[
    list[str],
    PlainValidator(_inputs),
    WithJsonSchema(
        {
            "title": "Inputs",
            "description": "One text, or a list of texts.",
            "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}],
            "examples": ["What a lovely day!", ["What a lovely day!", "The train was late again."]],
        }
    ),
]


class ClassifyRequest(BaseModel):
    """Texts to label."""

    model_config = ConfigDict(extra="forbid")

    inputs: Inputs
    top_k: Annotated[int | None, Field(strict=True, ge=1, description="Give only the most probable labels.")] = None
    raw_scores: Annotated[bool, Field(strict=True, description="Give the logits too.")] = False


class EmbedRequest(BaseModel):
    """Texts to embed."""

    model_config = ConfigDict(extra="forbid")

    inputs: Inputs


class NoQuery(BaseModel):
    """A route without query parameters: any is an error, since a misspelt one must not pass in silence."""

    model_config = ConfigDict(extra="forbid")


class EmbedQuery(BaseModel):
    """How vectors are made."""

    model_config = ConfigDict(extra="forbid")

    pool: Annotated[
        Literal["cls", "mean"],
        Field(description="`cls`: the last hidden state of [CLS]; `mean`: the mean over all tokens."),
    ] = "cls"
    normalize: Annotated[bool, Field(description="Scale each vector to unit length.")] = False
    dimensions: Annotated[int | None, Field(ge=1, description="Keep the first so many values.")] = None


class Error(TypedDict):
    """What went wrong: a stable code, a sentence, and the parameter at fault if there is one."""

    code: str
    message: str
    param: NotRequired[str]


class ErrorBody(TypedDict):
    """The one shape of every error."""

    error: Error


class Usage(TypedDict):
    """What was read to answer: texts that succeeded, and their tokens."""

    texts: int
    tokens: int


class ClassifyResult(TypedDict):
    """One text's answer."""

    label: str
    score: float
    scores: dict[str, float]
    valence: float
    tokens: int
    truncated: bool
    tokens_left_out: NotRequired[int]
    logits: NotRequired[dict[str, float]]


class ClassifyResponse(TypedDict):
    """The answers, in the order of the texts."""

    model: str
    results: list[ClassifyResult | ErrorBody]
    usage: Usage


class EmbedResponse(TypedDict):
    """The vectors, in the order of the texts."""

    model: str
    pool: str
    dimensions: int
    embeddings: list[list[float] | ErrorBody]
    usage: Usage


class LimitsInfo(TypedDict):
    """What one request may ask for."""

    max_texts: int
    max_characters: int
    max_body_bytes: int
    max_tokens: int


class InfoResponse(TypedDict):
    """The service and its model."""

    version: str
    model: str
    labels: list[str]
    pools: list[str]
    dimensions: int
    temperature: float
    quantization: dict[str, str]
    workers: int
    limits: LimitsInfo


class Health(TypedDict):
    """Alive or ready."""

    status: str


def error_body(error: ServiceError) -> ErrorBody:
    """An error as it goes over the wire."""
    body: Error = {"code": error.code, "message": error.message}
    if error.param is not None:
        body["param"] = error.param
    return {"error": body}


def classify_result(
    answer: Classification | ServiceError,
    labels: tuple[str, ...],
    *,
    top_k: int | None = None,
    raw_scores: bool = False,
) -> ClassifyResult | ErrorBody:
    """One text's answer as it goes over the wire, six decimals each; with top_k the most probable labels first."""
    if isinstance(answer, ServiceError):
        return error_body(answer)
    scores = dict(zip(labels, (round(p, 6) for p in answer.probabilities.tolist()), strict=True))
    kept = scores
    if top_k is not None:
        kept = dict(sorted(scores.items(), key=lambda item: -item[1])[:top_k])
    result: ClassifyResult = {
        "label": answer.label,
        "score": scores[answer.label],
        "scores": kept,
        "valence": round(answer.valence, 6),
        "tokens": answer.tokens,
        "truncated": answer.left_out > 0,
    }
    if answer.left_out:
        result["tokens_left_out"] = answer.left_out
    if raw_scores:
        logits = dict(zip(labels, answer.logits.astype(float).round(6).tolist(), strict=True))
        result["logits"] = {label: logits[label] for label in kept}
    return result


def embedding_values(answer: Embedding | ServiceError) -> list[float] | ErrorBody:
    """One vector as it goes over the wire: seven decimals hold what float32 does."""
    if isinstance(answer, ServiceError):
        return error_body(answer)
    values: list[float] = answer.vector.astype(float).round(7).tolist()
    return values
