"""Files to blocks of rows: nothing is reinterpreted, and a row that cannot be read keeps its place."""

from __future__ import annotations

import codecs
import io
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, BinaryIO, Literal

import pyarrow as pa
from pyarrow import csv, parquet

from service.errors import RequestError
from service.files.formats import BLOCK, Format

Rows = pa.Table | list[dict[str, Any]]
"""JSONL rows stay objects, since each may have keys of its own; all others are columns."""

DELIMITERS = {"csv": ",", "tsv": "\t"}

# A row longer than this is an error: nothing else would bound the memory that an unclosed quote takes.
LONGEST_ROW = 4 * 1024 * 1024
BUFFER = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Block:
    """Up to BLOCK rows in order, and why those that could not be read could not, by their index; they are empty."""

    rows: Rows
    faults: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class Reading:
    """A file being read. Without a schema its rows are objects; `total` is the number of rows where it is known."""

    blocks: Iterator[Block]
    schema: pa.Schema | None = None
    total: int | None = None


def read(file: BinaryIO, form: Format) -> Reading:
    """Start to read a file (a seekable one if it is Parquet).

    This, and the blocks, raise RequestError for what is not UTF-8 or not of the format.
    """
    if form == "jsonl":
        return Reading(_checked(_json_blocks(file), form))
    try:
        return _parquet(file) if form == "parquet" else _csv(file, form)
    except (pa.ArrowInvalid, OSError) as error:
        raise _unreadable(form, error) from None


def _checked(blocks: Iterator[Block], form: Format) -> Iterator[Block]:
    try:
        yield from blocks
    except (pa.ArrowInvalid, OSError) as error:
        raise _unreadable(form, error) from None


def _unreadable(form: Format, error: Exception) -> RequestError:
    return RequestError(f"the input cannot be read as {form}: {error}", code="bad_file")


def _parquet(file: BinaryIO) -> Reading:
    source = parquet.ParquetFile(file)
    tables = (pa.Table.from_batches([batch]) for batch in source.iter_batches(BLOCK, use_threads=False))
    blocks = (Block(table, {}) for table in _even(tables))
    return Reading(_checked(blocks, "parquet"), source.schema_arrow, source.metadata.num_rows)


def _csv(file: BinaryIO, form: Format) -> Reading:
    stream = io.BufferedReader(Utf8(file), BUFFER)
    names = _header(stream.peek(), form)
    invalid: deque[csv.InvalidRow] = deque()

    def keep(row: csv.InvalidRow) -> Literal["skip"]:
        invalid.append(row)
        return "skip"

    reader = csv.open_csv(
        stream,
        READ,
        _dialect(form, keep),
        csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    tables = _even(_with_invalid(reader, invalid))
    blocks = (Block(table.drop_columns([FAULT]), _faults(table)) for table in tables)
    return Reading(_checked(blocks, form), reader.schema)


# One thread, or the numbers of invalid rows would not be known.
READ = csv.ReadOptions(use_threads=False, block_size=LONGEST_ROW)


def _dialect(form: Format, invalid: Callable[[csv.InvalidRow], Literal["skip"]]) -> csv.ParseOptions:
    return csv.ParseOptions(delimiter=DELIMITERS[form], newlines_in_values=True, invalid_row_handler=invalid)


def _header(head: bytes, form: Format) -> list[str]:
    """The names of the columns, from the first bytes of a file: all of them are to be read as texts."""
    if not head.strip(b"\r\n" + codecs.BOM_UTF8):
        raise RequestError("the input is empty: it has not even a header", code="bad_file")
    return csv.open_csv(io.BytesIO(head + b"\n"), READ, _dialect(form, lambda _: "skip")).schema.names


# The column that carries why a row could not be read, until its block is made. No header holds a NUL.
FAULT = "\0fault"


def _faults(table: pa.Table) -> dict[int, str]:
    return {index: fault for index, fault in enumerate(table.column(FAULT).to_pylist()) if fault is not None}


def _with_invalid(reader: csv.CSVStreamingReader, invalid: deque[csv.InvalidRow]) -> Iterator[pa.Table]:
    """The rows as tables with a column of faults more, an empty row in the place of each that the reader skipped."""
    number = 2  # of the next row; the header is the first
    schema = reader.schema.append(pa.field(FAULT, pa.string()))
    for batch in reader:
        good = pa.Table.from_batches([batch]).append_column(schema.field(FAULT), pa.nulls(len(batch), pa.string()))
        while invalid and _number(invalid[0]) - number <= len(good):
            before = _number(invalid[0]) - number
            yield good.slice(0, before)
            yield _empty_row(schema, invalid.popleft())
            good = good.slice(before)
            number += before + 1
        yield good
        number += len(good)
    for row in invalid:
        yield _empty_row(schema, row)


def _number(row: csv.InvalidRow) -> int:
    return row.number or 0


def _empty_row(schema: pa.Schema, row: csv.InvalidRow) -> pa.Table:
    fault = f"row {row.number} has {row.actual_columns} fields where the header has {row.expected_columns}"
    return pa.Table.from_pylist([{FAULT: fault}], schema)


def _even(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The same rows in tables of BLOCK rows each, but for the last."""
    waiting: list[pa.Table] = []
    rows = 0
    for table in tables:
        waiting.append(table)
        rows += len(table)
        if rows < BLOCK:
            continue
        whole = pa.concat_tables(waiting)
        for start in range(0, rows - BLOCK + 1, BLOCK):
            yield whole.slice(start, BLOCK)
        rows %= BLOCK
        waiting = [whole.slice(len(whole) - rows)] if rows else []
    if rows:
        yield pa.concat_tables(waiting)


def _json_blocks(file: BinaryIO) -> Iterator[Block]:
    stream = io.BufferedReader(Utf8(file), BUFFER)
    lines = enumerate(iter(partial(stream.readline, LONGEST_ROW), b""), 1)
    objects = (_object(line, number) for number, line in lines if line.strip())
    while block := list(islice(objects, BLOCK)):
        faults = {index: row for index, row in enumerate(block) if isinstance(row, str)}
        yield Block([{} if isinstance(row, str) else row for row in block], faults)


def _object(line: bytes, number: int) -> dict[str, Any] | str:
    """A line's object, or why it is none. Read by json, since pyarrow's reader makes dates of texts that look so."""
    if len(line) >= LONGEST_ROW:
        raise RequestError(f"line {number} is longer than {LONGEST_ROW} bytes", code="bad_file")
    try:
        value = json.loads(line.removeprefix(codecs.BOM_UTF8))
        if b"\\ud" in line.lower():
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return f"line {number} contains a lone surrogate: it is not valid Unicode"
    except (ValueError, RecursionError) as error:
        return f"line {number} is not JSON: {error}"
    return value if isinstance(value, dict) else f"line {number} is not a JSON object"


class Utf8(io.RawIOBase):
    """A file's bytes, checked on the way to be UTF-8, with a line end at the end.

    Reading raises RequestError that names the first byte at fault.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._held = b""  # the beginning of a character whose end has not been read
        self._offset = 0
        self._last = b"\n"

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill as much of a buffer, of 4 bytes or more, as there is."""
        new = self._file.read(len(buffer) - len(self._held))
        whole = self._whole(self._held + new, final=not new)
        if not new and self._last != b"\n":
            whole = b"\n"  # without it, a header alone would be no row to pyarrow
        elif new and not whole:
            return self.readinto(buffer)
        self._last = whole[-1:] or self._last
        buffer[: len(whole)] = whole
        return len(whole)

    def _whole(self, data: bytes, *, final: bool) -> bytes:
        """The whole characters that data begins with; the rest is held."""
        if not self._offset and data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise RequestError(
                "the input is UTF-16 by its byte order mark; convert it to UTF-8, as by iconv -f UTF-16 -t UTF-8",
                code="not_utf8",
            )
        try:
            _, length = codecs.utf_8_decode(data, "strict", final)
        except UnicodeDecodeError as error:
            raise RequestError(
                f"the input is not UTF-8: byte {self._offset + error.start} is 0x{data[error.start]:02X}; "
                "convert it first, as by iconv -f WINDOWS-1252 -t UTF-8",
                code="not_utf8",
            ) from None
        self._offset += length
        self._held = data[length:]
        return data[:length]
