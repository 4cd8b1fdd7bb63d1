"""The stubs, the lock's samples, the operations and the other servers' wire formats."""

import importlib
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from bench.compare import PEERS
from bench.http_layers import SAMPLE_SECONDS, SAMPLES_PER_S, share_held
from bench.inprocess import over
from bench.operations import Shape
from bench.peers import Place
from bench.stub import once_inferred, once_run
from service.engine import ClassifyOutput, Engine
from service.inference import Inference
from service.scheduler import Ticket

ANSWERS: dict[str, Any] = {
    "sentiment-service": {"results": [{"label": "a"}, {"label": "b"}]},
    "infinity": {"data": [[{"label": "a", "score": 0.9}, {"label": "b", "score": 0.1}], [{"label": "b", "score": 1}]]},
    "text-embeddings": [[{"label": "b", "score": 0.1}, {"label": "a", "score": 0.9}], [{"label": "b", "score": 1}]],
    "": [{"label": "a", "score": 0.9}, {"label": "b", "score": 0.9}],
}


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_a_peer_is_started_on_the_port_and_its_answer_is_read(peer: Any) -> None:
    command = peer.command(Place(Path("/programs"), Path("/weights"), 8150))
    assert "8150" in command
    answer = next(found for name, found in ANSWERS.items() if name in peer.name)
    assert peer.labels(answer) == ["a", "b"]
    assert "x y" in str(peer.body(["x y"]))


def test_peers_have_names_of_their_own() -> None:
    assert len({peer.name for peer in PEERS}) == len(PEERS)


def test_the_apps_of_the_peers_need_nothing_to_be_described() -> None:
    for name in (
        "fastapi_torch",
        "fastapi_onnxruntime",
        "litserve_onnxruntime",
        "bentoml_onnxruntime",
        "infinity",
        "tei",
    ):
        importlib.import_module(f"bench.peers.{name}")


def test_operations_are_counted() -> None:
    # One layer of width 2 with one head: query, output and block of one row, key and value of one row.
    assert Shape(layers=1, hidden=2, heads=1, inner=4).classify(10) == 2 * (4 + 4 + 8 + 8 + 4 + 4)
    # A second layer for each of ten rows: four square matrices and the block.
    assert Shape(layers=2, hidden=2, heads=1, inner=4).classify(10) == 2 * (10 * (16 + 16) + 32)


def test_samples_of_the_lock_are_a_share_of_all() -> None:
    assert share_held("a;b 130\na;c 120\n") == 250 / (SAMPLES_PER_S * SAMPLE_SECONDS)
    assert share_held("") == 0


def test_a_stubbed_engine_runs_once() -> None:
    runs: list[int] = []

    def real(_engine: Engine, ids: Any) -> ClassifyOutput:
        runs.append(len(ids))
        return ClassifyOutput(np.zeros(3, np.float32), np.zeros(4, np.float32))

    stubbed, engine = once_run(real), cast("Engine", None)
    first = stubbed(engine, np.zeros(5, np.int64))
    assert stubbed(engine, np.zeros(7, np.int64)) is first
    assert runs == [5]


def test_a_stubbed_inference_answers_every_text_with_the_first_answer() -> None:
    asked: list[list[str]] = []

    def real(_inference: Inference, texts: list[str], **_named: Any) -> Ticket[list[Any]]:
        asked.append(texts)
        done: Ticket[list[Any]] = Ticket()
        done.set_result(["answer"])
        return done

    stubbed, inference = once_inferred(real), cast("Inference", None)
    assert stubbed(inference, ["one"]).result() == ["answer"]
    assert stubbed(inference, ["two", "three"], long_text="window").result() == ["answer", "answer"]
    assert asked == [["one"]]


def test_threads_share_the_items() -> None:
    done: list[int] = []
    rate = over(done.append, list(range(20)), threads=2)
    assert sorted(done) == sorted([0, 1, *range(20)])
    assert rate.texts_per_s > 0
