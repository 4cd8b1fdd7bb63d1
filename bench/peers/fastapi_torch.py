"""FastAPI around the pipeline of transformers, on PyTorch: what most tutorials build."""

from typing import Any

from bench.peers import TORCH, Peer, app, inputs, place, results

PEER = Peer(
    name="FastAPI + transformers pipeline (torch)",
    environment="fastapi-torch",
    requirements=(TORCH, (*TORCH, "fastapi", "uvicorn[standard]", "transformers", "onnx", "onnxscript", "onnxruntime")),
    versions=("fastapi", "transformers", "torch"),
    command=app("fastapi_torch"),
    path="/classify",
    body=inputs,
    labels=results,
)


def main() -> None:
    """Serve."""
    import uvicorn
    from fastapi import FastAPI
    from pydantic import BaseModel
    from transformers import pipeline

    folder, port = place()
    classifier: Any = pipeline("text-classification", model=str(folder), tokenizer=str(folder), truncation=True)
    api = FastAPI()

    class Texts(BaseModel):
        inputs: list[str]

    @api.post("/classify")
    def classify(body: Texts) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = classifier(body.inputs)
        return found

    uvicorn.run(api, port=port, log_level="warning")


if __name__ == "__main__":
    main()
