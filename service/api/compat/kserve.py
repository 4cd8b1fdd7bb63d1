"""KServe's Open Inference Protocol v2, its JSON form: texts in as BYTES, labels and scores out, under /v2."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, Literal, NotRequired

import numpy as np
from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, BeforeValidator, FailFast, Field
from typing_extensions import TypedDict

from service import __version__
from service.api.compat.base import Failure, PeerRoute, failures, reply, whole
from service.api.errors import MediaTypeError
from service.api.guards import answer
from service.api.routes import Deadline, Service
from service.errors import InputError, RequestError, UnavailableError
from service.inference import Inference


class KServeRoute(PeerRoute):
    """Failures as the protocol has them: what the caller did wrong is a 400."""

    statuses = PeerRoute.statuses | dict.fromkeys((InputError, RequestError, MediaTypeError), HTTPStatus.BAD_REQUEST)


def _flat(value: Any) -> Any:
    """Tensor data comes flat or nested."""
    if not isinstance(value, list):
        return value
    return [item for part in value for item in (part if isinstance(part, list) else [part])]


class InputTensor(BaseModel):
    """Texts, of shape [n] or [n, 1]. Its name may be any: there is one input."""

    name: str
    shape: Annotated[list[int], FailFast(), Field(min_length=1)]
    datatype: Literal["BYTES"]
    data: Annotated[list[str], FailFast(), BeforeValidator(_flat)]

    def texts(self) -> list[str]:
        """The texts. Raises RequestError for a shape that is not theirs."""
        if self.shape not in ([len(self.data)], [len(self.data), 1]):
            raise RequestError(
                f"shape {self.shape} does not fit {len(self.data)} texts: [{len(self.data)}] does", param="inputs"
            )
        return self.data


class RequestedOutput(BaseModel):
    """An output to be given."""

    name: Literal["label", "scores"]


class InferRequest(BaseModel):
    """One tensor of texts, and the outputs wanted: all, unless named."""

    id: str | None = None
    inputs: Annotated[list[InputTensor], Field(min_length=1, max_length=1)]
    outputs: Annotated[list[RequestedOutput], FailFast()] = []


class TensorMetadata(TypedDict):
    """A tensor's name, type and shape; -1 is any size."""

    name: str
    datatype: str
    shape: list[int]


class OutputTensor(TensorMetadata):
    """A tensor with its values in row-major order."""

    data: list[str] | list[float]


class InferResponse(TypedDict):
    """The outputs."""

    model_name: str
    id: NotRequired[str]
    outputs: list[OutputTensor]


class ServerMetadata(TypedDict):
    """Which server this is."""

    name: str
    version: str
    extensions: list[str]


class ModelMetadata(TypedDict):
    """What the model takes and gives."""

    name: str
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]


class Live(TypedDict):
    """Whether the server runs."""

    live: bool


class Ready(TypedDict):
    """Whether the server takes work."""

    ready: bool


class ModelReady(Ready):
    """Whether a model takes work."""

    name: str


async def _served(model: str, service: Service) -> Inference:
    """The model of that name. Raises as Catalog.get does."""
    return service.models.get(model)


Served = Annotated[Inference, Depends(_served)]

router = APIRouter(prefix="/v2", route_class=KServeRoute, tags=["Open Inference Protocol"], responses=failures(Failure))


@router.get("")
async def server_metadata() -> ServerMetadata:
    """Which server this is."""
    return {"name": "sentiment-service", "version": __version__, "extensions": []}


@router.get("/health/live")
async def live() -> Live:
    """The process is alive."""
    return {"live": True}


@router.get("/health/ready")
async def ready(service: Service) -> Ready:
    """Every model is trusted and every worker is alive."""
    return _ready(service.not_ready())


@router.get("/models/{model}")
async def model_metadata(inference: Served) -> ModelMetadata:
    """What the model takes and gives."""
    labels = len(inference.manifest.labels)
    return {
        "name": inference.name,
        "platform": "onnx_onnxv1",
        "inputs": [{"name": "text", "datatype": "BYTES", "shape": [-1]}],
        "outputs": [
            {"name": "label", "datatype": "BYTES", "shape": [-1]},
            {"name": "scores", "datatype": "FP32", "shape": [-1, labels]},
        ],
    }


@router.get("/models/{model}/ready")
async def model_ready(inference: Served, service: Service) -> ModelReady:
    """The model is trusted and every worker is alive."""
    return {"name": inference.name, **_ready(service.no_workers())}


@router.post("/models/{model}/infer", response_model=InferResponse)
async def infer(request: Request, inference: Served, body: InferRequest, seconds: Deadline) -> Response:
    """Label each text, read in windows if it is long; the scores stand in the order of /info's labels.

    A regression's score is its value.
    """
    answers = whole(request, await answer(request, inference.classify(body.inputs[0].texts()), seconds))
    scores = np.stack([one.outputs for one in answers])
    outputs: list[OutputTensor] = [
        {"name": "label", "datatype": "BYTES", "shape": [len(answers)], "data": [one.label for one in answers]},
        {
            "name": "scores",
            "datatype": "FP32",
            "shape": list(scores.shape),
            "data": scores.ravel().round(6).tolist(),
        },
    ]
    wanted = {output.name for output in body.outputs} or {"label", "scores"}
    content: InferResponse = {
        "model_name": inference.name,
        "outputs": [output for output in outputs if output["name"] in wanted],
    }
    if body.id is not None:
        content["id"] = body.id
    return reply(content)


def _ready(reason: str | None) -> Ready:
    if reason:
        raise UnavailableError(reason)
    return {"ready": True}
