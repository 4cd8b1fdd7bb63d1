"""LitServe around ONNX Runtime in float32, requests batched by LitServe."""

from typing import Any

from bench.peers import Peer, app, inputs, place, results
from bench.peers.pipeline import Pipeline

PEER = Peer(
    name="LitServe + onnxruntime fp32",
    environment="litserve",
    requirements=(("litserve", "transformers", "onnxruntime"),),
    versions=("litserve", "transformers", "onnxruntime"),
    command=app("litserve_onnxruntime"),
    path="/predict",
    body=inputs,
    labels=results,
)


def main() -> None:
    """Serve."""
    import litserve

    folder, port = place()

    class Api(litserve.LitAPI):
        def setup(self, device: str) -> None:
            self.classifier = Pipeline(folder)

        def decode_request(self, request: dict[str, Any]) -> list[str]:
            texts: list[str] = request["inputs"]
            return texts

        def batch(self, inputs: list[list[str]]) -> list[list[str]]:
            return inputs

        def predict(self, x: list[list[str]]) -> list[list[dict[str, Any]]]:
            found = iter(self.classifier([text for texts in x for text in texts]))
            return [[next(found) for _ in texts] for texts in x]

        def unbatch(self, output: list[list[dict[str, Any]]]) -> list[list[dict[str, Any]]]:
            return output

        def encode_response(self, output: list[dict[str, Any]]) -> list[dict[str, Any]]:
            return output

    server = litserve.LitServer(Api(max_batch_size=16, batch_timeout=0.005), accelerator="cpu")
    server.run(port=port, host="127.0.0.1", generate_client_file=False, log_level="warning")


if __name__ == "__main__":
    main()
