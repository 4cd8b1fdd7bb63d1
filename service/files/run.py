"""A file of texts through an operation: read, answered with a bounded number of blocks in flight, written in order."""

from __future__ import annotations

import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import pyarrow as pa

from service.errors import RequestError, ServiceError
from service.files.formats import BLOCK
from service.files.inputs import Block
from service.files.operations import Operation
from service.files.outputs import PART, writer
from service.files.parts import Counts, Parts
from service.files.survey import Input, Job, check_names, opened

Progress = Callable[[int, int | None], None]
"""Told of the rows done, and of how many there are where that is known."""

# One block being finished, one being worked on, and one for the time in which the first is written.
IN_FLIGHT = 3


@dataclass(frozen=True, slots=True)
class Summary:
    """How a run ended: what the output holds, and the rows answered in `seconds` (after a resume, fewer)."""

    counts: Counts
    answered: int
    seconds: float


def run(job: Job, operation: Operation, progress: Progress) -> Summary:
    """Answer every row of a file; a row that fails has its error in the last column.

    Raises RequestError for what cannot be done as asked, ServiceError when nothing more can be answered, and OSError
    when a file cannot be read or written: a job that is resumable can then go on from where it was.
    """
    if job.resume and not job.resumable:
        raise RequestError("only a run from a file to a file can be resumed", param="resume")
    parts = _parts(job, operation)
    with opened(job, operation.schema.names) as found:
        if parts is None:
            return _answer(found, job, operation, None, progress)
        parts.begin()
        try:
            return _answer(found, job, operation, parts, progress)
        except BaseException:
            if not (job.resumable and parts.done):
                parts.discard()
            raise


def _parts(job: Job, operation: Operation) -> Parts | None:
    if job.target is None:
        return None
    described = {"output format": job.target_format, "text column": job.column, "rows in a part": PART, **operation.job}
    if job.source is not None:
        status = job.source.stat()
        described |= {"input": [job.source_format, status.st_size, status.st_mtime_ns]}
    return Parts(job.target, job.target_format, described, resume=job.resume, overwrite=job.overwrite)


def _answer(found: Input, job: Job, operation: Operation, parts: Parts | None, progress: Progress) -> Summary:
    counts = Counts()
    for done in parts.done if parts else []:
        counts.add(done)
    resumed = counts.rows
    progress(resumed, found.total)
    began = time.monotonic()
    blocks = islice(found.blocks, -(-resumed // BLOCK), None)

    with closing(_answered(blocks, operation, job.column)) as answered:

        def counted() -> Iterator[tuple[Block, pa.Table, Counts]]:
            for block, answers in answered:
                of_block = _counts(answers, operation)
                yield block, answers, of_block
                counts.add(of_block)
                progress(counts.rows, found.total)

        if parts:
            _write_parts(parts, counted(), found.schema, job, operation)
            parts.finish()
        else:
            _write_pipe(counted(), found.schema, job, operation)
    return Summary(counts, counts.rows - resumed, time.monotonic() - began)


def _write_parts(
    parts: Parts,
    answered: Iterator[tuple[Block, pa.Table, Counts]],
    schema: pa.Schema | None,
    job: Job,
    operation: Operation,
) -> None:
    # An input without rows makes one part all the same: it holds the header.
    while (first := next(answered, None)) or not parts.done:
        counts = Counts()
        group = chain([first], islice(answered, PART // BLOCK - 1)) if first else ()
        with (
            parts.add(counts) as file,
            closing(writer(file, job.target_format, schema, operation.schema, first=not parts.done)) as out,
        ):
            for block, answers, of_block in group:
                out.write(block.rows, answers)
                counts.add(of_block)


def _write_pipe(
    answered: Iterator[tuple[Block, pa.Table, Counts]], schema: pa.Schema | None, job: Job, operation: Operation
) -> None:
    with closing(writer(sys.stdout.buffer, job.target_format, schema, operation.schema, first=True)) as out:
        for block, answers, _ in answered:
            out.write(block.rows, answers)


def _answered(blocks: Iterator[Block], operation: Operation, column: str) -> Generator[tuple[Block, pa.Table]]:
    """Blocks with their answers, in order; the next ones are in work meanwhile."""
    flying: deque[tuple[Block, list[Any], Future[list[Any]] | None]] = deque()
    try:
        for block in blocks:
            flying.append((block, *_ask(block, operation, column)))
            if len(flying) == IN_FLIGHT:
                yield _landed(*flying.popleft(), operation)
        while flying:
            yield _landed(*flying.popleft(), operation)
    finally:
        for _, _, future in flying:
            if future:
                future.cancel()


def _ask(block: Block, operation: Operation, column: str) -> tuple[list[Any], Future[list[Any]] | None]:
    """A block's texts, with an error in the place of each that is none, and the answers to the others to come."""
    if isinstance(block.rows, pa.Table):
        values = block.rows.column(column).to_pylist()
    else:
        values = [row.get(column) for row in block.rows]
        check_names(chain.from_iterable(block.rows), operation.schema.names)
    texts = [_text(value, block.faults.get(index)) for index, value in enumerate(values)]
    good = [text for text in texts if isinstance(text, str)]
    return texts, operation.ask(good) if good else None


def _text(value: object, fault: str | None) -> str | ServiceError:
    if isinstance(value, str):
        return value
    if fault is None:
        fault = "there is no text" if value is None else f"the text is of type {type(value).__name__}, not a string"
    return RequestError(fault)


def _landed(
    block: Block, texts: list[Any], future: Future[list[Any]] | None, operation: Operation
) -> tuple[Block, pa.Table]:
    answers = iter(future.result() if future else [])
    outcomes = [next(answers) if isinstance(text, str) else text for text in texts]
    nothing = (None,) * (len(operation.schema) - 1)
    rows = [
        (*nothing, outcome.message) if isinstance(outcome, ServiceError) else (*operation.values(outcome), None)
        for outcome in outcomes
    ]
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, operation.schema, strict=True)]
    return block, pa.Table.from_arrays(arrays, schema=operation.schema)


def _counts(answers: pa.Table, operation: Operation) -> Counts:
    failed = len(answers) - answers.column(-1).null_count
    labels = answers.column(operation.labels).to_pylist() if operation.labels else []
    return Counts(len(answers), failed, Counter(label for label in labels if label is not None))
