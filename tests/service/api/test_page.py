"""The page as it is served: its headers, its assets, and what must not stand in them. tests/web has it in a browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from service.api.page import HEADERS, WEB
from tests.service.api.conftest import Start

ASSETS = sorted(path.name for path in WEB.iterdir() if path.name != "index.html")
PATHS = ["/", *(f"/assets/{name}" for name in ASSETS)]
ELSEWHERE = re.compile(r"(?:https?:|wss?:)?//[\w-]+(?:\.[\w-]+)+\S*")
NAMESPACE = "http://www.w3.org/2000/svg"
"""The name of a format, which nothing fetches."""


class Tags(HTMLParser):
    """Every tag of a page with its attributes, and the texts inside <script>."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.scripts = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.found and self.found[-1][0] == "script":
            self.scripts += data.strip()

    def links(self) -> Iterator[str]:
        for _, attributes in self.found:
            yield from (value for name in ("src", "href") if (value := attributes.get(name)))


@pytest.mark.parametrize("path", PATHS)
def test_each_file_is_served_under_the_headers_that_bind_it(client: TestClient, path: str) -> None:
    response = client.get(path)
    assert response.status_code == 200
    assert response.content == (WEB / (path.removeprefix("/assets/") if path != "/" else "index.html")).read_bytes()
    assert HEADERS.items() <= dict(response.headers).items()
    ending = "html" if path == "/" else path.rpartition(".")[2]
    kinds = {"html": "text/html; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
    assert response.headers["content-type"] == (kinds | {"css": "text/css; charset=utf-8"})[ending]
    assert client.head(path).headers["content-length"] == str(len(response.content))


def test_the_policy_lets_the_page_do_what_it_needs_and_no_more() -> None:
    policy = dict(part.split(" ", 1) for part in HEADERS["content-security-policy"].split("; "))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    allowed = {policy[kind] for kind in ("script-src", "style-src", "img-src", "connect-src")}
    assert allowed == {"'self'"}
    assert HEADERS["x-content-type-options"] == "nosniff"
    assert HEADERS["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize("path", PATHS)
def test_what_the_browser_has_is_not_sent_again(client: TestClient, path: str) -> None:
    etag = client.get(path).headers["etag"]
    for known in (etag, f'"other", W/{etag}', "*"):
        response = client.get(path, headers={"if-none-match": known})
        assert (response.status_code, response.content, response.headers["etag"]) == (304, b"", etag)
    assert client.get(path, headers={"if-none-match": '"other"'}).status_code == 200


def test_files_of_different_content_have_different_etags(client: TestClient) -> None:
    assert len({client.get(path).headers["etag"] for path in PATHS}) == len(PATHS)


@pytest.mark.parametrize(
    "path",
    ["/assets/", "/assets/index.html", "/assets/nothing.js", "/assets/..%2fsettings.py", "/assets/%2e%2e/cli.py"],
)
def test_nothing_else_is_served(client: TestClient, path: str) -> None:
    response = client.get(path)
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "not_found"


def test_it_can_be_switched_off(start: Start) -> None:
    client = start(page=False)
    for path in PATHS:
        response = client.get(path)
        assert response.status_code == 404
        assert response.json() == {"error": {"code": "not_found", "message": "there is nothing here"}}
    assert client.post("/classify", json={"inputs": "good"}).status_code == 200


def test_it_is_no_part_of_the_api_description(client: TestClient) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    assert "/classify" in paths
    assert not {"/", "/assets/{name}"} & set(paths)


@pytest.mark.parametrize("path", sorted(WEB.iterdir()), ids=lambda path: path.name)
def test_nothing_points_elsewhere(path: Path) -> None:
    text = path.read_text("utf-8").replace(NAMESPACE, "")
    assert not ELSEWHERE.findall(text)


def test_the_page_holds_no_script_style_or_handler_of_its_own(client: TestClient) -> None:
    page = Tags(client.get("/").text)
    assert not page.scripts
    assert "style" not in {tag for tag, _ in page.found}
    names = {name for _, attributes in page.found for name in attributes}
    assert not {name for name in names if name == "style" or name.startswith("on")}


def test_every_link_of_the_page_leads_somewhere(client: TestClient) -> None:
    page = Tags(client.get("/").text)
    ids = {attributes["id"] for _, attributes in page.found if "id" in attributes}
    for link in page.links():
        if link.startswith("#"):
            assert link[1:] in ids
        else:
            # Relative, so that the page works under a prefix too.
            assert not link.startswith("/")
            assert client.get(f"/{link}").status_code == 200


@pytest.mark.parametrize("path", sorted(WEB.glob("*.js")), ids=lambda path: path.name)
def test_scripts_parse_no_html_run_no_text_and_remember_nothing(path: Path) -> None:
    parses = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function"
    remembers = r"localStorage|sessionStorage|indexedDB|document\.cookie|history\.|location\.(?:hash|search)"
    assert not re.findall(f"{parses}|{remembers}", path.read_text("utf-8"))
