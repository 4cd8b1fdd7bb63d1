"""A part's results as JSON: its settings, and rows that are written as they come."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Row = dict[str, Any]


class Record:
    """Results in a file, of which the first row replaces those of an earlier run."""

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self._path = path
        self.settings = json.loads(json.dumps(settings))
        self.rows: list[Row] = []

    @classmethod
    def resume(cls, path: Path, settings: Mapping[str, Any]) -> Record:
        """Go on with a stopped run's file, if there is one. Raises ValueError if it has other settings."""
        record = cls(path, settings)
        if path.exists():
            written, record.rows = read(path)
            if written != record.settings:
                raise ValueError(f"{path} was begun with other settings: remove it to begin again")
        return record

    def has(self, **key: object) -> bool:
        """Whether a row with these values is there."""
        return any(all(row[name] == value for name, value in key.items()) for row in self.rows)

    def add(self, **row: object) -> None:
        """Add a row and write the file."""
        self.rows.append(row)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        text = ",\n".join(f"  {json.dumps(one, ensure_ascii=False)}" for one in self.rows)
        self._path.write_text(
            f'{{\n "settings": {json.dumps(self.settings, ensure_ascii=False)},\n "rows": [\n{text}\n ]\n}}\n',
            encoding="utf-8",
        )


def read(path: Path) -> tuple[Row, list[Row]]:
    """A file's settings and rows."""
    written = json.loads(path.read_text(encoding="utf-8"))
    return written["settings"], written["rows"]
