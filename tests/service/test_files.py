"""Files in and out: nothing of theirs is lost or reinterpreted, a bad row fails alone, a killed run goes on."""

from __future__ import annotations

import codecs
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from service.errors import InputError, RequestError, UnavailableError
from service.files import inputs, outputs
from service.files import run as running
from service.files.formats import BLOCK, FORMATS
from service.files.inputs import DELIMITERS
from service.files.operations import Operation
from service.files.outputs import writer
from service.files.parts import partial_folder
from service.files.run import Summary, run
from service.files.survey import Job

ALL = ["csv", "tsv", "jsonl", "parquet"]
PART = 2 * BLOCK


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of few rows, so that a test needs few."""
    monkeypatch.setattr(outputs, "PART", PART)
    monkeypatch.setattr(running, "PART", PART)


def answer(texts: Sequence[str]) -> Future[list[Any]]:
    """Answers at once. A text with "bad" in it fails."""
    future: Future[list[Any]] = Future()
    future.set_result([InputError("it is bad") if "bad" in text else text for text in texts])
    return future


def operation(ask: Callable[[Sequence[str]], Future[list[Any]]] = answer, prefix: str = "", **job: Any) -> Operation:
    """A text's label is its first letter, and its size its length."""
    names: dict[str, pa.DataType] = {"label": pa.string(), "size": pa.int32(), "error": pa.string()}
    schema = pa.schema([(f"{prefix}{name}", kind) for name, kind in names.items()])
    described = {"operation": "test", "prefix": prefix, **job}
    return Operation(schema, ask, lambda text: (text[:1], len(text)), described, labels=f"{prefix}label")


def start(source: Path | None, target: Path | None, what: Operation | None = None, **options: Any) -> Summary:
    """Run a file whose formats are told by names, or given."""
    chosen = {
        "source_format": FORMATS[source.suffix] if source and source.suffix else None,
        "target_format": FORMATS[target.suffix] if target else None,
        "column": "text",
        **options,
    }
    return run(Job(source=source, target=target, **chosen), what or operation(), lambda done, total: None)


def rows_of(path: Path) -> list[dict[str, Any]]:
    """All rows of a file, the cells of CSV as texts."""
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    if path.suffix == ".parquet":
        return parquet.read_table(path).to_pylist()
    with path.open("rb") as file:
        blocks = [block.rows for block in inputs.read(file, FORMATS[path.suffix]).blocks]
    return [row for rows in blocks for row in (rows.to_pylist() if isinstance(rows, pa.Table) else rows)]


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def numbered(path: Path, rows: int) -> Path:
    """A file of so many rows, in the format of its name; every hundredth is bad."""
    table = pa.table(
        {
            "id": [f"{i:05}" for i in range(rows)],
            "text": [f"{'bad' if i % 100 == 7 else 'ok'} {i}" for i in range(rows)],
        }
    )
    if path.suffix == ".parquet":
        parquet.write_table(table, path, row_group_size=300)
    elif path.suffix == ".jsonl":
        write(path, "".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    else:
        csv.write_csv(table, path, csv.WriteOptions(delimiter=DELIMITERS[path.suffix[1:]]))
    return path


def refused(source: Path | None, target: Path | None, **options: Any) -> str:
    """Why a run is refused; nothing is left of it."""
    before = target.read_bytes() if target and target.exists() else None
    with pytest.raises(RequestError) as caught:
        start(source, target, **options)
    if target:
        assert (target.read_bytes() if target.exists() else None) == before
    return caught.value.message


CELLS = [
    "007",
    'say "hi"',
    "two\nlines",
    "two\r\nlines",
    "comma, tab\t",
    "",
    None,
    " spaced ",
    "ü 🎉 e\u0301",
    "NA",
    "1e5",
]


@pytest.mark.parametrize("target", ALL)
@pytest.mark.parametrize("source", ALL)
def test_cells_come_through_from_every_format_to_every_other(tmp_path: Path, source: str, target: str) -> None:
    rows = [{"id": cell, "text": f"a{index}"} for index, cell in enumerate(CELLS)]
    first, second, third = tmp_path / f"1.{source}", tmp_path / f"2.{target}", tmp_path / "3.jsonl"
    if source == "jsonl":
        write(first, "".join(json.dumps(row) + "\n" for row in rows))
    elif source == "parquet":
        parquet.write_table(pa.Table.from_pylist(rows), first)
    else:
        csv.write_csv(pa.Table.from_pylist(rows), first, csv.WriteOptions(delimiter=DELIMITERS[source]))
    counts = start(first, second).counts
    assert (counts.rows, counts.failed, counts.labels) == (len(rows), 0, {"a": len(rows)})
    start(second, third, operation(prefix="x_"))
    got = rows_of(third)
    assert list(got[0]) == ["id", "text", "label", "size", "error", "x_label", "x_size", "x_error"]
    assert [{"id": row["id"], "text": row["text"]} for row in got] == rows
    assert {row["label"] for row in got} == {"a"}
    assert not list(tmp_path.glob("*.partial"))


def test_a_bad_row_has_its_error_in_its_place_and_the_rest_goes_on(tmp_path: Path) -> None:
    source = write(tmp_path / "in.csv", 'id,text\n1,good\n2,bad\n3,\n4,a,b\n5\n\n6,""\n7,"x\ny"\n8,z,\n')
    counts = start(source, tmp_path / "out.csv").counts
    assert (counts.rows, counts.failed, counts.labels) == (8, 5, {"g": 1, "": 1, "x": 1})
    got = rows_of(tmp_path / "out.csv")
    assert [(row["id"], row["label"], row["error"]) for row in got] == [
        ("1", "g", None),
        ("2", None, "it is bad"),
        ("3", None, "there is no text"),
        (None, None, "row 5 has 3 fields where the header has 2"),
        (None, None, "row 6 has 1 fields where the header has 2"),
        ("6", "", None),
        ("7", "x", None),
        (None, None, "row 9 has 3 fields where the header has 2"),
    ]


def test_rows_that_cannot_be_read_keep_their_place_over_many_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "READ", csv.ReadOptions(use_threads=False, block_size=500))
    broken = {0, 1, 255, 256, 257, 700, 998, 999}
    lines = (f"{i},a,b\n" if i in broken else f'{i},"ok\n{i}"\n' for i in range(1000))
    start(write(tmp_path / "in.csv", "id,text\n" + "".join(lines)), tmp_path / "out.parquet")
    got = rows_of(tmp_path / "out.parquet")
    assert [row["id"] for row in got] == [None if i in broken else str(i) for i in range(1000)]
    assert [row["error"] for row in got if row["error"]] == [
        f"row {i + 2} has 3 fields where the header has 2" for i in sorted(broken)
    ]


def test_rows_that_cannot_be_read_may_be_all_of_the_last_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "READ", csv.ReadOptions(use_threads=False, block_size=500))
    source = write(tmp_path / "in.csv", "id,text\n1,a\n" + "1,a,b\n" * 1000)
    counts = start(source, tmp_path / "out.csv").counts
    assert (counts.rows, counts.failed) == (1001, 1000)


@pytest.mark.parametrize("text", ["text", "text\n", "\ufefftext\r\n", "id,text\n"])
def test_a_header_alone_makes_a_header_alone(tmp_path: Path, text: str) -> None:
    summary = start(write(tmp_path / "in.csv", text), tmp_path / "out.csv")
    assert (summary.counts.rows, summary.counts.failed) == (0, 0)
    columns = ["id", "text"] if "id" in text else ["text"]
    assert (tmp_path / "out.csv").read_text() == ",".join(
        f'"{name}"' for name in [*columns, "label", "size", "error"]
    ) + "\n"
    start(tmp_path / "in.csv", tmp_path / "out.parquet")
    assert parquet.read_schema(tmp_path / "out.parquet").names == [*columns, "label", "size", "error"]


def test_a_byte_order_mark_is_no_part_of_the_first_name(tmp_path: Path) -> None:
    for source in (
        write(tmp_path / "1.csv", codecs.BOM_UTF8 + b"text,id\na,1\n"),
        write(tmp_path / "2.jsonl", codecs.BOM_UTF8 + b'{"text": "a", "id": "1"}\n'),
    ):
        target = source.with_suffix(".out.jsonl")
        start(source, target)
        assert rows_of(target) == [{"text": "a", "id": "1", "label": "a", "size": 1, "error": None}]


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_what_is_not_utf8_is_refused_with_the_place_of_its_first_byte(tmp_path: Path, suffix: str) -> None:
    good = b"id,text\n" if suffix == "csv" else b""
    line = "1,grün\n" if suffix == "csv" else '{"text": "grün"}\n'
    good += line.encode() * 70_000  # more than is read at once
    late = write(tmp_path / f"late.{suffix}", good + line.encode("latin-1"))
    at = len(good) + line.index("ü")
    assert f"byte {at} is 0xFC" in refused(late, tmp_path / "out.csv")
    cut = write(tmp_path / f"cut.{suffix}", good + "ü".encode()[:1])
    assert f"byte {len(good)} is 0xC3" in refused(cut, tmp_path / "out.csv")
    for order in ("utf-16-le", "utf-16-be"):
        wide = write(tmp_path / f"wide.{suffix}", ("\ufeff" + line).encode(order))
        assert "UTF-16" in refused(wide, tmp_path / "out.csv")
    assert not list(tmp_path.glob("*.partial"))


def test_a_sign_split_between_two_reads_is_whole() -> None:
    data = ("é🎉" * 10 + "\n").encode()

    class Slow(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            return super().read(min(size or 0, 1))

    for file in (io.BytesIO(data), Slow(data)):
        assert io.BufferedReader(inputs.Utf8(file), 5).read() == data


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("in.csv", "id,review\n1,a\n", "there is no column 'text'; there is id, review"),
        ("in.jsonl", '{"id": 1}\n{"review": "a"}\n', "there is no column 'text'; there is id, review"),
        ("in.csv", "", "the input is empty"),
        ("in.csv", codecs.BOM_UTF8, "the input is empty"),
        ("in.tsv", "\n\n", "the input is empty"),
        ("in.csv", "text,id,id\na,1,2\n", "more than one column is named 'id'"),
        ("in.csv", "text,label\na,b\n", "a column 'label' already"),
        ("in.jsonl", '{"text": "a"}\n{"text": "a", "error": 1}\n', "a column 'error' already"),
        ("in.csv", 'id,text\n1,"unclosed' + "\nx" * inputs.LONGEST_ROW, "cannot be read as csv"),
        ("in.jsonl", '{"text": "' + "x" * inputs.LONGEST_ROW + '"}', "line 1 is longer than"),
        ("in.parquet", "text\na\n", "cannot be read as parquet"),
    ],
)
def test_what_is_wrong_with_a_whole_file_is_said_before_any_work(
    tmp_path: Path, name: str, content: str | bytes, said: str
) -> None:
    def never(texts: Sequence[str]) -> Future[list[Any]]:
        raise AssertionError(texts)

    assert said in refused(write(tmp_path / name, content), tmp_path / "out.jsonl", what=operation(never))
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_parquet_file_whose_pages_are_broken_is_refused(tmp_path: Path) -> None:
    source = numbered(tmp_path / "in.parquet", 1000)
    data = bytearray(source.read_bytes())
    data[4:2000] = bytes(1996)
    source.write_bytes(data)
    assert "cannot be read as parquet" in refused(source, tmp_path / "out.csv")


@pytest.mark.parametrize("kind", [pa.int64(), pa.binary(), pa.list_(pa.field("element", pa.string()))])
def test_a_parquet_column_without_text_is_refused(tmp_path: Path, kind: pa.DataType) -> None:
    parquet.write_table(pa.table({"text": pa.array([], kind)}), tmp_path / "in.parquet")
    assert f"holds {kind}, not text" in refused(tmp_path / "in.parquet", tmp_path / "out.csv")


@pytest.mark.parametrize("kind", [pa.large_string(), pa.dictionary(pa.int32(), pa.string()), pa.null()])
def test_every_kind_of_text_column_is_read(tmp_path: Path, kind: pa.DataType) -> None:
    texts = [None] if pa.types.is_null(kind) else ["a", "b", "a"]
    parquet.write_table(pa.table({"text": pa.array(texts).cast(kind)}), tmp_path / "in.parquet")
    start(tmp_path / "in.parquet", tmp_path / "out.parquet")
    assert parquet.read_schema(tmp_path / "out.parquet").field("text").type == kind
    assert [row["label"] for row in rows_of(tmp_path / "out.parquet")] == texts


def test_jsonl_keeps_what_each_line_holds(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"text": "a", "n": 1, "big": 2**70, "nested": {"x": [1, None]}},
        {"n": "one", "text": "b", "when": "2020-01-01"},
        {"text": "c", "f": 1.5, "t": True},
    ]
    source = write(tmp_path / "in.jsonl", "\n\n".join(json.dumps(row) for row in rows))
    start(source, tmp_path / "out.jsonl")
    assert rows_of(tmp_path / "out.jsonl") == [{**row, "label": row["text"], "size": 1, "error": None} for row in rows]


def test_jsonl_lines_at_fault_fail_alone(tmp_path: Path) -> None:
    lines = [
        '{"text": "a"}',
        '{"text": 5}',
        "{oops",
        "[1]",
        '{"id": 1}',
        '{"text": "\\ud83d"}',
        '{"text": "b"}',
        "[" * 9999,
    ]
    counts = start(write(tmp_path / "in.jsonl", "\n".join(lines)), tmp_path / "out.jsonl").counts
    assert (counts.rows, counts.failed) == (8, 6)
    got = rows_of(tmp_path / "out.jsonl")
    assert got[0]["label"] == "a"
    assert got[6]["label"] == "b"
    assert "is of type int, not a string" in got[1]["error"]
    assert got[2]["error"].startswith("line 3 is not JSON: ")
    assert got[3]["error"] == "line 4 is not a JSON object"
    assert (got[4]["id"], got[4]["error"]) == (1, "there is no text")
    assert "lone surrogate" in got[5]["error"]
    assert got[7]["error"].startswith("line 8 is not JSON: ")


def test_jsonl_without_lines_makes_a_file_without_rows(tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", "")
    assert start(source, tmp_path / "out.jsonl").counts.rows == 0
    assert (tmp_path / "out.jsonl").read_bytes() == b""
    start(source, tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == '"label","size","error"\n'


def test_columns_of_jsonl_hold_all_values_of_the_whole_file(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"text": "a", "n": 1, "mix": 1, "flag": True, "o": {"x": 1}, "e": {}} for _ in range(BLOCK)
    ]
    rows += [{"text": "b", "n": 2.5, "mix": "1", "flag": 0.5, "o": {"y": ["z"]}, "late": 2**70, "i": 2**60}]
    rows[-1]["beside"], rows[0]["beside"] = 0.5, True
    rows[1]["beside"] = 1.5
    source = write(tmp_path / "in.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    start(source, tmp_path / "out.parquet")
    first, *_, last = rows_of(tmp_path / "out.parquet")
    assert (first["n"], first["mix"], first["flag"], first["o"], first["e"]) == (
        1.0,
        "1",
        "true",
        {"x": 1, "y": None},
        "{}",
    )
    assert (last["n"], last["mix"], last["flag"], last["o"], last["e"]) == (
        2.5,
        "1",
        "0.5",
        {"x": None, "y": ["z"]},
        None,
    )
    assert (last["late"], last["i"], first["late"]) == (str(2**70), 2**60, None)
    assert (first["beside"], last["beside"]) == ("true", "0.5")
    start(source, tmp_path / "out.csv")
    assert rows_of(tmp_path / "out.csv")[-1]["o"] == '{"x": null, "y": ["z"]}'


def test_integers_among_floats_may_be_large(tmp_path: Path) -> None:
    rows = [*({"text": "a", "n": 2**60 + 1} for _ in range(BLOCK)), {"text": "b", "n": 0.5}]
    source = write(tmp_path / "in.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    start(source, tmp_path / "out.parquet")
    assert rows_of(tmp_path / "out.parquet")[0]["n"] == float(2**60)


def test_parquet_keeps_its_types_and_other_formats_say_what_they_can(tmp_path: Path) -> None:
    table = pa.table(
        {
            "text": pa.array(["a"]),
            "when": pa.array([datetime(2020, 1, 2)], pa.timestamp("ns")),  # noqa: DTZ001
            "raw": pa.array([b"\xff"]),
            "small": pa.array([0.1], pa.float32()),
            "vector": pa.array([[0.1, 1e-9]], pa.list_(pa.float32())),
            "nan": pa.array([float("nan")]),
            "view": pa.array(["q"], pa.string_view()),
        }
    ).replace_schema_metadata({"made by": "someone"})
    parquet.write_table(table, tmp_path / "in.parquet")
    start(tmp_path / "in.parquet", tmp_path / "out.parquet")
    kept = parquet.read_table(tmp_path / "out.parquet")
    assert kept.select(table.column_names).schema.equals(parquet.read_schema(tmp_path / "in.parquet"))
    assert kept.schema.metadata[b"made by"] == b"someone"
    start(tmp_path / "in.parquet", tmp_path / "out.jsonl")
    assert (tmp_path / "out.jsonl").read_text() == (
        '{"text": "a", "when": "2020-01-02T00:00:00", "raw": "/w==", "small": 0.1, "vector": [0.1, 1e-09], '
        '"nan": null, "view": "q", "label": "a", "size": 1, "error": null}\n'
    )
    start(tmp_path / "in.parquet", tmp_path / "out.csv")
    row = rows_of(tmp_path / "out.csv")[0]
    assert (row["raw"], row["small"], row["vector"], row["view"]) == ("/w==", "0.1", "[0.1, 1e-09]", "q")


def test_an_empty_chunk_adds_nothing_to_csv() -> None:
    rows = pa.table({"text": pa.chunked_array([pa.array([], pa.string()), pa.array(["a"])])})
    answers = pa.Table.from_pylist([{"label": "a", "size": 1, "error": None}], operation().schema)
    file = io.BytesIO()
    out = writer(file, "csv", rows.schema, answers.schema, first=True)
    for _ in range(100):
        out.write(rows, answers)
    assert file.getvalue().decode().splitlines() == ['"text","label","size","error"', *['"a","a",1,'] * 100]


class Workers:
    """Answers only when told, as workers do; counts what they were given and have not answered."""

    def __init__(self) -> None:
        self.most = 0
        self._asked: list[tuple[Future[list[Any]], Sequence[str]]] = []

    def ask(self, texts: Sequence[str]) -> Future[list[Any]]:
        future = Late(self)
        self._asked.append((future, texts))
        self.most = max(self.most, sum(len(texts) for _, texts in self._asked))
        return future

    def answer_all(self) -> None:
        while self._asked:
            future, texts = self._asked.pop()  # the last ones first
            future.set_result(list(texts))


class Late(Future[list[Any]]):
    def __init__(self, workers: Workers) -> None:
        super().__init__()
        self._workers = workers

    def result(self, timeout: float | None = None) -> list[Any]:
        if not self.done():
            self._workers.answer_all()
        return super().result(timeout)


def test_few_blocks_are_in_flight_and_order_is_kept(tmp_path: Path) -> None:
    workers = Workers()
    source = write(tmp_path / "in.csv", "text\n" + "".join(f"{i}\n" for i in range(5000)))
    done: list[tuple[int, int | None]] = []
    job = Job(source, "csv", tmp_path / "out.csv", "csv", "text")
    run(job, operation(workers.ask), lambda *now: done.append(now))
    assert BLOCK < workers.most <= 3 * BLOCK
    assert [row["text"] for row in rows_of(tmp_path / "out.csv")] == [str(i) for i in range(5000)]
    assert done[0] == (0, 5000)
    assert done[-1] == (5000, 5000)


def stopping(after: int) -> Operation:
    """The workers die after so many blocks."""
    left = iter(range(after))

    def ask(texts: Sequence[str]) -> Future[list[Any]]:
        if next(left, None) is None:
            raise UnavailableError("the workers are gone")
        return answer(texts)

    return operation(ask)


@pytest.mark.parametrize("suffix", ALL)
def test_an_interrupted_run_goes_on_to_the_same_file(tmp_path: Path, suffix: str) -> None:
    source = numbered(tmp_path / f"in.{suffix}", 4 * PART + 100)
    whole, target = tmp_path / f"whole.{suffix}", tmp_path / f"out.{suffix}"
    expected = start(source, whole)
    for blocks in (5, 1, 5):  # in the second part, in it again, in the third
        with pytest.raises(UnavailableError):
            start(source, target, stopping(blocks), resume=True)
        assert not target.exists()
    summary = start(source, target, resume=True)
    assert target.read_bytes() == whole.read_bytes()
    assert summary.counts == expected.counts
    assert summary.answered == 2 * PART + 100
    assert not partial_folder(target).exists()


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.service import test_files as t
t.outputs.PART = t.running.PART = t.PART
blocks, source, target = int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
left = iter(range(blocks))
def ask(texts):
    if next(left, None) is None:
        os.kill(os.getpid(), signal.SIGKILL)
    return t.answer(texts)
if not blocks:  # while the parts are being joined
    t.Path.replace = lambda self, to: os.kill(os.getpid(), signal.SIGKILL) if to == target else os.replace(self, to)
    ask = t.answer
t.start(source, target, t.operation(ask), resume=True)
"""


@pytest.mark.parametrize(("suffix", "blocks"), [("csv", 5), ("jsonl", 5), ("parquet", 5), ("parquet", 0), ("csv", 0)])
def test_a_killed_run_goes_on_to_the_same_file(tmp_path: Path, suffix: str, blocks: int) -> None:
    source = numbered(tmp_path / "in.csv", 3 * PART + 100)
    whole, target = tmp_path / f"whole.{suffix}", tmp_path / f"out.{suffix}"
    start(source, whole)
    command = [sys.executable, "-c", KILLED, str(blocks), str(source), str(target)]
    killed = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert not target.exists()
    assert partial_folder(target).is_dir()
    summary = start(source, target, resume=True)
    assert target.read_bytes() == whole.read_bytes()
    assert summary.answered == (2 * PART + 100 if blocks else 0)
    assert {path.name for path in tmp_path.iterdir()} == {"in.csv", whole.name, target.name}


def test_a_run_goes_on_only_with_what_it_began_with(tmp_path: Path) -> None:
    source, target = numbered(tmp_path / "in.csv", 3 * PART), tmp_path / "out.csv"
    with pytest.raises(UnavailableError):
        start(source, target, stopping(5))
    assert "holds an unfinished run" in refused(source, target)
    assert "other operation" in refused(source, target, resume=True, what=operation(operation="another"))
    assert "other text column" in refused(source, target, resume=True, column="id")
    assert "other output format" in refused(source, target, resume=True, target_format="jsonl")
    os.utime(source, ns=(0, 0))
    assert "other input" in refused(source, target, resume=True)
    assert start(source, target, overwrite=True).answered == 3 * PART


def test_a_mistake_does_not_cost_what_an_interrupted_run_has_done(tmp_path: Path) -> None:
    source, target = numbered(tmp_path / "in.csv", 3 * PART), tmp_path / "out.csv"
    with pytest.raises(UnavailableError):
        start(source, target, stopping(5))
    refused(source, target, overwrite=True, column="txet")
    assert start(source, target, resume=True).answered == 2 * PART


def test_an_output_that_exists_stays_unless_it_is_to_be_overwritten(tmp_path: Path) -> None:
    source, target = write(tmp_path / "in.csv", "text\na\n"), write(tmp_path / "out.csv", "precious")
    assert "exists: --overwrite" in refused(source, target)
    assert "exists: --overwrite" in refused(source, target, resume=True)
    with pytest.raises(UnavailableError):
        start(source, target, stopping(0), overwrite=True)
    assert target.read_text() == "precious"
    start(source, target, overwrite=True)
    assert rows_of(target)[0]["label"] == "a"
    start(target, target, operation(prefix="again_"), overwrite=True)
    assert rows_of(target)[0]["again_label"] == "a"


def test_a_folder_that_began_without_a_job_is_begun_again(tmp_path: Path) -> None:
    source, target = write(tmp_path / "in.csv", "text\na\n"), tmp_path / "out.csv"
    partial_folder(target).mkdir()
    assert start(source, target, resume=True).counts.rows == 1


class Pipe(io.BytesIO):
    def seekable(self) -> bool:
        return False

    def seek(self, *_: Any) -> int:
        raise io.UnsupportedOperation

    tell = seek


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bytes], Callable[[], bytes]]]:
    """Standard input with these bytes, and what was then written to standard output."""

    def piped(data: bytes) -> Callable[[], bytes]:
        out = Pipe()
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=Pipe(data)))
        monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=out))
        return out.getvalue

    yield piped
    monkeypatch.undo()


@pytest.mark.parametrize("target", ALL)
@pytest.mark.parametrize("source", ALL)
def test_pipes(tmp_path: Path, pipe: Callable[[bytes], Callable[[], bytes]], source: str, target: str) -> None:
    file = numbered(tmp_path / f"in.{source}", 1000)
    start(file, tmp_path / f"want.{target}")
    written = pipe(file.read_bytes())
    start(None, None, source_format=source, target_format=target)
    got = write(tmp_path / f"got.{target}", written())
    assert rows_of(got) == rows_of(tmp_path / f"want.{target}")


def test_a_pipe_cannot_be_resumed_and_leaves_nothing(
    tmp_path: Path, pipe: Callable[[bytes], Callable[[], bytes]]
) -> None:
    data = numbered(tmp_path / "in.csv", 3 * PART).read_bytes()
    pipe(data)
    assert "only a run from a file" in refused(None, tmp_path / "out.csv", source_format="csv", resume=True)
    with pytest.raises(UnavailableError):
        start(None, tmp_path / "out.csv", stopping(5), source_format="csv")
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]
    pipe(data)
    start(None, tmp_path / "out.csv", source_format="csv")
    assert len(rows_of(tmp_path / "out.csv")) == 3 * PART


def test_a_named_pipe_is_a_pipe(tmp_path: Path) -> None:
    data = numbered(tmp_path / "in.parquet", 300).read_bytes()
    os.mkfifo(tmp_path / "fifo")
    with subprocess.Popen([sys.executable, "-c", f"open({str(tmp_path / 'fifo')!r}, 'wb').write({data!r})"]):
        start(tmp_path / "fifo", tmp_path / "out.jsonl", source_format="parquet")
    assert len(rows_of(tmp_path / "out.jsonl")) == 300


def test_objects_from_a_pipe_may_not_lose_a_value_to_an_answer(pipe: Callable[[bytes], Callable[[], bytes]]) -> None:
    pipe(b'{"text": "a", "label": "mine"}\n')
    with pytest.raises(RequestError, match="a column 'label' already"):
        start(None, None, source_format="jsonl", target_format="jsonl")
