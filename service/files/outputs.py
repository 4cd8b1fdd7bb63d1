"""Rows with their answers to a file of one format."""

from __future__ import annotations

from pathlib import Path
from shutil import copyfileobj
from typing import BinaryIO, Protocol

import pyarrow as pa
from pyarrow import csv, parquet

from service.files.columns import as_objects, as_table, as_texts, dumps
from service.files.formats import BLOCK, Format
from service.files.inputs import DELIMITERS, Rows

PART = 32 * BLOCK
"""Rows in a part, and in a row group of Parquet: what an interrupted run has to do again at most."""


class Writer(Protocol):
    """Writes blocks to a file, which stays open."""

    def write(self, rows: Rows, answers: pa.Table) -> None:
        """Append rows, each with its answer."""

    def close(self) -> None:
        """End the file; nothing more is written."""


def writer(file: BinaryIO, form: Format, schema: pa.Schema | None, answers: pa.Schema, *, first: bool) -> Writer:
    """Write rows of a schema (None: objects, which only JSONL takes); the header only if these are the first."""
    if form == "jsonl":
        return _Jsonl(file)
    if schema is None:
        raise ValueError(f"{form} has columns: they must be known")
    if form == "parquet":
        return _Parquet(file, schema, answers)
    return _Csv(file, schema, answers, DELIMITERS[form], header=first)


def join(parts: list[Path], target: BinaryIO, form: Format) -> None:
    """One file of parts, in order."""
    if form == "parquet":
        with parquet.ParquetWriter(target, parquet.read_schema(parts[0]), compression="zstd") as whole:
            for part in parts:
                whole.write_table(parquet.read_table(part, partitioning=None))
        return
    for part in parts:
        with part.open("rb") as source:
            copyfileobj(source, target)


class _Jsonl:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def write(self, rows: Rows, answers: pa.Table) -> None:
        pairs = zip(as_objects(rows), as_objects(answers), strict=True)
        self._file.write("".join(f"{dumps(row | answer)}\n" for row, answer in pairs).encode())

    def close(self) -> None:
        self._file.flush()


class _Csv:
    def __init__(self, file: BinaryIO, schema: pa.Schema, answers: pa.Schema, delimiter: str, *, header: bool) -> None:
        self._file = file
        self._schema = schema
        self._options = csv.WriteOptions(include_header=False, delimiter=delimiter)
        if header:
            options = csv.WriteOptions(include_header=True, delimiter=delimiter)
            csv.write_csv(as_texts(extended(schema, answers).empty_table()), file, options)

    def write(self, rows: Rows, answers: pa.Table) -> None:
        table = beside(as_table(rows, self._schema), answers)
        # In one chunk: for one that is empty, pyarrow writes what its buffer happens to hold (apache/arrow#36889).
        csv.write_csv(as_texts(table).combine_chunks(), self._file, self._options)

    def close(self) -> None:
        self._file.flush()


class _Parquet:
    def __init__(self, file: BinaryIO, schema: pa.Schema, answers: pa.Schema) -> None:
        self._schema = schema
        self._writer = parquet.ParquetWriter(file, extended(schema, answers), compression="zstd")
        self._waiting: list[pa.Table] = []

    def write(self, rows: Rows, answers: pa.Table) -> None:
        self._waiting.append(beside(as_table(rows, self._schema), answers))
        if sum(map(len, self._waiting)) >= PART:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.concat_tables(self._waiting), PART)
            self._waiting.clear()


def extended(schema: pa.Schema, answers: pa.Schema) -> pa.Schema:
    """The columns of the rows and then those of the answers; what else the rows' schema says is kept."""
    return pa.schema([*schema, *answers]).with_metadata(schema.metadata)


def beside(rows: pa.Table, answers: pa.Table) -> pa.Table:
    """One table of both, row by row."""
    return pa.Table.from_arrays([*rows.columns, *answers.columns], schema=extended(rows.schema, answers.schema))
