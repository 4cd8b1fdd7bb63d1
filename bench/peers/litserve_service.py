"""The API that LitServe hands to its worker process, in the checkpoint's folder."""

from pathlib import Path
from typing import Any

import litserve

from bench.peers.pipeline import Pipeline


class Api(litserve.LitAPI):
    """Labels the texts of several requests together."""

    def setup(self, device: str) -> None:
        """Load the model."""
        self.classifier = Pipeline(Path.cwd())

    def decode_request(self, request: dict[str, Any]) -> list[str]:
        """The texts of a request."""
        texts: list[str] = request["inputs"]
        return texts

    def batch(self, inputs: list[list[str]]) -> list[list[str]]:
        """Requests that are answered together, each its texts."""
        return inputs

    def predict(self, x: list[list[str]]) -> list[list[dict[str, Any]]]:
        """The best labels of the texts of each request, all texts in one batch."""
        found = iter(self.classifier([text for texts in x for text in texts]))
        return [[next(found) for _ in texts] for texts in x]

    def unbatch(self, output: list[list[dict[str, Any]]]) -> list[list[dict[str, Any]]]:
        """An answer a request."""
        return output

    def encode_response(self, output: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The answer as JSON."""
        return output
