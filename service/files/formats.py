"""The formats of files, known without loading what reads and writes them."""

from __future__ import annotations

from typing import Literal

Format = Literal["csv", "tsv", "jsonl", "parquet"]

FORMATS: dict[str, Format] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}

BLOCK = 256
"""Rows in every block but the last: what is asked of the workers at once."""
