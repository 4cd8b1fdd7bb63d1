"""Who may ask: with keys set, nobody but who sends one; health is open; a key stands nowhere it could be read."""

from __future__ import annotations

import hmac
from pathlib import Path
from typing import Annotated

import pytest
from fastapi import Depends
from fastapi.routing import iter_route_contexts
from pydantic import SecretStr, ValidationError
from starlette.testclient import TestClient
from typer.testing import CliRunner

from service.api import access
from service.api.access import HEALTH, Keys, require_admin
from service.api.app import create_app
from service.cli import app as cli
from service.errors import ServiceError
from service.settings import Settings
from tests.service.api.conftest import TINY, Start

OLD, NEW, ADMIN = "old-key-8c1f", "new-key-77aa", "admin-key-d00d"
TEXT = {"inputs": "good"}
REFUSED = {
    "error": {
        "code": "invalid_api_key",
        "message": "a key is needed, as Authorization: Bearer KEY or X-API-Key: KEY",
    }
}


@pytest.fixture
def closed(start: Start) -> TestClient:
    return start(api_keys=f"{OLD}, {NEW}\n")


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@pytest.mark.parametrize("key", [OLD, NEW])
@pytest.mark.parametrize("name", ["Bearer", "bearer", "X-API-Key"])
def test_each_key_opens_in_either_header(closed: TestClient, key: str, name: str) -> None:
    headers = {name: key} if name == "X-API-Key" else {"authorization": f"{name} {key}"}
    assert closed.post("/classify", json=TEXT, headers=headers).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        bearer("wrong"),
        bearer(""),
        bearer(OLD[:-1]),
        bearer(f"{OLD}x"),
        bearer(f"{OLD}, {NEW}"),
        bearer(OLD.upper()),
        {"authorization": OLD},
        {"authorization": f"Basic {OLD}"},
        {"x-api-key": ""},
        {"x-api-key": f"Bearer {OLD}"},
        {"api-key": OLD},
        {"cookie": f"x-api-key={OLD}"},
        {"x-api-key": "\u00e9".encode("latin-1")},
    ],
    ids=str,
)
def test_anything_else_is_refused_in_the_one_shape(closed: TestClient, headers: dict[str, str]) -> None:
    answer = closed.post("/classify", json=TEXT, headers=headers)
    assert (answer.status_code, answer.json()) == (401, REFUSED)
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.headers["x-request-id"]


def test_a_key_in_the_query_opens_nothing(closed: TestClient) -> None:
    """It would stand in the logs of every proxy on the way."""
    assert closed.get(f"/info?api_key={OLD}&x-api-key={OLD}").status_code == 401


def test_with_keys_only_health_and_the_page_are_open(closed: TestClient) -> None:
    for path in HEALTH:
        assert closed.get(path).status_code == 200
    paths = {route.path for route in iter_route_contexts(closed.app.routes) if route.path}  # type: ignore[attr-defined]
    assert {"/classify", "/metrics", "/openapi.json", "/docs", "/v1/embeddings", "/tei/health"} <= paths
    for path in [*sorted(paths - {*HEALTH, "/", "/assets/{name}"}), "/nowhere", "/healthz/", "/assets"]:
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"):
            assert closed.request(method, path).status_code == 401, (method, path)


def test_without_keys_nothing_is_asked_for(start: Start) -> None:
    client = start()
    assert client.post("/classify", json=TEXT, headers=bearer("anything")).status_code == 200
    assert client.get("/metrics").status_code == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (
            "/v1/embeddings",
            {
                "error": {
                    "message": REFUSED["error"]["message"],
                    "type": "invalid_request_error",
                    "param": None,
                    "code": "invalid_api_key",
                }
            },
        ),
        ("/hf/text-classification", {"error": REFUSED["error"]["message"]}),
        ("/tei/embed", {"error": REFUSED["error"]["message"], "error_type": "Validation"}),
        ("/v2/models/tiny/infer", {"error": REFUSED["error"]["message"]}),
    ],
)
def test_a_peer_s_route_refuses_in_its_own_shape(closed: TestClient, path: str, body: object) -> None:
    answer = closed.post(path, json={})
    assert (answer.status_code, answer.json()) == (401, body)
    assert answer.headers["www-authenticate"] == "Bearer"


def test_every_key_is_compared_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that neither which key fits nor how much of it was guessed can be told from the time it takes."""
    compared: list[tuple[bytes, bytes]] = []
    real = hmac.compare_digest

    def counted(known: bytes, given: bytes) -> bool:
        compared.append((known, given))
        return real(known, given)

    monkeypatch.setattr(hmac, "compare_digest", counted)
    keys = Keys(SecretStr("one,two,three"))
    for sent, found in (("one", True), ("three", True), ("four", False)):
        compared.clear()
        assert keys.admit([sent.encode()]) is found
        assert len(compared) == 3
        assert all(len(known) == len(given) == 32 for known, given in compared)


class Clock:
    """Time that moves when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


def test_keys_are_rotated_by_changing_the_file(tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(access, "time", clock)
    file = tmp_path / "keys"
    file.write_text(f"{OLD}\n")
    client = start(api_keys_file=file, api_keys="given-key")

    def status(key: str) -> int:
        clock.now += access.LOOK_AGAIN
        return client.get("/info", headers=bearer(key)).status_code

    assert (status(OLD), status(NEW), status("given-key")) == (200, 401, 200)
    replace(file, f"{OLD}\r\n\r\n{NEW}\r\n")
    assert (status(OLD), status(NEW), status("given-key")) == (200, 200, 200)
    replace(file, NEW)
    assert (status(OLD), status(NEW), status("given-key")) == (401, 200, 200)


def replace(file: Path, text: str) -> None:
    """As a mounted secret changes: another file in its place."""
    other = file.with_suffix(".new")
    other.write_text(text)
    other.replace(file)


@pytest.mark.parametrize("broken", [None, "", "\n\n", "with space in it"])
def test_a_file_that_cannot_be_used_any_more_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str | None
) -> None:
    clock = Clock()
    monkeypatch.setattr(access, "time", clock)
    file = tmp_path / "keys"
    file.write_text(OLD)
    keys = Keys(file=file)
    file.unlink() if broken is None else replace(file, broken)
    clock.now += access.LOOK_AGAIN
    assert keys.admit([OLD.encode()])
    assert not keys.admit([b""])
    file.write_text(NEW)
    clock.now += access.LOOK_AGAIN
    assert keys.admit([NEW.encode()])
    assert not keys.admit([OLD.encode()])


@pytest.mark.parametrize(
    "settings",
    [{"api_keys": ","}, {"api_keys": " \n "}, {"api_keys": "two words"}, {"admin_keys": "\u00e9"}, {"admin_keys": ","}],
)
def test_keys_that_would_open_nothing_are_refused_when_it_starts(settings: dict[str, str]) -> None:
    with pytest.raises(ServiceError, match="the setting holds"):
        create_app(Settings(model=TINY, **settings))  # type: ignore[arg-type]


def test_a_file_of_keys_that_is_missing_or_empty_is_refused_when_it_starts(tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match="cannot be read: No such file"):
        create_app(Settings(model=TINY, api_keys_file=tmp_path / "none"))
    (tmp_path / "empty").touch()
    with pytest.raises(ServiceError, match="the keys' file holds no key"):
        create_app(Settings(model=TINY, api_keys_file=tmp_path / "empty"))


@pytest.mark.parametrize(("exposure", "without", "with_key"), [("on", 401, 200), ("open", 200, 200), ("off", 401, 404)])
def test_metrics_and_docs_are_closed_open_or_off(start: Start, exposure: str, without: int, with_key: int) -> None:
    client = start(api_keys=OLD, metrics=exposure, docs=exposure)
    for path in ("/metrics", "/docs", "/openapi.json", "/static-offline-docs/swagger-ui.css"):
        assert client.get(path).status_code == without, path
        assert client.get(path, headers=bearer(OLD)).status_code == with_key, path
    assert client.post("/classify", json=TEXT).status_code == 401


@pytest.fixture
def administered() -> object:
    """Makes a client of a service with a route of administration."""

    def made(**settings: str) -> TestClient:
        app = create_app(Settings(model=TINY, **settings))  # type: ignore[arg-type]

        @app.get("/admin/test", dependencies=[Depends(require_admin)])
        async def admin() -> Annotated[str, "what it says"]:
            return "done"

        return TestClient(app)

    return made


@pytest.mark.parametrize("keys", [{}, {"api_keys": OLD}])
def test_administration_is_off_without_a_key_of_its_own(administered: Start, keys: dict[str, str]) -> None:
    answer = administered(**keys).get("/admin/test", headers=bearer(OLD))
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "administration_off")


@pytest.mark.parametrize("keys", [{}, {"api_keys": OLD}])
def test_only_a_key_of_its_own_opens_administration(administered: Start, keys: dict[str, str]) -> None:
    client = administered(admin_keys=ADMIN, **keys)
    for headers in ({}, bearer("wrong"), bearer(OLD)):
        answer = client.get("/admin/test", headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
        assert answer.headers["www-authenticate"] == "Bearer"
    for headers in (bearer(ADMIN), {"x-api-key": ADMIN}):
        assert client.get("/admin/test", headers=headers).json() == "done"
        assert client.get("/metrics", headers=headers).status_code == 200


def operations(client: TestClient) -> dict[tuple[str, str], dict[str, object]]:
    described = client.get("/openapi.json", headers=bearer(OLD)).json()
    return {(path, method): one for path, all_ in described["paths"].items() for method, one in all_.items()}


def test_the_description_says_where_a_key_is_needed(closed: TestClient) -> None:
    described = closed.get("/openapi.json", headers=bearer(OLD)).json()
    assert described["security"] == [{"bearer": []}, {"apiKey": []}]
    schemes = described["components"]["securitySchemes"]
    assert (schemes["bearer"]["type"], schemes["bearer"]["scheme"]) == ("http", "bearer")
    assert (schemes["apiKey"]["type"], schemes["apiKey"]["in"], schemes["apiKey"]["name"]) == (
        "apiKey",
        "header",
        "X-API-Key",
    )
    for (path, _), operation in operations(closed).items():
        assert (operation.get("security") == []) is (path in HEALTH), path


def test_without_keys_the_description_asks_for_none_but_in_administration(start: Start) -> None:
    client = start()
    assert "security" not in client.get("/openapi.json").json()
    for (path, _), operation in operations(client).items():
        assert ("security" in operation) is path.startswith("/admin/"), path


PAGE = "https://app.example.com"
PREFLIGHT = {
    "origin": PAGE,
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization,content-type,x-request-timeout",
}


def test_no_page_of_another_origin_may_ask_unless_it_is_listed(start: Start) -> None:
    client = start()
    assert client.options("/classify", headers=PREFLIGHT).status_code == 405
    answer = client.post("/classify", json=TEXT, headers={"origin": PAGE})
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_a_listed_page_may_ask_with_a_key(start: Start) -> None:
    client = start(api_keys=OLD, cors_origins=f"https://other.example.com:8443, {PAGE}")
    allowed = client.options("/classify", headers=PREFLIGHT)
    assert (allowed.status_code, allowed.headers["access-control-allow-origin"]) == (200, PAGE)
    assert "access-control-allow-credentials" not in allowed.headers
    answer = client.post("/classify", json=TEXT, headers={"origin": PAGE, **bearer(OLD)})
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, PAGE)
    assert "x-request-id" in answer.headers["access-control-expose-headers"]
    refused = client.post("/classify", json=TEXT, headers={"origin": PAGE})
    assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, PAGE)


@pytest.mark.parametrize(
    "origin", ["https://evil.example.com", f"{PAGE}.evil.com", "null", PAGE.replace("https", "http")]
)
def test_a_page_that_is_not_listed_is_told_nothing(start: Start, origin: str) -> None:
    client = start(cors_origins=PAGE)
    assert client.options("/classify", headers={**PREFLIGHT, "origin": origin}).status_code == 400
    answer = client.post("/classify", json=TEXT, headers={"origin": origin})
    assert "access-control-allow-origin" not in answer.headers


def test_every_answer_binds_the_browser(start: Start) -> None:
    client = start(api_keys=OLD)
    for path, status in (("/healthz", 200), ("/info", 401), ("/docs", 200), ("/nowhere", 404), ("/", 200)):
        headers = {} if status == 401 else bearer(OLD)
        answer = client.get(path, headers=headers)
        assert answer.status_code == status
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert len(answer.headers.get_list("content-security-policy")) == 1


def test_no_key_stands_in_what_is_shown_or_described(
    start: Start, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    client = start(api_keys=OLD, admin_keys=ADMIN)
    for path in ("/info", "/metrics", "/openapi.json", "/models"):
        text = client.get(path, headers=bearer(OLD)).text
        assert not [key for key in (OLD, ADMIN) if key in text]
    monkeypatch.setenv("SENTIMENT_API_KEYS", OLD)
    monkeypatch.setenv("SENTIMENT_ADMIN_KEYS", ADMIN)
    assert CliRunner().invoke(cli, ["settings"]).exit_code == 0
    listed = CliRunner().invoke(cli, ["settings"]).output
    assert not [key for key in (OLD, ADMIN) if key in listed + repr(Settings())]
    monkeypatch.setenv("SENTIMENT_QUEUE", "1")
    with pytest.raises(ValidationError) as refusal:
        Settings()
    assert not [key for key in (OLD, ADMIN) if key in str(refusal.value)]
