"""Hugging Face's inference API as `huggingface_hub.InferenceClient` speaks it to a URL: one for each task."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from service.api.compat.base import Failure, Numbers, PeerRoute, Prediction, failures, ranked, reply, whole
from service.api.compat.tei import EmbedRequest, embed
from service.api.guards import answer
from service.api.routes import Chosen, Deadline
from service.api.schemas import Inputs
from service.artifact import Head
from service.heads import sigmoid, softmax
from service.inference import Classification, LongText

Function = Literal["softmax", "sigmoid", "none"]


class ClassificationParameters(BaseModel):
    """How scores are made and how many are told: as the model is meant to, unless said; `none` gives the logits."""

    function_to_apply: Function | None = None
    top_k: Annotated[int | None, Field(strict=True, ge=1)] = None


class ClassificationRequest(BaseModel):
    """Texts to label."""

    inputs: Inputs
    parameters: ClassificationParameters = ClassificationParameters()


class ExtractionRequest(EmbedRequest):
    """Texts to embed."""

    encoding_format: Literal["float"] = "float"

    @property
    def long_text(self) -> LongText:
        """Unlike the server behind it, the API has no rule for those who do not say: nothing is left out."""
        return "window" if self.truncate is None else super().long_text


router = APIRouter(prefix="/hf", route_class=PeerRoute, tags=["Hugging Face"], responses=failures(Failure))


@router.post("/text-classification", response_model=list[list[Prediction]])
async def text_classification(
    request: Request, body: ClassificationRequest, inference: Chosen, seconds: Deadline
) -> Response:
    """Label each text, every label with its score, best first."""
    answers = whole(request, await answer(request, inference.classify(body.inputs), seconds))
    scores = _scores(answers, inference.manifest.head, body.parameters.function_to_apply)
    return reply(ranked(inference.manifest.labels, scores, body.parameters.top_k))


@router.post("/feature-extraction", response_model=list[list[float]])
async def feature_extraction(
    request: Request, body: ExtractionRequest, inference: Chosen, seconds: Deadline
) -> Response:
    """Turn each text into a vector: the mean over its tokens, of unit length unless told otherwise."""
    return await embed(request, body, inference, seconds)


def _scores(answers: list[Classification], head: Head, function: Function | None) -> Numbers:
    if function in (None, head):
        return np.stack([one.outputs for one in answers])
    logits = np.stack([one.logits for one in answers])
    if function == "softmax":
        return softmax(logits, 1.0)
    return logits if function == "none" else sigmoid(logits)
