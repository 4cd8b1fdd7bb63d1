"""What a server around ONNX Runtime does by the book: the checkpoint's tokenizer, one padded batch, softmax."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class Pipeline:
    """Labels texts with `model.onnx`, default session options."""

    def __init__(self, folder: Path) -> None:
        import onnxruntime
        from transformers import AutoTokenizer

        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self._session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
        self._names = {one.name for one in self._session.get_inputs()}
        labels = json.loads((folder / "config.json").read_text(encoding="utf-8"))["id2label"]
        self._labels = [labels[str(index)] for index in range(len(labels))]

    def __call__(self, texts: Sequence[str]) -> list[dict[str, Any]]:
        """The best label of each text and its probability."""
        import numpy as np

        batch = self._tokenizer(list(texts), padding=True, truncation=True, max_length=512, return_tensors="np")
        feed = {name: array for name, array in batch.items() if name in self._names}
        logits = self._session.run(["logits"], feed)[0]
        shares = np.exp(logits - logits.max(axis=-1, keepdims=True))
        shares /= shares.sum(axis=-1, keepdims=True)
        return [{"label": self._labels[int(row.argmax())], "score": float(row.max())} for row in shares]
