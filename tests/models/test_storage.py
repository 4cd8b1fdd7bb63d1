"""Models are written whole: nobody who reads the one before sees it change."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx", reason="writing graphs needs the training set: make test-models")

from onnx import helper, numpy_helper

from models import storage


def test_who_has_mapped_the_weights_keeps_them_when_they_are_written_anew(tmp_path: Path) -> None:
    def write(value: float, size: int) -> None:
        tensor = numpy_helper.from_array(np.full(size, value, np.float32), "weights")
        model = helper.make_model(helper.make_graph([], "graph", [], [], [tensor]))
        storage.save(tmp_path, {"a.onnx": model})

    write(1.0, 5000)
    with (
        (tmp_path / storage.WEIGHTS).open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
    ):
        write(2.0, 1000)
        assert np.all(np.frombuffer(bytes(mapped), np.float32) == 1.0)
    assert np.all(np.fromfile(tmp_path / storage.WEIGHTS, np.float32) == 2.0)
    assert {path.name for path in tmp_path.iterdir()} == {"a.onnx", storage.WEIGHTS}
