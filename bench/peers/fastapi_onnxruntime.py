"""FastAPI around ONNX Runtime in float32, with a plain `def` route."""

from typing import Any

from bench.peers import Peer, app, inputs, place, results
from bench.peers.pipeline import Pipeline

PEER = Peer(
    name="FastAPI + onnxruntime fp32",
    environment="fastapi-onnxruntime",
    requirements=(("fastapi", "uvicorn[standard]", "transformers", "onnxruntime"),),
    versions=("fastapi", "transformers", "onnxruntime"),
    command=app("fastapi_onnxruntime"),
    path="/classify",
    body=inputs,
    labels=results,
)


def main() -> None:
    """Serve."""
    import uvicorn
    from fastapi import FastAPI
    from pydantic import BaseModel

    folder, port = place()
    classifier = Pipeline(folder)
    api = FastAPI()

    class Texts(BaseModel):
        inputs: list[str]

    @api.post("/classify")
    def classify(body: Texts) -> list[dict[str, Any]]:
        return classifier(body.inputs)

    uvicorn.run(api, port=port, log_level="warning")


if __name__ == "__main__":
    main()
