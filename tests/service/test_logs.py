"""Logs: one form for our lines and for every library's, and never what a text says."""

import io
import json
import logging
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest
import structlog
import uvicorn

from service import logs

SECRET = "I love my secret"

Lines: TypeAlias = Callable[[], list[dict[str, Any]]]


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Leave logging as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers, root.level = handlers, level
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


@pytest.fixture
def lines(capsys: pytest.CaptureFixture[str]) -> Lines:
    """What has been written since the last call, as the objects it holds. Nothing goes to standard output."""

    def lines() -> list[dict[str, Any]]:
        out, err = capsys.readouterr()
        assert out == ""
        return [json.loads(line) for line in err.splitlines()]

    return lines


def raise_(message: str) -> None:
    raise ValueError(message)


def test_an_event_is_a_line_of_json(lines: Lines) -> None:
    logs.configure("info", "json")
    logs.get("service.some").info("text\nread", tokens=7, share=0.5, path="é\n")
    (line,) = lines()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", line.pop("timestamp"))
    assert line == {
        "event": "text\nread",
        "tokens": 7,
        "share": 0.5,
        "path": "é\n",
        "level": "info",
        "logger": "service.some",
    }


def test_a_librarys_event_has_the_same_form(lines: Lines) -> None:
    logs.configure("info", "json")
    uvicorn.Config(lambda: None, log_config=None, access_log=False)
    logging.getLogger("uvicorn.error").info("Started server process [%d]", 42)
    logs.get("service.some").info("started")
    theirs, ours = lines()
    assert theirs["event"] == "Started server process [42]"
    assert theirs["logger"] == "uvicorn.error"
    assert theirs.keys() == ours.keys()


@pytest.mark.parametrize("form", ["json", "console"])
def test_what_is_logged_with_its_traceback_is_described_without_its_message(
    form: logs.Format, capsys: pytest.CaptureFixture[str]
) -> None:
    """uvicorn logs what a handler raised in this way, and the message may quote the text."""
    logs.configure("info", form)
    try:
        raise_(SECRET)
    except ValueError as error:
        logging.getLogger("uvicorn.error").exception("Exception in ASGI application")
        logging.getLogger("uvicorn.error").error("the same", exc_info=error)
        logs.get("service").exception("ours")
        logs.get("service").error("ours, given", exc_info=error)
    written = capsys.readouterr().err
    assert SECRET not in written
    assert len(re.findall(r"ValueError at test_logs\.py:\d+", written)) == 4
    assert len(written.splitlines()) == 4


def test_a_traceback_of_nothing_is_nothing(lines: Lines) -> None:
    logs.configure("info", "json")
    logging.getLogger("some").exception("failed")  # noqa: LOG004 - some library will
    logs.get("service").exception("failed")
    for line in lines():
        assert line["event"] == "failed"
        assert "error" not in line
        assert "exc_info" not in line


def test_what_is_bound_to_a_request_stands_in_every_line_of_it(lines: Lines) -> None:
    logs.configure("info", "json")
    with structlog.contextvars.bound_contextvars(request_id="r-1"):
        logs.get("service").info("ours")
        logging.getLogger("library").warning("theirs")
    logs.get("service").info("later")
    assert [line.get("request_id") for line in lines()] == ["r-1", "r-1", None]


@pytest.mark.parametrize(("level", "count"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)])
def test_less_severe_events_are_left_out(lines: Lines, level: str, count: int) -> None:
    logs.configure(level, "json")
    for name in ("debug", "info", "warning", "error"):
        getattr(logs.get("service"), name)("event")
        logging.getLogger("library").log(logging.getLevelName(name.upper()), "event")
    assert len(lines()) == 2 * count


def test_configuring_again_replaces_the_form(capsys: pytest.CaptureFixture[str]) -> None:
    log = logs.get("service")
    logs.configure("info", "json")
    logs.configure("info", "console")
    log.info("once", tokens=3)
    written = capsys.readouterr().err
    assert len(written.splitlines()) == 1
    assert re.search(r"\[info +\] once .*tokens=3", written)
    assert "\x1b" not in written


def test_the_console_has_colours_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    logs.configure("info", "console")
    logs.get("service").info("bright")
    assert "\x1b[" in terminal.getvalue()


def test_a_description_is_the_kind_and_the_place_and_not_the_message() -> None:
    with pytest.raises(ValueError, match=SECRET) as caught:
        raise_(SECRET)
    assert re.fullmatch(r"ValueError at test_logs\.py:\d+", logs.describe(caught.value))


def test_an_error_that_was_never_raised_has_no_place() -> None:
    assert logs.describe(KeyError(SECRET)) == "KeyError"
