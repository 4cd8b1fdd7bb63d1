"""What is asked of which file, and a look through the input before any of it is answered."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from service.errors import RequestError
from service.files.columns import Inferred
from service.files.formats import Format
from service.files.inputs import Block, Reading, read


@dataclass(frozen=True, slots=True)
class Job:
    """What to do with which file. A path of None is standard input or output."""

    source: Path | None
    source_format: Format
    target: Path | None
    target_format: Format
    column: str
    resume: bool = False
    overwrite: bool = False

    @property
    def piped(self) -> bool:
        """Whether the input comes once, and then is gone."""
        return self.source is None or not self.source.is_file()

    @property
    def resumable(self) -> bool:
        """Whether an interrupted run can go on."""
        return self.target is not None and not self.piped


@dataclass(frozen=True, slots=True)
class Input:
    """A file's rows to come, and what is known of them: the columns (`names` alone for objects), how many rows."""

    blocks: Iterator[Block]
    schema: pa.Schema | None
    names: Sequence[str] | None
    total: int | None


@contextmanager
def opened(job: Job, taken: Sequence[str]) -> Iterator[Input]:
    """The input of a job, looked through as far as that is possible. `taken` are the names of the columns to come.

    Raises RequestError for what is found to be wrong with it.
    """
    with _file(job) as file:
        seen = _look(file, job)
        _check(seen, job, taken)
        yield seen


@contextmanager
def _file(job: Job) -> Iterator[BinaryIO]:
    """The input's bytes. A pipe that has to be read twice, or from its end, is put into a temporary file first."""
    with job.source.open("rb") if job.source else nullcontext(sys.stdin.buffer) as file:
        if not (job.piped and _needs_seeking(job)):
            yield file
            return
        with tempfile.TemporaryFile() as spooled:
            shutil.copyfileobj(file, spooled)
            spooled.seek(0)
            yield spooled


def _needs_seeking(job: Job) -> bool:
    """Parquet is read from its end, and the columns of JSON objects are known when all have been seen."""
    return job.source_format == "parquet" or (job.source_format == "jsonl" and job.target_format != "jsonl")


def _look(file: BinaryIO, job: Job) -> Input:
    """Look through a file: after hours of work is too late to learn that its end is broken.

    It also tells how many rows there are, and the columns of JSON objects. Parquet tells both by itself.
    """
    reading = read(file, job.source_format)
    if reading.total is not None or (job.piped and not _needs_seeking(job)):
        return _input(reading, reading.schema, reading.total)
    total = 0
    inferred = Inferred()
    for block in reading.blocks:
        total += len(block.rows)
        if not isinstance(block.rows, pa.Table):
            inferred.add(block.rows)
    file.seek(0)
    schema = inferred.schema if reading.schema is None else reading.schema
    return _input(read(file, job.source_format), schema, total)


def _input(reading: Reading, schema: pa.Schema | None, total: int | None) -> Input:
    # No objects have no keys, and still nothing is wrong with their file.
    known = schema is not None and (total != 0 or reading.schema is not None)
    return Input(reading.blocks, schema, schema.names if schema is not None and known else None, total)


def _check(found: Input, job: Job, taken: Sequence[str]) -> None:
    if found.names is None:
        return
    column = job.column
    if column not in found.names:
        raise RequestError(f"there is no column {column!r}; there is {', '.join(found.names)}", param="text-column")
    twice = [name for name, number in Counter(found.names).items() if number > 1]
    if twice:
        raise RequestError(f"more than one column is named {twice[0]!r}", code="bad_file")
    check_names(found.names, taken)
    if found.schema is not None and job.source_format == "parquet" and not _holds_text(found.schema.field(column).type):
        raise RequestError(f"column {column!r} holds {found.schema.field(column).type}, not text", param="text-column")


def check_names(names: Iterable[str], taken: Sequence[str]) -> None:
    """Raises RequestError when the input has a column that the answers would replace."""
    for name in names:
        if name in taken:
            raise RequestError(
                f"the input has a column {name!r} already: give the new columns a --prefix", param="prefix"
            )


def _holds_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_null)
    return any(holds(kind) for holds in kinds)
