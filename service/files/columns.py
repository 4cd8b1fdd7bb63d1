"""Values from one kind of rows to the other: objects to columns, and columns to what JSON and CSV can say."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from datetime import date, datetime, time
from typing import Any

import pyarrow as pa
from pyarrow import compute

from service.files.inputs import Rows


class Inferred:
    """The columns of JSON objects: every key met, with the narrowest type that holds all of its values.

    Values of kinds that no column has together (a number and a text, say) make it a column of texts.
    """

    def __init__(self) -> None:
        self._types: dict[str, pa.DataType] = {}

    def add(self, rows: Sequence[dict[str, Any]]) -> None:
        """Widen the columns to hold these rows too."""
        for name in dict.fromkeys(name for row in rows for name in row):
            found = _type([row.get(name) for row in rows])
            self._types[name] = _wider(self._types.get(name, found), found)

    @property
    def schema(self) -> pa.Schema:
        """The columns in the order of their first appearance."""
        return pa.schema(list(self._types.items()))


def _type(values: Sequence[Any]) -> pa.DataType:
    kinds = {type(value) for value in values}
    if bool in kinds and not kinds <= {bool, type(None)}:
        return pa.string()  # pyarrow would make 1.0 of true beside a float
    try:
        inferred = pa.array(values).type
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return pa.string()
    return pa.string() if "struct<>" in str(inferred) else inferred  # Parquet has no empty object


def _wider(first: pa.DataType, second: pa.DataType) -> pa.DataType:
    if first == second:
        return first
    schemas = [pa.schema([("", kind)]) for kind in (first, second)]
    try:
        wider: pa.DataType = pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    except pa.ArrowTypeError:
        return pa.string()
    return wider


def as_table(rows: Rows, schema: pa.Schema) -> pa.Table:
    """Rows as columns of a schema that holds them."""
    if isinstance(rows, pa.Table):
        return rows
    return pa.Table.from_arrays(
        [_column([row.get(field.name) for row in rows], field.type) for field in schema], schema=schema
    )


def _column(values: Iterable[Any], kind: pa.DataType) -> pa.Array[Any]:
    if pa.types.is_string(kind):
        return pa.array([_text(value) for value in values], kind)
    if pa.types.is_floating(kind):  # pyarrow refuses an integer that a float does not hold exactly
        return pa.array([None if value is None else float(value) for value in values], kind)
    return pa.array(values, kind)


def as_objects(rows: Rows) -> list[dict[str, Any]]:
    """Rows as objects that `dumps` takes."""
    return _shortest(rows).to_pylist() if isinstance(rows, pa.Table) else rows


def as_texts(table: pa.Table) -> pa.Table:
    """Columns as CSV can hold them: lists and objects as JSON, binary values in base 64."""
    table = _shortest(table)
    for index, field in enumerate(table.schema):
        kind = field.type
        if pa.types.is_string_view(kind):
            table = table.set_column(index, field.name, table.column(index).cast(pa.string()))
        elif pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            texts = [_text(value) for value in table.column(index).to_pylist()]
            table = table.set_column(index, field.name, pa.array(texts, pa.string()))
    return table


def dumps(value: Any) -> str:
    """JSON in one line; what JSON has no kind for as a text."""
    return json.dumps(value, ensure_ascii=False, default=_plain)


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return _plain(value) if isinstance(value, bytes) else dumps(value)


def _plain(value: Any) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.isoformat() if isinstance(value, date | datetime | time) else str(value)


def _shortest(table: pa.Table) -> pa.Table:
    """float32 values as the float64 values that print shortest, and no value that JSON lacks (infinity and NaN)."""
    for index, field in enumerate(table.schema):
        column = table.column(index)
        if field.type == pa.float32():
            column = column.cast(pa.string()).cast(pa.float64())
        elif field.type == pa.list_(pa.float32()):
            column = column.cast(pa.list_(pa.string())).cast(pa.list_(pa.float64()))
        if pa.types.is_floating(column.type):
            column = compute.if_else(compute.is_finite(column), column, pa.scalar(None, column.type))
        table = table.set_column(index, field.name, column)
    return table
