"""BentoML around ONNX Runtime in float32."""

from __future__ import annotations

from collections.abc import Sequence

from bench.peers import Peer, Place, inputs, results


def _command(place: Place) -> Sequence[str]:
    service = "bench.peers.bentoml_service:Classifier"
    return [str(place.programs / "bentoml"), "serve", service, "--host", "127.0.0.1", "--port", str(place.port)]


PEER = Peer(
    name="BentoML + onnxruntime fp32",
    environment="bentoml",
    requirements=(("bentoml", "transformers", "onnxruntime"),),
    versions=("bentoml", "transformers", "onnxruntime"),
    command=_command,
    path="/classify",
    body=inputs,
    labels=results,
    environ={
        "BENTOML_DO_NOT_TRACK": "True",
        "BENTOML_CONFIG_OPTIONS": "api_server.logging.access.enabled=false",
    },
)
