"""The routes: read a request, ask for the answer, write it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic_core import to_json

from service import __version__
from service.api import schemas
from service.api.direct import DirectRoute
from service.api.guards import answer, deadline
from service.api.state import State, chosen, state
from service.errors import RequestError, ServiceError, UnavailableError
from service.inference import Inference

Service = Annotated[State, Depends(state)]
Chosen = Annotated[Inference, Depends(chosen)]
Deadline = Annotated[float, Depends(deadline)]
NoQuery = Annotated[schemas.NoQuery, Query()]
ModelQuery = Annotated[schemas.ModelQuery, Query()]


def described(errors: Mapping[int, str]) -> dict[int | str, dict[str, Any]]:
    """Statuses of errors and what each means, as the description of the interface has them."""
    return {status: {"model": schemas.ErrorBody, "description": meaning} for status, meaning in errors.items()}


ERRORS = described(
    {
        400: "The body is not JSON.",
        404: "The model is not loaded.",
        413: "The body is larger than allowed.",
        415: "The body is not application/json in UTF-8.",
        422: "The request is wrong, or none of its texts could be read.",
        429: "The queue is full; Retry-After says when to come back.",
        500: "The service failed.",
        503: "The service is starting, stopping, or lost its workers.",
        504: "The request took longer than allowed.",
    }
)
UNKNOWN_QUERY: dict[int | str, dict[str, Any]] = {422: ERRORS[422]}

router = APIRouter(route_class=DirectRoute)
metrics_router = APIRouter()


@router.post("/classify", response_model=schemas.ClassifyResponse, responses=ERRORS)
async def classify(
    request: Request,
    body: schemas.ClassifyRequest,
    query: Annotated[schemas.ClassifyQuery, Query()],
    service: Service,
    seconds: Deadline,
) -> Response:
    """Label each text, with calibrated probabilities and, where the labels are moods, a valence in [-1, 1]."""
    model = service.models.get(query.model)
    if model.manifest.head == "regression" and (body.top_k or body.min_score):
        raise RequestError(f"{model.name} gives a value and no labels: top_k and min_score choose among labels")
    work = model.classify(body.inputs, query.long_text, query.detail)
    answers = await answer(request, work, seconds)
    shown = schemas.Shown(model.manifest.labels, body.top_k, body.raw_scores, body.min_score)
    return _json(
        {
            "model": model.name,
            "results": [schemas.classify_result(one, shown, query.detail) for one in answers],
            "usage": _usage(request, answers),
        }
    )


@router.post("/embed", response_model=schemas.EmbedResponse, responses=ERRORS)
async def embed(
    request: Request,
    body: schemas.TextsRequest,
    query: Annotated[schemas.EmbedQuery, Query()],
    service: Service,
    seconds: Deadline,
) -> Response:
    """Turn each text into a vector: the raw last hidden state of [CLS], or the mean or maximum over its tokens."""
    model = service.models.get(query.model)
    work = model.embed(body.inputs, query.pool, query.long_text, normalize=query.normalize, dimensions=query.dimensions)
    answers = await answer(request, work, seconds)
    return _json(
        {
            "model": model.name,
            "pool": query.pool,
            "dimensions": query.dimensions or model.width(query.pool),
            "embeddings": [schemas.embedding_values(one, query.encoding) for one in answers],
            "usage": _usage(request, answers),
        }
    )


@router.post("/explain", response_model=schemas.ExplainResponse, responses=ERRORS)
async def explain(
    request: Request, body: schemas.TextsRequest, query: ModelQuery, service: Service, seconds: Deadline
) -> Response:
    """Label each text and say which words carried the label: what masking each one takes from its probability."""
    model = service.models.get(query.model)
    answers = await answer(request, model.explain(body.inputs), seconds)
    shown = schemas.Shown(model.manifest.labels)
    pairs = zip(answers, body.inputs, strict=True)
    return _json(
        {
            "model": model.name,
            "results": [schemas.explain_result(one, text, shown) for one, text in pairs],
            "usage": _usage(request, answers),
        }
    )


@router.get("/info", responses={**UNKNOWN_QUERY, 404: ERRORS[404]})
async def info(query: ModelQuery, service: Service) -> schemas.InfoResponse:
    """The service's version, a model of it and its limits."""
    model = service.models.get(query.model)
    manifest, limits = model.manifest, model.limits
    return {
        "version": __version__,
        "model": model.name,
        "digest": model.digest,
        "labels": list(manifest.labels),
        "head": manifest.head,
        "pools": list(model.pools),
        "dimensions": manifest.hidden_size,
        "temperature": manifest.temperature,
        "quantization": manifest.quantization.model_dump(),
        "workers": service.scheduler.size,
        "limits": {
            "max_texts": limits.texts,
            "max_characters": limits.characters,
            "max_windows": limits.windows,
            "max_sentences": limits.sentences,
            "max_words": limits.words,
            "max_body_bytes": service.max_body_bytes,
            "max_tokens": manifest.max_tokens,
        },
    }


@router.get("/models", responses=UNKNOWN_QUERY)
async def models(_query: NoQuery, service: Service) -> schemas.Models:
    """Every model by name: whether it is ready, which is the default, its labels, and its digest."""
    return schemas.models(service.models)


@router.get("/healthz", responses=UNKNOWN_QUERY)
async def healthz(_query: NoQuery) -> schemas.Health:
    """The process is alive. Says nothing of whether it can take work: that is /readyz."""
    return {"status": "alive"}


@router.get("/readyz", responses={**UNKNOWN_QUERY, 503: ERRORS[503]})
async def readyz(_query: NoQuery, service: Service) -> schemas.Health:
    """Every model's checksums are right, its golden texts are answered right, every worker and process is alive."""
    reason = await service.none_ready()
    if reason:
        raise UnavailableError(reason, code="not_ready")
    return {"status": "ready"}


@metrics_router.get(
    "/metrics", response_class=Response, responses={**UNKNOWN_QUERY, 200: {"content": {"text/plain": {}}}}
)
async def metrics(_query: NoQuery, service: Service) -> Response:
    """Every metric in Prometheus' text format."""
    return Response(await service.render_metrics(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _usage(request: Request, answers: Sequence[Any]) -> schemas.Usage:
    """What was read. Raises the first text's error when no text could be answered."""
    read = [one for one in answers if not isinstance(one, ServiceError)]
    if not read:
        first: ServiceError = answers[0]
        first.param = "inputs" if len(answers) == 1 else "inputs.0"
        raise first
    usage: schemas.Usage = {"texts": len(read), "tokens": sum(one.tokens for one in read)}
    request.state.counts = usage
    return usage


def _json(content: Mapping[str, Any]) -> Response:
    return Response(to_json(content), media_type="application/json")
