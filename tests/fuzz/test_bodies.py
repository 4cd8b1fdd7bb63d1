"""Bodies that no client means to send: refused in the one shape, or read; never a failure of the service."""

from __future__ import annotations

import gzip
import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from fastapi.routing import iter_route_contexts
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from service.api.app import create_app
from service.settings import Settings
from tests.service.api.conftest import TINY
from tests.service.serving import serving

JSON = "application/json"
ROUTES = (
    "/classify",
    "/embed",
    "/explain",
    "/v1/embeddings",
    "/hf/text-classification",
    "/tei/embed",
    "/v2/models/tiny/infer",
)
PLAIN = b'{"inputs": "good"}'


@pytest.fixture(scope="module")
def client() -> Iterator[httpx2.Client]:
    with serving(max_body_bytes=2 * 1024 * 1024) as (url, _), httpx2.Client(base_url=url, timeout=60) as asking:
        yield asking


def send(client: httpx2.Client, body: bytes, kind: str | None = JSON, route: str = "/classify", **headers: str) -> Any:
    given = headers if kind is None else {"content-type": kind, **headers}
    return client.post(route, content=body, headers=given)


def nested(depth: int, opening: str, inside: str, closing: str) -> bytes:
    return (opening * depth + inside + closing * depth).encode()


BODIES: dict[str, tuple[bytes, int, str | None]] = {
    "lists in lists": (b'{"inputs": ' + nested(100_000, "[", '"good"', "]") + b"}", 400, "malformed_json"),
    "lists in lists, not closed": (b"[" * 500_000, 400, "malformed_json"),
    "objects in objects": (nested(50_000, '{"inputs":', '"good"', "}"), 400, "malformed_json"),
    "a few lists in lists": (b'{"inputs": [[["good"]]]}', 422, "invalid_field"),
    "a whole number of a thousand digits": (b'{"inputs": "good", "top_k": ' + b"9" * 1000 + b"}", 200, None),
    "a whole number of 100,000 digits": (
        b'{"inputs": "good", "top_k": ' + b"9" * 100_000 + b"}",
        400,
        "malformed_json",
    ),
    "a number beyond all": (b'{"inputs": "good", "min_score": 1e999}', 422, "invalid_field"),
    "a number below all": (b'{"inputs": "good", "min_score": -1e999}', 422, "invalid_field"),
    "not a number": (b'{"inputs": "good", "min_score": NaN}', 422, "invalid_field"),
    "infinity": (b'{"inputs": "good", "min_score": Infinity}', 422, "invalid_field"),
    "the same key twice": (b'{"inputs": 5, "inputs": "good"}', 200, None),
    "the same key twice, the last one wrong": (b'{"inputs": "good", "inputs": 5}', 422, "invalid_field"),
    "a byte order mark": (b"\xef\xbb\xbf" + PLAIN, 200, None),
    "UTF-16": (PLAIN.decode().encode("utf-16"), 200, None),
    "UTF-32": (PLAIN.decode().encode("utf-32"), 200, None),
    "not UTF-8": (b'{"inputs": "caf\xe9"}', 400, "malformed_json"),
    "half of a character": (b'{"inputs": "\xf0\x9f\x98"}', 400, "malformed_json"),
    "a surrogate in UTF-8": (b'{"inputs": "\xed\xa0\x80"}', 422, "lone_surrogate"),
    "a control character in a string": (b'{"inputs": "good\x01"}', 400, "malformed_json"),
    "an escaped surrogate": (b'{"inputs": "\\ud800"}', 422, "lone_surrogate"),
    "two escaped surrogates that are one character": (b'{"inputs": "\\ud83d\\ude00 good"}', 200, None),
    "an escaped surrogate as a key": (b'{"inputs": "good", "\\ud800": 1}', 422, "invalid_body"),
    "an escaped NUL": (b'{"inputs": "\\u0000"}', 422, "nul_character"),
    "NUL": (b"\0", 400, "malformed_json"),
    "something behind the end": (PLAIN + b" x", 400, "malformed_json"),
    "two bodies": (PLAIN + PLAIN, 400, "malformed_json"),
    "a string": (b'"good"', 422, "invalid_body"),
    "null": (b"null", 422, "invalid_body"),
    "true": (b"true", 422, "invalid_body"),
    "nothing": (b"", 422, "invalid_body"),
    "blanks": (b"  \n", 400, "malformed_json"),
    "a million keys": (json.dumps({f"k{i}": 1 for i in range(100_000)}).encode(), 422, "missing_field"),
    "a key of a megabyte": (json.dumps({"k" * 2**20: 1, "inputs": "good"}).encode(), 422, "unknown_field"),
    "a megabyte of one word": (json.dumps({"inputs": "a" * 2**20}).encode(), 422, "text_too_long"),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_strange_body_is_refused_in_the_one_shape_or_read(client: httpx2.Client, name: str) -> None:
    body, status, code = BODIES[name]
    answer = send(client, body)
    assert answer.status_code == status, answer.text[:300]
    if code:
        assert answer.json()["error"]["code"] == code
        assert len(answer.content) < 5000


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("name", BODIES)
def test_no_route_fails_for_it(client: httpx2.Client, name: str, route: str) -> None:
    answer = send(client, BODIES[name][0], route=route)
    assert answer.status_code in {200, 400, 413, 422, 424}, answer.text[:300]
    assert answer.json()
    assert len(answer.content) < 20_000


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (JSON, 200),
        ("application/json;charset=UTF-8", 200),
        ('application/json; charset="utf-8"', 200),
        ("APPLICATION/JSON", 200),
        ("application/json; charset=utf-16", 415),
        ("application/json; charset=latin-1", 415),
        ("application/json; charset=", 415),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("multipart/form-data; boundary=x", 415),
        ("application/jsonp", 415),
        ("json", 415),
        ("", 415),
        (None, 415),
    ],
)
def test_what_a_body_says_it_is(client: httpx2.Client, kind: str | None, status: int) -> None:
    answer = send(client, PLAIN, kind)
    assert answer.status_code == status
    assert status == 200 or answer.json()["error"]["code"] == "unsupported_media_type"


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "gzip, identity", "x-gzip", "nonsense"])
def test_a_packed_body_is_refused_unread(client: httpx2.Client, encoding: str) -> None:
    bomb = gzip.compress(b" " * 50_000_000)
    answer = send(client, bomb, **{"content-encoding": encoding})
    assert answer.status_code == 415
    assert answer.json()["error"]["code"] == "unsupported_media_type"


RAW = {
    "a length that is none": b"POST /classify HTTP/1.1\r\nhost: x\r\ncontent-length: ten\r\n\r\n",
    "a negative length": b"POST /classify HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
    "two lengths": b"POST /classify HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
    "a length and chunks": (
        b"POST /classify HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"
    ),
    "chunks of a size that is none": (
        b"POST /classify HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        b"transfer-encoding: chunked\r\n\r\nzz\r\n"
    ),
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "a version that is none": b"GET /healthz HTTP/9.9\r\nhost: x\r\n\r\n",
    "a path that is none": b"GET healthz\xff\xfe HTTP/1.1\r\nhost: x\r\n\r\n",
    "percent signs that mean nothing": b"GET /%zz%ff%00 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
    "a NUL in a header": b"GET /healthz HTTP/1.1\r\nhost: x\r\nx-request-id: a\0b\r\n\r\n",
    "a request behind another": (
        b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\nGET /nowhere HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    ),
}


@pytest.mark.parametrize("name", RAW)
def test_bytes_that_are_no_request_end_their_connection_alone(client: httpx2.Client, name: str) -> None:
    url = client.base_url
    with socket.create_connection((url.host, url.port or 80), timeout=60) as connection:
        connection.sendall(RAW[name])
        connection.shutdown(socket.SHUT_WR)
        received = b""
        while part := connection.recv(65536):
            received += part
    assert b" 500 " not in received
    assert b"Traceback" not in received
    assert client.get("/readyz").status_code == 200


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)
REQUESTS = st.fixed_dictionaries(
    {},
    optional={
        "inputs": VALUES | st.text(alphabet=st.characters()) | st.lists(st.text(alphabet=st.characters()), max_size=5),
        **dict.fromkeys(
            ("top_k", "raw_scores", "min_score", "input", "model", "dimensions", "truncate", "parameters"), VALUES
        ),
    },
)


@given(body=REQUESTS | VALUES, route=st.sampled_from(ROUTES))
@example(body={"inputs": "good", "top_k": 2**63}, route="/classify")
@example(body={"inputs": ["good", "\ud800", "\0", "", "\u200b"]}, route="/classify")
@example(body={"input": [[1, 2], [3]], "model": "tiny"}, route="/v1/embeddings")
def test_any_json_is_answered_or_refused(client: httpx2.Client, body: Any, route: str) -> None:
    answer = send(client, json.dumps(body).encode(), route=route)
    assert answer.status_code in {200, 400, 404, 413, 422, 424}, (body, answer.text[:300])
    assert answer.json() is not None


@given(
    body=st.binary(max_size=200)
    | st.builds(lambda a, b, at: a[:at] + b + a[at:], st.just(PLAIN), st.binary(max_size=8), st.integers(0, 18))
)
def test_any_bytes_are_answered_or_refused(client: httpx2.Client, body: bytes) -> None:
    answer = send(client, body)
    assert answer.status_code in {200, 400, 422}, (body, answer.text[:300])
    assert answer.json()


def requests() -> dict[str, Any]:
    """What each route reads: the type of its body or of its query."""
    found: dict[str, Any] = {}
    for context in iter_route_contexts(create_app(Settings(model=TINY)).routes):
        if dependant := getattr(context, "dependant", None):
            for field in (*dependant.body_params, *dependant.query_params):
                if hasattr(field.field_info.annotation, "model_fields"):
                    found[f"{context.path} {field.name}"] = field.field_info.annotation
    return found


MANY = 1000
WRONG: tuple[Any, ...] = (
    {f"unknown {number}": number for number in range(MANY)},
    [{"name": 1}] * MANY,
    [[[]]] * MANY,
    [None] * MANY,
    [object()] * MANY,
)


@pytest.mark.parametrize("name", requests())
def test_what_is_wrong_a_thousand_times_is_said_a_few_times(name: str) -> None:
    """pydantic makes a record of each error: 100,000 unknown fields kept the event loop for seconds."""
    model = requests()[name]
    fields = list(model.model_fields)
    for wrong in WRONG:
        for asked in (wrong, *({field: wrong} for field in fields), dict.fromkeys(fields, wrong)):
            assert errors(model, asked) <= 3 * len(fields) + 3, asked


def errors(model: Any, asked: Any) -> int:
    try:
        model.model_validate(asked)
    except ValidationError as error:
        return error.error_count()
    return 0


def test_an_error_quotes_no_more_of_a_request_than_a_message_holds(client: httpx2.Client) -> None:
    long = "k" * 500_000
    for route, body in (
        ("/classify", {long: 1, "inputs": "good"}),
        ("/v1/embeddings", {"input": "good", "model": long}),
        ("/v1/embeddings", {"input": "good", "model": "tiny", "encoding_format": long}),
        ("/v2/models/tiny/infer", {"inputs": [{"name": long, "shape": [1], "datatype": long, "data": ["good"]}]}),
    ):
        answer = send(client, json.dumps(body).encode(), route=route)
        assert 400 <= answer.status_code < 500
        assert len(answer.content) < 5000
