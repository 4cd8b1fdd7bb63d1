"""Loading, replacing and unloading models while the service answers: no request is lost, and nothing else is read."""

from __future__ import annotations

import gc
import shutil
import threading
import time
import weakref
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.testclient import TestClient

from service.inference import Inference
from tests.service.api.conftest import TINY, Start
from tests.service.serving import serving
from tests.service.variants import OTHER_LABELS, lying, variant

KEY = {"authorization": "Bearer secret"}
TEXT = "the film is good"
LABELS = {"negative", "neutral", "positive"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What may be loaded from: two versions, and two folders that hold no model that can be trusted."""
    root = tmp_path / "models"
    shutil.copytree(TINY, root / "v1")
    variant(root / "v2")
    lying(root / "lying")
    (root / "empty").mkdir()
    return root


@pytest.fixture
def client(start: Start, folder: Path) -> TestClient:
    return start(models=f"a={TINY}", models_dir=folder, admin_keys="secret", max_models=3)


def load(client: TestClient | httpx2.Client, name: str, path: str) -> Any:
    return client.put(f"/admin/models/{name}", json={"path": path}, headers=KEY)


def names(client: TestClient) -> dict[str, str]:
    return {one["name"]: one["state"] for one in client.get("/models").json()["models"]}


def test_a_model_is_loaded_replaced_and_unloaded(client: TestClient) -> None:
    answer = load(client, "b", "v1")
    assert answer.status_code == 200
    assert answer.json() == client.get("/models").json()
    assert names(client) == {"a": "ready", "b": "ready"}
    first = client.post("/classify?model=b", json={"inputs": TEXT}).json()
    assert load(client, "b", "v2").status_code == 200
    second = client.post("/classify?model=b", json={"inputs": TEXT}).json()
    assert (set(first["results"][0]["scores"]), set(second["results"][0]["scores"])) == (LABELS, set(OTHER_LABELS))
    gone = client.delete("/admin/models/b", headers=KEY)
    assert (gone.status_code, gone.content) == (204, b"")
    after = client.post("/classify?model=b", json={"inputs": TEXT})
    assert (after.status_code, after.json()["error"]["code"]) == (404, "unknown_model")
    assert names(client) == {"a": "ready"}
    assert client.get("/readyz").status_code == 200


def test_another_is_made_the_default(client: TestClient) -> None:
    refused = client.delete("/admin/models/a", headers=KEY)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "default_model")
    load(client, "b", "v2")
    unknown = client.put("/admin/default", json={"model": "c"}, headers=KEY)
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "unknown_model")
    made = client.put("/admin/default", json={"model": "b"}, headers=KEY)
    assert [(one["name"], one["default"]) for one in made.json()["models"]] == [("a", False), ("b", True)]
    assert client.post("/classify", json={"inputs": TEXT}).json()["model"] == "b"
    assert client.delete("/admin/models/a", headers=KEY).status_code == 204


@pytest.mark.parametrize(
    ("path", "code", "message"),
    [
        ("empty", "bad_artifact", "manifest.json cannot be read"),
        ("lying", "bad_artifact", "golden text"),
        ("altered", "bad_artifact", "sha256 differs"),
        ("nowhere", "path_refused", "not a folder of a model in SENTIMENT_MODELS_DIR"),
        ("v1/manifest.json", "path_refused", "not a folder"),
        ("..", "path_refused", "not a folder"),
        ("../outside", "path_refused", "not a folder"),
        ("v1/../../outside", "path_refused", "not a folder"),
        (str(TINY), "path_refused", "not a folder"),
        ("/", "path_refused", "not a folder"),
        ("link", "path_refused", "not a folder"),
        ("linked-file", "path_refused", "not a folder"),
        ("circle", "path_refused", "not a folder"),
        ("a\0b", "path_refused", "not a folder"),
        ("x" * 4000, "path_refused", "not a folder"),
        ("", "invalid_field", "path"),
    ],
)
def test_what_is_refused_changes_nothing(client: TestClient, folder: Path, path: str, code: str, message: str) -> None:
    outside = variant(folder.parent / "outside")
    (folder / "link").symlink_to(outside)
    (folder / "circle").symlink_to(folder / "circle")
    shutil.copytree(TINY, folder / "linked-file")
    (folder / "linked-file" / "notes").symlink_to(outside / "manifest.json")
    shutil.copytree(TINY, folder / "altered")
    (folder / "altered" / "tokenizer.json").write_text("{}")
    before = client.get("/models").json()
    for name in ("a", "b"):
        answer = load(client, name, path)
        assert answer.status_code == 422, answer.text
        assert (answer.json()["error"]["code"], answer.json()["error"]["param"]) == (code, "path")
        assert message in answer.json()["error"]["message"]
    assert client.get("/models").json() == before
    assert client.get("/readyz").status_code == 200
    assert client.post("/classify", json={"inputs": TEXT}).status_code == 200


def test_links_inside_of_the_folder_are_followed(client: TestClient, folder: Path) -> None:
    (folder / "current").symlink_to("v2")
    assert load(client, "b", "current").status_code == 200
    assert load(client, "b", str(folder / "v2")).status_code == 200


@pytest.mark.parametrize("name", ["a:cls", "-a", ".a", "a" * 65, "a b", "ä"])
def test_a_name_that_cannot_be_asked_for_is_refused(client: TestClient, name: str) -> None:
    answer = load(client, name, "v1")
    assert answer.status_code == 422
    assert answer.json()["error"]["param"] == "name"


def test_too_many_are_refused(client: TestClient) -> None:
    for name in ("b", "c"):
        assert load(client, name, "v1").status_code == 200
    answer = load(client, "d", "v1")
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "too_many_models")


def test_without_a_folder_nothing_is_loaded(start: Start) -> None:
    answer = load(start(admin_keys="secret"), "b", str(TINY))
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "path_refused")
    assert "SENTIMENT_MODELS_DIR is not set" in answer.json()["error"]["message"]


def test_without_the_right_key_nothing_is_done(client: TestClient, start: Start) -> None:
    calls: list[tuple[str, str, Any]] = [
        ("PUT", "/admin/models/b", {"path": "v1"}),
        ("DELETE", "/admin/models/a", None),
        ("PUT", "/admin/default", {"model": "a"}),
    ]
    off = start()
    for method, path, body in calls:
        for headers in ({}, {"authorization": "Bearer wrong"}):
            assert client.request(method, path, json=body, headers=headers).status_code == 401
        assert off.request(method, path, json=body, headers=KEY).status_code == 403
    assert names(client) == {"a": "ready"}


@pytest.fixture
def served(folder: Path) -> Iterator[httpx2.Client]:
    with (
        serving(models=f"a={TINY},b={TINY}", models_dir=folder, admin_keys="secret") as (url, _),
        httpx2.Client(base_url=url, timeout=60) as client,
    ):
        yield client


def test_the_service_answers_while_a_model_is_loaded(served: httpx2.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, let_go, real = threading.Event(), threading.Event(), Inference.open

    def slow(*arguments: Any) -> Inference:
        opened.set()
        assert let_go.wait(60)
        return real(*arguments)

    monkeypatch.setattr(Inference, "open", slow)
    answers: list[int] = []
    thread = threading.Thread(target=lambda: answers.append(load(served, "c", "v1").status_code))
    thread.start()
    assert opened.wait(60)
    assert served.post("/classify", json={"inputs": TEXT}).status_code == 200
    assert served.get("/readyz").status_code == 200
    assert served.get("/models").json()["models"][-1] == {"name": "c", "state": "loading", "default": False}
    second = load(served, "d", "v1")
    assert (second.status_code, second.json()["error"]["code"]) == (409, "loading")
    let_go.set()
    thread.join()
    assert answers == [200]


def test_no_request_is_lost_to_models_that_come_and_go(served: httpx2.Client) -> None:
    """While `b` is replaced, unloaded and loaded again, each answer is the old one's, the new one's, or a 404."""
    stop = threading.Event()
    wrong: list[str] = []
    seen: Counter[str] = Counter()

    def ask(model: str) -> None:
        while not stop.is_set():
            answer = served.post(f"/classify?model={model}", json={"inputs": [TEXT, "the plot was dull. " * 30]})
            if answer.status_code == 404 and model == "b":
                seen["b gone"] += 1
                continue
            body = answer.json()
            kinds = {frozenset(result["scores"]) for result in body["results"]} if answer.is_success else set()
            version = (
                {frozenset(LABELS): "old", frozenset(OTHER_LABELS): "new"}.get(*kinds) if len(kinds) == 1 else None
            )
            if version is None or (model == "a" and version == "new") or body["model"] != model:
                wrong.append(f"{model}: {answer.status_code} {answer.text[:200]}")
            seen[f"{model} {version}"] += 1

    threads = [threading.Thread(target=ask, args=(model,)) for model in ("a", "b", "b")]
    for thread in threads:
        thread.start()
    try:
        for _ in range(4):
            for path in ("v2", "v1", "v2"):
                assert load(served, "b", path).status_code == 200
            assert served.delete("/admin/models/b", headers=KEY).status_code == 204
            assert load(served, "b", "v1").status_code == 200
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not wrong
    assert all(seen[kind] for kind in ("a old", "b old", "b new")), seen


def test_an_old_model_goes_with_its_last_answer_and_waits_for_no_garbage_collector(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.catalog.SETTLED", 600.0)
    settings: dict[str, Any] = {"models": f"a={TINY},b={TINY}", "models_dir": folder, "admin_keys": "secret"}
    with serving(**settings) as (url, app), httpx2.Client(base_url=url, timeout=60, verify=False) as client:
        old = weakref.ref(app.state.service.models.get("b"))
        gc.collect()
        gc.disable()
        try:
            for path in ("/classify?model=b", "/embed?model=b&pool=mean", "/explain?model=b"):
                assert client.post(path, json={"inputs": [TEXT, "", "good " * 30]}).status_code == 200
            assert load(client, "b", "v2").status_code == 200
            until = time.monotonic() + 30
            while old() is not None and time.monotonic() < until:
                time.sleep(0.01)
            assert old() is None
        finally:
            gc.enable()
