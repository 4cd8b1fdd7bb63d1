"""An output that is made in parts beside its final name, and appears under it when it is whole.

`<output>.partial/` holds job.json (what the run is of), and for every part its file and then, written last, a .json
with its counts: a part without one was cut short and is made again. So a run that was killed at any moment goes on
after its last whole part, and since parts hold a fixed number of rows, ends in the same file.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count, takewhile
from pathlib import Path
from typing import Any, BinaryIO

from service.errors import RequestError
from service.files.formats import Format
from service.files.outputs import join


@dataclass
class Counts:
    """What became of some rows."""

    rows: int = 0
    failed: int = 0
    labels: Counter[str] = field(default_factory=Counter)

    def add(self, other: Counts) -> None:
        """Count other rows too."""
        self.rows += other.rows
        self.failed += other.failed
        self.labels += other.labels


JOB = "job.json"


def partial_folder(target: Path) -> Path:
    """Where an output's parts are while it is being made."""
    return target.with_name(f"{target.name}.partial")


class Parts:
    """The parts of one output."""

    def __init__(
        self, target: Path, form: Format, job: Mapping[str, Any], *, resume: bool = False, overwrite: bool = False
    ) -> None:
        """Find what there is to go on with. Nothing is touched before `begin`.

        Raises RequestError when the run would lose what is there, or mix with another.
        """
        self.target = target
        self.folder = partial_folder(target)
        self.done: list[Counts] = []
        self._form = form
        self._job = job
        unfinished = self.folder.exists()
        if target.exists() and not overwrite:
            raise RequestError(f"{target} exists: --overwrite replaces it", code="output_exists")
        if unfinished and not (resume or overwrite):
            raise RequestError(
                f"{self.folder} holds an unfinished run: --resume goes on with it, --overwrite starts anew",
                code="output_exists",
            )
        if unfinished and resume:
            self._take_up()

    def _take_up(self) -> None:
        try:
            begun = json.loads((self.folder / JOB).read_bytes())
        except FileNotFoundError:
            return  # killed before it began
        differing = [name for name in self._job if begun.get(name) != self._job[name]]
        if differing:
            raise RequestError(
                f"{self.folder} was begun with other {', '.join(differing)}: "
                "it can only go on as it began; --overwrite without --resume starts anew",
                code="other_run",
            )
        numbers = takewhile(lambda number: self._counted(number).exists(), count())
        self.done = [self._read(number) for number in numbers]

    def begin(self) -> None:
        """Make the folder, unless the run goes on with what is there."""
        if self.done:
            return
        if self.folder.exists():
            self.discard()
        self.folder.mkdir()
        self._write_json(self.folder / JOB, self._job)

    @contextmanager
    def add(self, counts: Counts) -> Iterator[BinaryIO]:
        """Write the next part; it counts once the block has ended, with what `counts` holds by then."""
        number = len(self.done)
        with self._part(number).open("wb") as file:
            yield file
            _sync(file)
        self._write_json(self._counted(number), vars(counts))
        self.done.append(counts)

    def finish(self) -> None:
        """Join the parts under the output's final name, and clear up."""
        whole = self.folder / "whole"
        with whole.open("wb") as file:
            join([self._part(number) for number in range(len(self.done))], file, self._form)
            _sync(file)
        whole.replace(self.target)
        self.discard()

    def discard(self) -> None:
        """Remove the parts."""
        shutil.rmtree(self.folder)

    def _part(self, number: int) -> Path:
        return self.folder / f"{number:06}"

    def _counted(self, number: int) -> Path:
        return self.folder / f"{number:06}.json"

    def _read(self, number: int) -> Counts:
        counts = json.loads(self._counted(number).read_bytes())
        return Counts(counts["rows"], counts["failed"], Counter(counts["labels"]))

    def _write_json(self, path: Path, value: Mapping[str, Any]) -> None:
        """All of it or nothing, whenever the process ends."""
        unfinished = path.with_suffix(".new")
        with unfinished.open("wb") as file:
            file.write(json.dumps(value).encode())
            _sync(file)
        unfinished.replace(path)


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
