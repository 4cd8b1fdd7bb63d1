"""A mean of checkpoints is itself a checkpoint, weight by weight."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from models.average import average
from models.checkpoint import WEIGHTS

safetensors = pytest.importorskip("safetensors.numpy", reason="safetensors belongs to the training set")


@pytest.fixture
def other(checkpoint: Path, tmp_path: Path) -> Path:
    """A checkpoint whose weights are those of the first, and 2 more."""
    folder = tmp_path / "other"
    shutil.copytree(checkpoint, folder)
    state = safetensors.load_file(checkpoint / WEIGHTS)
    safetensors.save_file({name: weight + 2 for name, weight in state.items()}, folder / WEIGHTS)
    return folder


def test_each_weight_is_the_mean_and_the_rest_is_the_firsts(checkpoint: Path, other: Path, tmp_path: Path) -> None:
    average([checkpoint, other], tmp_path / "mean")
    one, mean = (safetensors.load_file(folder / WEIGHTS) for folder in (checkpoint, tmp_path / "mean"))
    assert one.keys() == mean.keys()
    for name, weight in one.items():
        assert mean[name].dtype == weight.dtype
        np.testing.assert_allclose(mean[name], weight + 1, rtol=0, atol=1e-5)
    assert (tmp_path / "mean" / "config.json").read_bytes() == (checkpoint / "config.json").read_bytes()


def test_of_one_checkpoint_it_is_that_one(checkpoint: Path, tmp_path: Path) -> None:
    average([checkpoint], tmp_path / "same")
    one, same = (safetensors.load_file(folder / WEIGHTS) for folder in (checkpoint, tmp_path / "same"))
    assert all(np.array_equal(weight, same[name]) for name, weight in one.items())


def test_checkpoints_of_other_shapes_are_refused(checkpoint: Path, other: Path, tmp_path: Path) -> None:
    state = safetensors.load_file(other / WEIGHTS)
    name = next(iter(state))
    safetensors.save_file({**state, name: state[name][:1]}, other / WEIGHTS)
    with pytest.raises(ValueError, match="have other weights, or in another shape"):
        average([checkpoint, other], tmp_path / "mean")
