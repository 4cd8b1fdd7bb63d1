"""infinity-emb, on PyTorch and on ONNX Runtime through optimum."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bench.peers import TORCH, Peer, Place, best

NAME = "bench"
# Its warm-up is a text of 514 tokens, which it does not cut for ONNX Runtime. The benchmark warms every server up.
QUIET = ("--no-model-warmup",)
# Its `all` extra would bring a torch for CUDA.
REQUIREMENTS = (TORCH, (*TORCH, "infinity-emb[server,torch,optimum,cache,logging,einops]==0.0.78"))


def _command(engine: str) -> Callable[[Place], Sequence[str]]:
    def command(place: Place) -> Sequence[str]:
        given = {"model-id": ".", "served-model-name": NAME, "engine": engine, "device": "cpu", "port": str(place.port)}
        given["log-level"] = "warning"
        options = [part for name, value in given.items() for part in (f"--{name}", value)]
        return [str(place.programs / "infinity_emb"), "v2", *options, "--no-bettertransformer", "--no-compile", *QUIET]

    return command


def _body(texts: Sequence[str]) -> object:
    return {"model": NAME, "input": list(texts)}


def _labels(answer: Any) -> list[str]:
    return [best(scores) for scores in answer["data"]]


def _peer(engine: str, runtime: str, package: str) -> Peer:
    return Peer(
        name=f"infinity-emb, {runtime}",
        environment="infinity",
        requirements=REQUIREMENTS,
        versions=("infinity-emb", package),
        command=_command(engine),
        path="/classify",
        body=_body,
        labels=_labels,
        environ={"DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1"},
    )


PEERS = (_peer("torch", "torch", "torch"), _peer("optimum", "onnxruntime (optimum)", "onnxruntime"))
