"""The whole command: flags and settings, texts and files, what goes to which stream, and how it ends."""

from __future__ import annotations

import gc
import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet
from typer.testing import CliRunner, Result

from service import __version__, cli
from service.api.connections import Bounds
from service.artifact import sha256
from service.errors import ArtifactError, UnavailableError
from service.files import outputs
from service.files import run as running
from service.files.formats import BLOCK
from service.inference import Inference
from service.settings import Settings
from tests.service.api.conftest import TINY

COMMAND = [sys.executable, "-c", "from service.cli import main; main()"]
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tiny model, whatever this machine's variables say."""
    for name in Settings.model_fields:
        monkeypatch.delenv(f"SENTIMENT_{name.upper()}", raising=False)
    monkeypatch.setenv("SENTIMENT_MODEL", str(TINY))
    monkeypatch.setenv("TERMINAL_WIDTH", "200")
    monkeypatch.setenv("COLUMNS", "200")


def sentiment(*arguments: str | Path, stdin: str | None = None) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments], input=stdin)


def lines(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def write(path: Path, text: str) -> Path:
    path.write_text(text, "utf-8")
    return path


def test_without_a_command_the_commands_are_listed() -> None:
    result = sentiment()
    assert result.exit_code == 2
    for command in ("serve", "classify", "embed", "info", "settings"):
        assert command in result.output


def test_info_shows_a_model_that_it_checked(tmp_path: Path) -> None:
    shown = json.loads(sentiment("info").stdout)
    assert (shown["version"], shown["name"], shown["labels"][0]) == (__version__, "tiny", "negative")
    assert shown["digest"] == sha256(TINY / "manifest.json")
    assert "golden" not in shown
    with pytest.raises(ArtifactError):
        CliRunner().invoke(cli.app, ["info", "--model", str(tmp_path)], catch_exceptions=False)


def test_without_a_folder_the_first_of_several_models_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SENTIMENT_MODEL")
    monkeypatch.setenv("SENTIMENT_MODELS", f"a={TINY},b=/nowhere")
    assert json.loads(sentiment("info").stdout)["name"] == "tiny"
    assert lines(sentiment("classify", "the film is good"))[0]["label"]


def test_settings_are_listed_with_what_they_are_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SENTIMENT_PORT", "8123")
    listed = sentiment("settings").stdout
    assert "8123" in listed
    for name in Settings.model_fields:
        assert f"SENTIMENT_{name.upper()}" in listed


def test_a_setting_that_is_wrong_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SENTIMENT_PORT", "99999")
    result = sentiment("settings")
    assert result.exit_code == 2
    assert "SENTIMENT_PORT: " in result.stderr


def test_a_variable_that_is_no_setting_is_refused_with_the_one_that_was_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SENTIMENT_API_KEY", "secret")
    for command in ("settings", "serve"):
        result = sentiment(command)
        assert result.exit_code == 2
        assert result.stderr == "sentiment: SENTIMENT_API_KEY is no setting; did you mean SENTIMENT_API_KEYS?\n"


def test_serve_hands_its_flags_to_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def serve(app: Any, *arguments: Any) -> int:
        asked.append(arguments)
        frozen.append(gc.get_freeze_count())
        assert gc.isenabled()
        return 7

    frozen: list[int] = []
    usual = gc.get_threshold()
    monkeypatch.setattr("service.api.server.run", serve)
    try:
        result = sentiment("serve", "--port", "8123", "--host", "::1", "--grace-period", "5", "--keep-alive", "9")
    finally:
        gc.unfreeze()
        gc.set_threshold(*usual)
    assert result.exit_code == 7
    # A collection under load looks at what came since, not at the whole of the libraries.
    assert frozen[0] > 10_000
    assert asked == [("::1", 8123, 5, Bounds(connections=3000, head_bytes=32768, seconds=30.0, keep_alive=9), None)]


def test_serve_shows_its_flags_and_refuses_others() -> None:
    helped = subprocess.run([*COMMAND, "serve", "--help"], cwd=ROOT, capture_output=True, text=True)
    assert helped.returncode == 0
    assert "--grace-period" in helped.stdout
    assert sentiment("serve", "--prot", "1").exit_code == 2
    assert "SENTIMENT_PORT" in sentiment("serve", "--port", "x").stderr


def test_classify_answers_a_line_for_each_text() -> None:
    result = sentiment("classify", "the film is good", "the film is bad")
    assert result.exit_code == 0
    first, second = lines(result)
    assert set(first) >= {"label", "score", "scores", "valence", "tokens", "truncated"}
    assert first["scores"] != second["scores"]


@pytest.mark.parametrize("arguments", [[], ["-"]])
def test_texts_come_from_standard_input_a_line_each(arguments: list[str]) -> None:
    result = sentiment("classify", *arguments, stdin="good\r\n\nbad\n")
    assert result.exit_code == 1
    good, empty, bad = lines(result)
    assert good == lines(sentiment("classify", "good"))[0]
    assert bad == lines(sentiment("classify", "bad"))[0]
    assert empty["error"]["code"] == "empty_text"


def test_embed_answers_a_vector_for_each_text() -> None:
    result = sentiment("embed", "--pool", "mean", "--normalize", "--dimensions", "4", "good", "")
    assert result.exit_code == 1
    good, empty = lines(result)
    assert sum(value**2 for value in good["embedding"]) == pytest.approx(1, abs=1e-5)
    assert (len(good["embedding"]), good["truncated"]) == (4, False)
    assert empty["error"]["code"] == "empty_text"
    assert sentiment("embed", "--pool", "middle", "good").exit_code == 2


def test_a_long_text_is_read_as_asked() -> None:
    text = "good " * 200
    assert lines(sentiment("classify", text))[0]["truncated"] is False
    assert lines(sentiment("classify", "--long-text", "truncate", text))[0]["truncated"] is True
    assert lines(sentiment("embed", "--long-text", "error", text))[0]["error"]["code"] == "too_many_tokens"


def test_a_file_is_classified_as_its_texts_are(tmp_path: Path) -> None:
    source = write(tmp_path / "in.csv", "id,review\n01,good\n02,bad\n03,\n")
    target = tmp_path / "out.parquet"
    result = sentiment("classify", source, "--text-column", "review", "-o", target)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert re.search(r"3 rows, 1 failed, \d+ rows/s: (\w+ \d(, )?)+\n", result.stderr)
    rows = parquet.read_table(target).to_pylist()
    names = ["negative", "neutral", "positive"]
    assert list(rows[0]) == ["id", "review", "label", "score", *names, "valence", "tokens", "truncated", "error"]
    for row, one in zip(rows, lines(sentiment("classify", "good", "bad")), strict=False):
        assert {name: row[name] for name in names} == one["scores"]
        assert {name: row[name] for name in one if name in row} == {name: one[name] for name in one if name in row}
    assert rows[2] == {**dict.fromkeys(rows[2]), "id": "03", "error": "there is no text"}


def test_a_file_is_embedded_as_its_texts_are(tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", '{"text": "good"}\n{"text": "bad"}\n')
    result = sentiment("embed", source, "--pool", "mean", "-o", tmp_path / "out.parquet")
    assert result.exit_code == 0
    table = parquet.read_table(tmp_path / "out.parquet")
    assert table.column_names == ["text", "embedding", "error"]
    assert str(table.schema.field("embedding").type).endswith("float>")
    for row, one in zip(table.to_pylist(), lines(sentiment("embed", "--pool", "mean", "good", "bad")), strict=True):
        assert row["embedding"] == pytest.approx(one["embedding"], abs=1e-6)


def test_a_file_that_fails_in_nothing_ends_with_0_and_its_answers_on_standard_output(tmp_path: Path) -> None:
    source = write(tmp_path / "in.csv", "text\ngood\n")
    result = sentiment("classify", source)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[0].startswith('"text","label","score"')
    piped = sentiment(
        "classify", "-", "--format", "csv", "--output-format", "jsonl", "--prefix", "ai_", stdin="text\ngood\n"
    )
    assert list(lines(piped)[0])[:2] == ["text", "ai_label"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["in.csv", "--text-column", "review"], "there is no column 'review'; there is id, text"),
        (["in.csv", "-o", "there.csv"], "there.csv exists"),
        (["in.csv", "-o", "-", "--resume"], "only a run from a file to a file"),
        (["in.csv", "-o", "nowhere/out.csv"], "No such file"),
        (["in.csv", "in.csv", "-o", "out.csv"], "give one file"),
        (["--format", "csv"], "give one file"),
        (["gone.csv", "-o", "out.csv"], "there is no file gone.csv"),
        (["in.txt", "-o", "out.csv"], "does not tell a format"),
        (["-", "-o", "out.csv"], "does not tell a format"),
        (["in.csv", "-o", "out.xls"], "does not tell a format"),
        (["in.csv", "--format", "xml"], "is not one of"),
    ],
)
def test_what_cannot_be_done_is_said_and_ends_with_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("in.csv", "in.txt", "there.csv"):
        write(tmp_path / name, "id,text\n1,good\n")
    result = sentiment("classify", *arguments)
    assert result.exit_code == 2
    assert said in re.sub(r"\s*│\n│\s*", " ", result.stderr)
    assert {path.name for path in tmp_path.iterdir()} == {"in.csv", "in.txt", "there.csv"}


def test_what_is_no_file_is_a_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.csv").mkdir()
    write(tmp_path / "good", "bad")
    write(tmp_path / "in.csv", "text\nbad\n")
    for text in ("good", "gone.csv", "folder.csv", "good" + "x" * 300 + ".csv"):
        assert "label" in lines(sentiment("classify", text))[0]
    assert len(lines(sentiment("classify", "in.csv", "good"))) == 2


def test_an_interrupt_leaves_what_can_go_on_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "PART", BLOCK)
    monkeypatch.setattr(running, "PART", BLOCK)
    source = write(tmp_path / "in.csv", "text\n" + "good\n" * (6 * BLOCK))
    whole, target = tmp_path / "whole.parquet", tmp_path / "out.parquet"
    sentiment("classify", source, "-o", whole)
    classify = Inference.classify

    def failing(error: BaseException, blocks: int) -> Callable[..., Any]:
        left = iter(range(blocks))

        def ask(*arguments: Any, **options: Any) -> Any:
            if next(left, None) is None:
                raise error
            return classify(*arguments, **options)

        return ask

    for error, status, said in (
        (KeyboardInterrupt(), 130, "interrupted; what is done is kept in"),
        (UnavailableError("the workers are gone"), 2, "the workers are gone; what is done is kept in"),
        (OSError(28, "No space left"), 2, "No space left; what is done is kept in"),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(Inference, "classify", failing(error, 3))
            result = sentiment("classify", source, "-o", target, "--resume")
        assert result.exit_code == status
        assert said in result.stderr
        assert "--resume goes on" in result.stderr
        assert not target.exists()
    result = sentiment("classify", source, "-o", target, "--resume")
    assert result.exit_code == 0
    assert f"{6 * BLOCK} rows, 0 failed" in result.stderr
    assert target.read_bytes() == whole.read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(Inference, "classify", failing(KeyboardInterrupt(), 0))
        assert "interrupted; nothing is kept" in sentiment("classify", source, "-o", target, "--overwrite").stderr


def interruptible(command: list[str]) -> subprocess.Popen[str]:
    """Start a command that hears SIGINT, also where this process was started in the background and ignores it."""
    heard = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGINT, heard)


def test_ctrl_c_ends_the_process_with_130(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "in")
    command = [*COMMAND, "classify", str(tmp_path / "in"), "--format", "csv", "-o", str(tmp_path / "out.csv")]
    with interruptible(command) as process:
        pipe = os.open(tmp_path / "in", os.O_WRONLY)  # opens when the command has begun to read
        os.write(pipe, b"text\n")
        process.send_signal(signal.SIGINT)
        os.close(pipe)
        assert process.wait(timeout=300) == 130
        assert process.stderr is not None
        assert process.stderr.read() == "sentiment: interrupted; nothing is kept\n"
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def read_terminal(leader: int) -> str:
    """All that is written to a terminal until it is closed at its other end, which Linux tells by an error."""
    told = b""
    with suppress(OSError):
        while data := os.read(leader, 4096):
            told += data
    os.close(leader)
    return told.decode()


def test_progress_is_told_to_a_terminal_alone(tmp_path: Path) -> None:
    source, target = write(tmp_path / "in.csv", "text\n" + "good\n" * 300), tmp_path / "out.jsonl"
    command = [*COMMAND, "classify", str(source), "--overwrite", "-o", str(target)]
    leader, follower = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "120"}
    with subprocess.Popen(command, cwd=ROOT, stderr=follower, env=environment) as process:
        os.close(follower)
        told = read_terminal(leader)
    assert process.returncode == 0
    assert "300/300" in told
    assert "300 rows, 0 failed" in told
    silent = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert re.fullmatch(r"sentiment: 300 rows, 0 failed, \d+ rows/s: [^\n]+\n", silent.stderr)
    assert silent.stdout == ""


def test_parquet_is_not_written_to_a_terminal(tmp_path: Path) -> None:
    source = write(tmp_path / "in.csv", "text\ngood\n")
    leader, follower = pty.openpty()
    command = [*COMMAND, "classify", str(source), "--output-format", "parquet"]
    run = subprocess.run(command, cwd=ROOT, stdout=follower, stderr=subprocess.PIPE, text=True)
    os.close(follower)
    os.close(leader)
    assert run.returncode == 2
    assert "nothing for a terminal" in run.stderr


def test_a_reader_that_has_had_enough_is_no_failure_to_speak_of(tmp_path: Path) -> None:
    source = write(tmp_path / "in.csv", "text\n" + "good\n" * 3000)
    with subprocess.Popen(
        [*COMMAND, "classify", str(source)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.wait(timeout=300) == 1
        assert process.stderr.read() == b""


def test_a_failure_of_ours_is_one_line_and_1(tmp_path: Path) -> None:
    run = subprocess.run([*COMMAND, "info", "--model", str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 1
    assert re.fullmatch(r"sentiment: .*manifest\.json cannot be read: [^\n]*\n", run.stderr)
