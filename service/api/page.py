"""The playground: one page and its assets, read once and served under headers that let it do nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path

from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException

WEB = Path(__file__).parents[1] / "web"

INDEX = "index.html"

PATHS = ("/", "/assets/")
"""The page, and the folder of what it loads."""

MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""Named here and not asked of the platform: its registry may call a script text/plain, which nosniff then blocks."""

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        # The browser itself refuses to parse a string as HTML or script: texts can only ever be shown as texts.
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)

HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    # Kept, but asked about each time: a new release shows at once, and what did not change costs a 304.
    "cache-control": "no-cache",
}


@dataclass(frozen=True)
class Asset:
    """One file of the page."""

    body: bytes
    media_type: str

    @cached_property
    def etag(self) -> str:
        """Names the content, so that it is the same on every replica of a release."""
        return f'"{sha256(self.body).hexdigest()[:32]}"'

    def response(self, request: Request) -> Response:
        """The file, or 304 to a caller that has it."""
        headers = {**HEADERS, "etag": self.etag}
        known = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
        if self.etag in known or known == ["*"]:
            return Response(status_code=304, headers=headers)
        return Response(self.body, headers=headers, media_type=self.media_type)


def router() -> APIRouter:
    """The page at / and what it loads under /assets/. Only files that lie in the folder now can ever be asked for."""
    assets = {path.name: Asset(path.read_bytes(), MEDIA_TYPES[path.suffix]) for path in sorted(WEB.iterdir())}
    index = assets.pop(INDEX)
    routes = APIRouter(include_in_schema=False)

    @routes.api_route("/", methods=["GET", "HEAD"])
    async def page(request: Request) -> Response:
        return index.response(request)

    @routes.api_route("/assets/{name}", methods=["GET", "HEAD"])
    async def asset(request: Request, name: str) -> Response:
        if name not in assets:
            raise HTTPException(404)
        return assets[name].response(request)

    return routes
