"""The service that BentoML loads, by this module's name, in the checkpoint's folder."""

from pathlib import Path
from typing import Any

import bentoml

from bench.peers.pipeline import Pipeline


@bentoml.service
class Classifier:
    """Labels texts."""

    def __init__(self) -> None:
        self.classifier = Pipeline(Path.cwd())

    @bentoml.api
    def classify(self, inputs: list[str]) -> list[dict[str, Any]]:
        """The best label of each text and its probability."""
        return self.classifier(inputs)
