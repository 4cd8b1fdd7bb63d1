"""Structured logs, one line an event, that never hold a text: only counts, times and outcomes."""

from __future__ import annotations

import logging
import sys
import traceback
from pathlib import Path
from typing import Any, Literal

import structlog

Format = Literal["json", "console"]


class _Named(structlog.WriteLogger):
    """Writes lines to standard error for a module."""

    def __init__(self, name: str) -> None:
        super().__init__(sys.stderr)
        self.name = name


def configure(level: str, form: Format) -> None:
    """Send our events and those of every library through one format to standard error.

    Ours are written straight there, without a record of `logging` in between, which costs more than the line.
    """
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if form == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[*shared, _without_message, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=_Named,
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, _without_message, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())


def describe(error: BaseException) -> str:
    """An exception's kind and place. Its message is left out: it may quote the text that caused it."""
    trace = traceback.extract_tb(error.__traceback__)
    place = f" at {Path(trace[-1].filename).name}:{trace[-1].lineno}" if trace else ""
    return type(error).__name__ + place


def _without_message(_logger: Any, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """What was logged with its traceback, as servers do with what a handler raised, is described like any other."""
    if info := event.pop("exc_info", None):
        error = info[1] if isinstance(info, tuple) else info if isinstance(info, BaseException) else sys.exception()
        if error:
            event["error"] = describe(error)
    return event


def get(name: str) -> structlog.typing.FilteringBoundLogger:
    """The logger of a module."""
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger(name)
    return logger
