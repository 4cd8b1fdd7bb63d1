"""Writing graphs to disk: large tensors go to one file that all graphs of a model share, each distinct one once."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import onnx
from onnx import TensorProto

WEIGHTS = "weights.bin"
ALIGNMENT = 4096  # bytes: tensors start on a page, so that they can be mapped instead of read
INLINE = 1024  # bytes: smaller tensors stay in their graph's own file


def save(folder: Path, models: Mapping[str, onnx.ModelProto]) -> None:
    """Write models by file name, and their large tensors to `weights.bin` beside them.

    Every file is written beside and then renamed: a process that has mapped the one before keeps what it mapped, where
    a file cut short under it would end it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    offsets: dict[bytes, int] = {}
    with (folder / f"{WEIGHTS}.partial").open("wb") as file:
        for model in models.values():
            for tensor in model.graph.initializer:
                if len(tensor.raw_data) > INLINE:
                    digest = hashlib.sha256(tensor.raw_data).digest()
                    if digest not in offsets:
                        file.write(bytes(-file.tell() % ALIGNMENT))
                        offsets[digest] = file.tell()
                        file.write(tensor.raw_data)
                    _refer(tensor, offsets[digest])
    for name, model in models.items():
        (folder / f"{name}.partial").write_bytes(model.SerializeToString(deterministic=True))
    for name in (WEIGHTS, *models):
        (folder / f"{name}.partial").replace(folder / name)


def _refer(tensor: TensorProto, offset: int) -> None:
    length = len(tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": WEIGHTS, "offset": offset, "length": length}.items():
        tensor.external_data.add(key=key, value=str(value))
