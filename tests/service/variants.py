"""Further models made of the tiny one, for tests that need several, or one that is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.service.api.conftest import TINY

OTHER_LABELS = ["bad", "plain", "good"]


def variant(folder: Path, **changes: Any) -> Path:
    """A copy of the tiny model whose manifest says something else: its labels are others, unless told otherwise."""
    shutil.copytree(TINY, folder)
    path = folder / "manifest.json"
    manifest: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    golden = [{**one, "label": None} for one in manifest["golden"]]
    written = {**manifest, "labels": OTHER_LABELS, "golden": golden, **changes}
    path.write_text(json.dumps(written), encoding="utf-8")
    return folder


def lying(folder: Path) -> Path:
    """A copy of the tiny model that does not answer its golden texts as its manifest says."""
    golden: list[dict[str, Any]] = json.loads((TINY / "manifest.json").read_text(encoding="utf-8"))["golden"]
    golden[0]["logits"][0] += 1
    return variant(folder, golden=golden)
