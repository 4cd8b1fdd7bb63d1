"""The wire format: what a request may hold, and what an answer looks like."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema, model_validator
from typing_extensions import TypedDict

from service.artifact import Head
from service.catalog import Catalog, Entry
from service.errors import ServiceError
from service.inference import Classification, Detail, Embedding, Explanation, LongText, Part, Pool, Scores

Encoding = Literal["float", "base64"]


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


LONG_TEXT = (
    "A text longer than the model reads: `window` reads all of it in overlapping windows, `truncate` its start alone, "
    "`error` refuses it."
)


class Fields(BaseModel):
    """Fields of a request's body or query. Any other is an error, since a misspelt one must not pass in silence.

    It is said of the first alone: pydantic would list each of 100,000, and nothing else be answered meanwhile.
    """

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _one_unknown(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        known = {name: given for name, given in value.items() if name in cls.model_fields}
        unknown = next((name for name in value if name not in cls.model_fields), None)
        return known if unknown is None else {**known, unknown: value[unknown]}


class ClassifyRequest(Fields):
    """Texts to label."""

    inputs: Inputs
    top_k: Annotated[int | None, Field(strict=True, ge=1, description="Give only the most probable labels.")] = None
    raw_scores: Annotated[bool, Field(strict=True, description="Give the logits too.")] = False
    min_score: Annotated[
        float | None, Field(gt=0, le=1, description="Give no label to a text whose best one is less probable.")
    ] = None


class TextsRequest(Fields):
    """Texts alone."""

    inputs: Inputs


MODEL = "Which of the models that are loaded answers; unset: the default."


class Named(BaseModel):
    """Which model is asked. What else a query may hold is not said."""

    model: Annotated[str | None, Field(max_length=256, description=MODEL)] = None


class ModelQuery(Fields, Named):
    """Which model is asked, and nothing else."""


class ClassifyQuery(ModelQuery):
    """How a text longer than the model reads is taken, and what is told of its parts."""

    long_text: Annotated[LongText, Field(description=LONG_TEXT)] = "window"
    detail: Annotated[
        Detail | None, Field(description="Give the scores of each window, or of each sentence, with its offsets.")
    ] = None


class NoQuery(Fields):
    """A route without query parameters: any is an error, since a misspelt one must not pass in silence."""


class EmbedQuery(ModelQuery):
    """How vectors are made."""

    pool: Annotated[
        Pool,
        Field(
            description="`cls`: the last hidden state of [CLS]; `mean`: the mean over all tokens; `max`: the largest "
            "value over all tokens; `cls,mean`: both, one behind the other."
        ),
    ] = "cls"
    long_text: Annotated[LongText, Field(description=LONG_TEXT)] = "window"
    normalize: Annotated[bool, Field(description="Scale each vector to unit length.")] = False
    dimensions: Annotated[int | None, Field(ge=1, description="Keep the first so many values.")] = None
    encoding: Annotated[
        Encoding, Field(description="`float`: numbers; `base64`: little-endian float32 in base64, half as long.")
    ] = "float"


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


class ScoresResult(TypedDict):
    """A label with its probability, that of every label kept, and a valence in [-1, 1] where the labels have one.

    No label if it abstained. A model whose labels do not exclude each other gives all `labels` that hold, and with
    `label` the most probable. A regression gives a `value` instead: no label, no score, no scores.
    """

    label: str | None
    score: float | None
    scores: dict[str, float]
    valence: float | None
    labels: NotRequired[list[str]]
    value: NotRequired[float]
    abstained: NotRequired[bool]
    logits: NotRequired[dict[str, float]]


class PartResult(ScoresResult):
    """The scores of a part of a text: its code points `start` to `end`."""

    start: int
    end: int


class ClassifyResult(ScoresResult):
    """One text's answer, and how much of the text was read for it."""

    tokens: int
    windows: int
    truncated: bool
    tokens_left_out: NotRequired[int]
    window_scores: NotRequired[list[PartResult]]
    sentences: NotRequired[list[PartResult]]


class ClassifyResponse(TypedDict):
    """The answers, in the order of the texts."""

    model: str
    results: list[ClassifyResult | ErrorBody]
    usage: Usage


class WordResult(TypedDict):
    """A word of the text and what masking it takes from the label's probability."""

    word: str
    start: int
    end: int
    effect: float


class ExplainResult(ScoresResult):
    """One text's answer with the effect of each of its words."""

    tokens: int
    words: list[WordResult]


class ExplainResponse(TypedDict):
    """The explanations, in the order of the texts."""

    model: str
    results: list[ExplainResult | ErrorBody]
    usage: Usage


class EmbedResponse(TypedDict):
    """The vectors, in the order of the texts."""

    model: str
    pool: str
    dimensions: int
    embeddings: list[list[float] | str | ErrorBody]
    usage: Usage


class LimitsInfo(TypedDict):
    """What one request may ask for."""

    max_texts: int
    max_characters: int
    max_windows: int
    max_sentences: int
    max_words: int
    max_body_bytes: int
    max_tokens: int


class InfoResponse(TypedDict):
    """The service and a model of it."""

    version: str
    model: str
    digest: str
    labels: list[str]
    head: Head
    pools: list[str]
    dimensions: int
    temperature: float
    quantization: dict[str, str]
    workers: int
    limits: LimitsInfo


class ModelEntry(TypedDict):
    """A model: what it gives if it is ready, the reason if it failed. `digest` tells versions of a model apart."""

    name: str
    state: Literal["ready", "loading", "failed"]
    default: bool
    digest: NotRequired[str]
    labels: NotRequired[list[str]]
    head: NotRequired[Head]
    pools: NotRequired[list[str]]
    dimensions: NotRequired[int]
    max_tokens: NotRequired[int]
    reason: NotRequired[str]


class Models(TypedDict):
    """Every model there is."""

    models: list[ModelEntry]


class Health(TypedDict):
    """Alive or ready."""

    status: str


def models(catalog: Catalog) -> Models:
    """The models as they go over the wire."""
    return {"models": [_entry(entry, default=entry.name == catalog.default) for entry in catalog.entries]}


def _entry(entry: Entry, *, default: bool) -> ModelEntry:
    shown: ModelEntry = {"name": entry.name, "state": entry.state, "default": default}
    if entry.reason is not None:
        shown["reason"] = entry.reason
    if entry.model is not None:
        manifest = entry.model.manifest
        shown["digest"] = entry.model.digest
        shown["labels"] = list(manifest.labels)
        shown["head"] = manifest.head
        shown["pools"] = list(entry.model.pools)
        shown["dimensions"] = manifest.hidden_size
        shown["max_tokens"] = manifest.max_tokens
    return shown


def error_body(error: ServiceError) -> ErrorBody:
    """An error as it goes over the wire."""
    body: Error = {"code": error.code, "message": error.message}
    if error.param is not None:
        body["param"] = error.param
    return {"error": body}


@dataclass(frozen=True, slots=True)
class Shown:
    """How scores are shown: the `top_k` most probable labels, logits too, no label below `min_score`."""

    labels: tuple[str, ...]
    top_k: int | None = None
    raw_scores: bool = False
    min_score: float | None = None

    def scores(self, answer: Scores) -> ScoresResult:
        """Scores as they go over the wire, six decimals each; with top_k the most probable labels first."""
        if answer.value is not None:
            return self._value(answer.value)
        scores = dict(zip(self.labels, (round(p, 6) for p in answer.probabilities.tolist()), strict=True))
        kept = sorted(scores, key=lambda label: -scores[label])[: self.top_k] if self.top_k else self.labels
        result: ScoresResult = {
            "label": answer.label,
            "score": scores[answer.label],
            "scores": {label: scores[label] for label in kept},
            "valence": None if answer.valence is None else round(answer.valence, 6),
        }
        if answer.labels is not None:
            result["labels"] = list(answer.labels)
        if self.min_score is not None:
            result["abstained"] = answer.score < self.min_score
            result["label"] = None if result["abstained"] else answer.label
        if self.raw_scores:
            logits = dict(zip(self.labels, answer.logits.astype(float).round(6).tolist(), strict=True))
            result["logits"] = {label: logits[label] for label in kept}
        return result

    def _value(self, value: float) -> ScoresResult:
        value = round(value, 6)
        result: ScoresResult = {"label": None, "score": None, "scores": {}, "valence": None, "value": value}
        if self.raw_scores:
            result["logits"] = {self.labels[0]: value}
        return result

    def parts(self, parts: tuple[Part, ...]) -> list[PartResult]:
        """The scores of a text's parts as they go over the wire."""
        return [{**self.scores(part), "start": part.start, "end": part.end} for part in parts]


def classify_result(
    answer: Classification | ServiceError, shown: Shown, detail: Detail | None = None
) -> ClassifyResult | ErrorBody:
    """One text's answer as it goes over the wire."""
    if isinstance(answer, ServiceError):
        return error_body(answer)
    result: ClassifyResult = {
        **shown.scores(answer),  # type: ignore[typeddict-item] # it holds no key but its own
        "tokens": answer.tokens,
        "windows": answer.windows,
        "truncated": answer.left_out > 0,
    }
    if answer.left_out:
        result["tokens_left_out"] = answer.left_out
    if detail == "windows":
        result["window_scores"] = shown.parts(answer.parts)
    elif detail == "sentences":
        result["sentences"] = shown.parts(answer.parts)
    return result


def explain_result(answer: Explanation | ServiceError, text: str, shown: Shown) -> ExplainResult | ErrorBody:
    """One text's explanation as it goes over the wire."""
    if isinstance(answer, ServiceError):
        return error_body(answer)
    words: list[WordResult] = [
        {"word": text[word.start : word.end], "start": word.start, "end": word.end, "effect": round(word.effect, 6)}
        for word in answer.words
    ]
    return {**shown.scores(answer), "tokens": answer.tokens, "words": words}


def embedding_values(answer: Embedding | ServiceError, encoding: Encoding = "float") -> list[float] | str | ErrorBody:
    """One text's vector as it goes over the wire."""
    return error_body(answer) if isinstance(answer, ServiceError) else vector_values(answer, encoding)


def vector_values(answer: Embedding, encoding: Encoding = "float") -> list[float] | str:
    """A vector as numbers, seven decimals of which hold what float32 does, or exactly, in base64."""
    if encoding == "base64":
        return b64encode(answer.vector.astype("<f4").tobytes()).decode()
    values: list[float] = answer.vector.astype(float).round(7).tolist()
    return values
