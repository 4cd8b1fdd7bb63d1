"""Loading, replacing and unloading models while the service runs, for those who hold a key for it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from fastapi import Path as PathParameter
from pydantic import Field

from service.api import schemas
from service.api.access import require_admin
from service.api.routes import ERRORS, NoQuery, Service, described
from service.artifact import NAME
from service.catalog import Catalog
from service.errors import ArtifactError, RequestError

Name = Annotated[str, PathParameter(pattern=f"^{NAME.pattern}$", description="What the model is to be asked by.")]

REFUSALS = described(
    {
        401: "No key for administration was sent.",
        403: "Administration is off.",
        404: "There is no such model.",
        409: "Another model is being loaded, or this one is the default.",
    }
)

router = APIRouter(
    prefix="/admin",
    tags=["Administration"],
    dependencies=[Depends(require_admin)],
    responses={**REFUSALS, **{status: ERRORS[status] for status in (400, 413, 415, 422, 500)}},
)


class LoadRequest(schemas.Fields):
    """Which model."""

    path: Annotated[
        str, Field(min_length=1, max_length=4096, description="Folder of the model: in SENTIMENT_MODELS_DIR.")
    ]


class DefaultRequest(schemas.Fields):
    """Which model answers who names none."""

    model: str


@router.put("/models/{name}")
async def load_model(
    name: Name, body: LoadRequest, _query: NoQuery, service: Service, request: Request
) -> schemas.Models:
    """Load a model under a name. One that has the name is replaced: it answers until the new one can, and finishes.

    It is checked as at the start, its golden texts included; one that is refused changes nothing.
    """
    await asyncio.to_thread(_load, service.models, name, request.app.state.models_dir, body.path)
    return schemas.models(service.models)


@router.delete("/models/{name}", status_code=204, response_class=Response)
async def unload_model(name: Name, _query: NoQuery, service: Service) -> Response:
    """Unload a model: whoever asks for it from now on gets a 404; what was asked before is answered."""
    service.models.unload(name)
    return Response(status_code=204)


@router.put("/default")
async def set_default(body: DefaultRequest, _query: NoQuery, service: Service) -> schemas.Models:
    """Make a loaded model the one that answers who names none."""
    service.models.set_default(body.model)
    return schemas.models(service.models)


def _load(models: Catalog, name: str, root: Path | None, path: str) -> None:
    try:
        models.load(name, _inside(root, path))
    except ArtifactError as error:
        raise RequestError(error.message, code=error.code, param="path") from error


def _inside(root: Path | None, path: str) -> Path:
    """The folder meant, all links in it followed. Raises RequestError if it or a file of it lies outside of `root`."""
    if root is None:
        raise RequestError(
            "SENTIMENT_MODELS_DIR is not set: no model can be loaded at run time", code="path_refused", param="path"
        )
    try:
        within = root.resolve(strict=True)
        folder = (within / path).resolve(strict=True)
        inside = all(place.resolve().is_relative_to(within) for place in (folder, *folder.iterdir()))
    except (OSError, RuntimeError, ValueError):  # no folder, a circle of links, a NUL
        inside = False
    if not inside:
        # Whether it exists elsewhere is nobody's business.
        raise RequestError("path is not a folder of a model in SENTIMENT_MODELS_DIR", code="path_refused", param="path")
    return folder
