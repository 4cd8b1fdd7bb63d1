"""Who may ask: API keys, and keys of their own for administration. Pure ASGI, and in no request's way without keys."""

from __future__ import annotations

import hmac
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Request, Security
from fastapi.encoders import jsonable_encoder
from fastapi.security import APIKeyHeader, HTTPBearer
from pydantic import SecretStr
from starlette.types import ASGIApp, Receive, Scope, Send

from service.api.compat import refusal
from service.api.errors import ForbiddenError, UnauthorizedError
from service.errors import ServiceError
from service.logs import get

log = get(__name__)

HEALTH = ("/healthz", "/readyz")
"""Open whatever the settings say: who asks them has no key to send."""

CORS: dict[str, Any] = {
    "allow_methods": ["GET", "POST"],
    "allow_headers": ["authorization", "content-type", "x-api-key", "x-request-id", "x-request-timeout"],
    "expose_headers": ["retry-after", "server-timing", "x-request-id"],
}
"""What pages of the listed origins may send and read. No cookie is among it: there are none."""

LOOK_AGAIN = 1.0
"""Seconds for which a file of keys is not looked at again."""

_KEY = re.compile(r"[\x21-\x2b\x2d-\x7e]+")
"""What a header can carry, but for the comma, which stands between keys."""

bearer = HTTPBearer(auto_error=False, scheme_name="bearer", description="A key, as `Authorization: Bearer KEY`.")
api_key = APIKeyHeader(name="X-API-Key", auto_error=False, scheme_name="apiKey", description="A key by itself.")


class Keys:
    """Keys that open something: those given, and those of a file, which is read again when it changes.

    Only their SHA-256 is kept. Raises ServiceError when there is a source of keys without a key that can be sent.
    """

    def __init__(self, given: SecretStr | None = None, file: Path | None = None) -> None:
        self._given = () if given is None else _digests(given.get_secret_value(), "the setting")
        self._file = file
        self._state: tuple[int, int, int] | None = None
        self._looked = 0.0
        self._digests = self._given
        if file:
            try:
                self._read(file)
            except OSError as error:
                raise ServiceError(f"the keys' file cannot be read: {error.strerror}: {file}") from None

    def __bool__(self) -> bool:
        """Whether there are any; without, there is nothing to ask for."""
        return bool(self._digests)

    def admit(self, sent: Iterable[bytes]) -> bool:
        """Whether one of the keys sent is among them. Takes the same time whichever it is and however near it comes."""
        self._look()
        found = False
        for key in sent:
            digest = sha256(key).digest()
            for known in self._digests:
                found |= hmac.compare_digest(known, digest)
        return found

    def _look(self) -> None:
        if self._file is None or time.monotonic() - self._looked < LOOK_AGAIN:
            return
        try:
            self._read(self._file)
        except (OSError, ServiceError) as error:
            reason = error.message if isinstance(error, ServiceError) else error.strerror
            log.error("keys not read again: those read last stay", reason=reason)

    def _read(self, file: Path) -> None:
        """Read the file if it is not the one that was read last."""
        self._looked = time.monotonic()
        found = file.stat()
        state = (found.st_ino, found.st_mtime_ns, found.st_size)
        if state == self._state:
            return
        self._digests = self._given + _digests(file.read_text("utf-8", "replace"), "the keys' file")
        self._state = state
        log.info("keys read", keys=len(self._digests))


@dataclass(frozen=True)
class Access:
    """What opens the service, and what opens its administration too."""

    keys: Keys
    admin: Keys

    def admit(self, sent: list[bytes]) -> bool:
        """Whether a caller with these keys may ask. Every key is compared, whichever fits."""
        return self.keys.admit(sent) | self.admin.admit(sent)


class RequireKey:
    """Refuses who sends no key that fits, before anything of the body is read.

    `open_to_all` says where none is asked for; a path that ends in a slash stands for all that lies under it.
    """

    def __init__(self, app: ASGIApp, access: Access, open_to_all: Iterable[str]) -> None:
        self.app = app
        self.access = access
        self.paths = frozenset((*HEALTH, *open_to_all))
        self.folders = tuple(path for path in self.paths if path.endswith("/") and path != "/")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or self._open(scope["path"]) or self.access.admit(list(_sent(scope))):
            await self.app(scope, receive, send)
        else:
            await refusal(scope["path"], UnauthorizedError())(scope, receive, send)

    def _open(self, path: str) -> bool:
        return path in self.paths or path.startswith(self.folders)


def describe(app: FastAPI, open_to_all: Iterable[str]) -> None:
    """Say in an application's description where a key is asked for, and how it is sent."""
    plain = app.openapi

    def openapi() -> dict[str, Any]:
        described = plain()
        schemes = {scheme.scheme_name: scheme.model for scheme in (bearer, api_key)}
        described.setdefault("components", {})["securitySchemes"] = jsonable_encoder(schemes, exclude_none=True)
        described["security"] = [{name: []} for name in schemes]
        for path in {*HEALTH, *open_to_all} & described["paths"].keys():
            for operation in described["paths"][path].values():
                operation["security"] = []
        return described

    app.openapi = openapi  # type: ignore[method-assign]


async def require_admin(
    request: Request, _bearer: Annotated[object, Security(bearer)], _api_key: Annotated[object, Security(api_key)]
) -> None:
    """A dependency that lets only administrators pass.

    Raises ForbiddenError where no key of theirs is set, UnauthorizedError when none was sent.
    """
    admin: Keys = request.app.state.access.admin
    if not admin:
        raise ForbiddenError("administration is off: SENTIMENT_ADMIN_KEYS is not set", code="administration_off")
    if not admin.admit(_sent(request.scope)):
        raise UnauthorizedError("a key for administration is needed, as Authorization: Bearer KEY or X-API-Key: KEY")


def _sent(scope: Scope) -> Iterator[bytes]:
    """The keys a request carries, in either header."""
    for name, value in scope["headers"]:
        if name == b"x-api-key":
            yield value.strip()
        elif name == b"authorization" and value[:7].lower() == b"bearer ":
            yield value[7:].strip()


def _digests(text: str, source: str) -> tuple[bytes, ...]:
    """The hashes of keys that stand in a text, a comma or a line's end between them."""
    keys = [key for part in re.split(r"[,\r\n]", text) if (key := part.strip())]
    if not keys:
        raise ServiceError(f"{source} holds no key")
    if not all(_KEY.fullmatch(key) for key in keys):
        raise ServiceError(
            f"{source} holds a key that no header can carry: only visible ASCII characters may stand in it"
        )
    return tuple(sha256(key.encode()).digest() for key in keys)
