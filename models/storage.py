"""Writing graphs to disk: large tensors go to one file that all graphs of a model share, each distinct one once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import onnx
from onnx import TensorProto

from service.artifact import Table
from service.engine import WORDS

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


def words(folder: Path, graphs: Iterable[str]) -> Table | None:
    """The word table of the graphs in a folder, if it is in a file beside them and the same for all."""
    tables = [_table(onnx.load(folder / name, load_external_data=False)) for name in graphs]
    return tables[0] if all(table == tables[0] for table in tables) else None


def _table(model: onnx.ModelProto) -> Table | None:
    for tensor in model.graph.initializer:
        if tensor.name == WORDS and tensor.data_location == TensorProto.EXTERNAL:
            where = {entry.key: entry.value for entry in tensor.external_data}
            dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).name
            return Table.model_validate(
                {"file": where["location"], "offset": where["offset"], "dtype": dtype, "shape": tuple(tensor.dims)}
            )
    return None


def _refer(tensor: TensorProto, offset: int) -> None:
    length = len(tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": WEIGHTS, "offset": offset, "length": length}.items():
        tensor.external_data.add(key=key, value=str(value))
