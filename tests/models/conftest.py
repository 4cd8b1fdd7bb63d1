"""A tiny checkpoint and its data, made once for the tests of how a model is made."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a Hugging Face checkpoint of the tests' tiny BERT."""
    pytest.importorskip("safetensors", reason="safetensors belongs to the training set: make test-models")
    from tests.tiny import write_checkpoint

    folder = tmp_path_factory.mktemp("checkpoint")
    write_checkpoint(folder)
    return folder


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the data files that the steps read."""
    pytest.importorskip("safetensors", reason="safetensors belongs to the training set: make test-models")
    from tests.tiny import write_data

    folder = tmp_path_factory.mktemp("data")
    write_data(folder)
    return folder
