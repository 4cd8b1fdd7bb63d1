"""The `sentiment` command: the service, and the same answers on the command line."""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import ValidationError

from service import __version__
from service.api.schemas import Shown, classify_result, embedding_values, error_body
from service.artifact import Artifact
from service.cpu import usable_cores
from service.errors import RequestError, ServiceError
from service.files.formats import BLOCK, FORMATS, Format
from service.inference import Inference, Limits, LongText, Pool
from service.logs import configure
from service.metrics import Metrics
from service.scheduler import Scheduler
from service.settings import Settings, unknown_variables

if TYPE_CHECKING:
    import socket

    from service.api.siblings import Place
    from service.files.operations import Operation
    from service.files.survey import Job

app = typer.Typer(
    help="Says how a text feels: a BERT classifier on the CPU.", no_args_is_help=True, pretty_exceptions_enable=False
)

ModelOption = Annotated[
    Path | None,
    typer.Option(help="Folder of the model; unset: SENTIMENT_MODEL, or the first of SENTIMENT_MODELS, or the default."),
]
TextArguments = Annotated[
    list[str] | None,
    typer.Argument(
        help="Texts, or one file: a single argument is a file if it names a .csv, .tsv, .jsonl or .parquet file that "
        "exists, or if an option for files is given. - is standard input; so is no argument, one text a line.",
        show_default=False,
    ),
]
LongTextOption = Annotated[
    LongText, typer.Option(help="A text longer than the model reads: in windows, cut, or an error.")
]
FILES = "For files"
ColumnOption = Annotated[
    str | None, typer.Option(help="The column of texts; unset: text.", rich_help_panel=FILES, show_default=False)
]
OutputOption = Annotated[
    str | None,
    typer.Option("--output", "-o", help="File to write; unset or -: standard output.", rich_help_panel=FILES),
]
FormatOption = Annotated[
    Format | None, typer.Option("--format", help="Format of the input; unset: by its name.", rich_help_panel=FILES)
]
OutputFormatOption = Annotated[
    Format | None,
    typer.Option(help="Format of the output; unset: by its name, or that of the input.", rich_help_panel=FILES),
]
PrefixOption = Annotated[str, typer.Option(help="What the new columns' names begin with.", rich_help_panel=FILES)]
OverwriteOption = Annotated[
    bool, typer.Option("--overwrite", help="Replace an output that exists.", rich_help_panel=FILES)
]
ResumeOption = Annotated[
    bool, typer.Option("--resume", help="Go on with a run that was interrupted.", rich_help_panel=FILES)
]

# What uvicorn ends with, too, when it cannot listen.
NOT_STARTED = 3

# New objects before the youngest are looked through, then how many times that before the older and the oldest are.
COLLECTED = (2_000, 10, 100)

# Nobody else asks here, and what waits is bounded by what a command has in flight: this bound is never met.
QUEUE = 1 << 20


def main() -> None:
    """Run the command; a failure of ours is one line on standard error and exit status 1."""
    try:
        app()
    except ServiceError as error:
        typer.echo(f"sentiment: {error.message}", err=True)
        sys.exit(1)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []})
def serve(context: typer.Context) -> None:
    """Run the service. Every setting is a flag here: see `sentiment serve --help` or `sentiment settings`."""
    chosen = _settings(_cli_prog_name="sentiment serve", _cli_parse_args=context.args)
    if chosen.processes == 1:
        sys.exit(_serve(chosen))
    configure(chosen.log_level, chosen.log_format)
    from service.api import processes

    try:
        sys.exit(processes.run(partial(_serve, chosen), chosen.processes, chosen.host, chosen.port))
    except OSError as error:
        _say(f"cannot serve on {chosen.host}:{chosen.port} with {chosen.processes} processes: {error.strerror}")
        sys.exit(NOT_STARTED)


def _serve(chosen: Settings, place: Place | None = None, listener: socket.socket | None = None) -> int:
    """Serve in this process until a signal comes: its exit status."""
    with _made_to_stay():
        # FastAPI and uvicorn, which no other command needs
        from service.api.app import create_app
        from service.api.connections import Bounds
        from service.api.server import run as run_server

        configure(chosen.log_level, chosen.log_format)
        bounds = Bounds(chosen.max_connections, chosen.max_head_bytes, chosen.transfer_timeout, chosen.keep_alive)
        application = create_app(chosen, place)
    return run_server(application, chosen.host, chosen.port, chosen.grace_period, bounds, listener)


@contextmanager
def _made_to_stay() -> Iterator[None]:
    """Nothing made inside, and nothing made before, is looked at for garbage again, and all that comes later seldom.

    Every request waits while the collector looks through what is imported, and through the thousands that wait in a
    press. It would find nothing: no request leaves circles of objects behind.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.set_threshold(*COLLECTED)
        gc.enable()


@app.command()
def classify(
    texts: TextArguments = None,
    model: ModelOption = None,
    long_text: LongTextOption = "window",
    text_column: ColumnOption = None,
    output: OutputOption = None,
    form: FormatOption = None,
    output_format: OutputFormatOption = None,
    prefix: PrefixOption = "",
    overwrite: OverwriteOption = False,
    resume: ResumeOption = False,
) -> None:
    """Label texts, one line of JSON for each; or the rows of a file, the answers as new columns."""
    job = _job(texts, text_column, output, form, output_format, overwrite=overwrite, resume=resume)
    with _inference(model) as inference:
        if job:
            from service.files import operations

            # The first rows are answered in the time it takes; for a few texts it would not be worth that.
            thread = threading.Thread(target=inference.hasten, name="hasten")
            thread.start()
            try:
                _run(job, operations.classify(inference, prefix, long_text))
            finally:
                thread.join()  # a process that ends while ONNX Runtime makes a session is aborted
            return
        shown = Shown(inference.manifest.labels)
        _answer(texts, partial(inference.classify, long_text=long_text), lambda one: classify_result(one, shown))


@app.command()
def embed(
    texts: TextArguments = None,
    model: ModelOption = None,
    pool: Annotated[
        Pool, typer.Option(help="The vector of [CLS], or the mean or maximum of all tokens' vectors.")
    ] = "cls",
    normalize: Annotated[bool, typer.Option("--normalize", help="Scale each vector to unit length.")] = False,
    dimensions: Annotated[int | None, typer.Option(help="Keep the first so many values.")] = None,
    long_text: LongTextOption = "window",
    text_column: ColumnOption = None,
    output: OutputOption = None,
    form: FormatOption = None,
    output_format: OutputFormatOption = None,
    prefix: PrefixOption = "",
    overwrite: OverwriteOption = False,
    resume: ResumeOption = False,
) -> None:
    """Turn texts into vectors, one line of JSON for each; or the rows of a file, the vectors as a new column."""
    job = _job(texts, text_column, output, form, output_format, overwrite=overwrite, resume=resume)
    how: dict[str, Any] = {"pool": pool, "long_text": long_text, "normalize": normalize, "dimensions": dimensions}
    with _inference(model) as inference:
        if job:
            from service.files import operations

            _run(job, operations.embed(inference, prefix, **how))
            return
        _answer(texts, partial(inference.embed, **how), _embedding)


@app.command()
def info(model: ModelOption = None) -> None:
    """Show what a model folder holds, after checking it."""
    artifact = Artifact.open(model or _default_model(_settings()))
    shown = artifact.manifest.model_dump(mode="json", exclude={"golden", "files"})
    typer.echo(json.dumps({"version": __version__, "digest": artifact.digest, **shown}, indent=2))


@app.command()
def settings() -> None:
    """List every setting: its variable, its value now, and what it does."""
    from rich.console import Console
    from rich.table import Table

    table = Table("variable", "flag", "now", "what it is")
    current = _settings()
    for name, field in Settings.model_fields.items():
        flag = "--" + name.replace("_", "-")
        table.add_row(f"SENTIMENT_{name.upper()}", flag, str(getattr(current, name)), field.description)
    Console().print(table)


def _default_model(current: Settings) -> Path:
    return next(iter(current.folders.values()))


def _settings(**sources: Any) -> Settings:
    if unknown := unknown_variables(os.environ):
        for name, near in unknown.items():
            meant = f"; did you mean {near}?" if near else "; the README lists them"
            typer.echo(f"sentiment: {name} is no setting{meant}", err=True)
        raise SystemExit(2)
    try:
        return Settings(**sources)
    except ValidationError as error:
        for problem in error.errors():
            name = ".".join(str(part) for part in problem["loc"])
            typer.echo(f"sentiment: {f'SENTIMENT_{name.upper()}: ' if name else ''}{problem['msg']}", err=True)
        raise SystemExit(2) from None


@contextmanager
def _inference(model: Path | None) -> Iterator[Inference]:
    """The service's own inference on all usable cores, without a server around it."""
    current = _settings()
    metrics = Metrics()
    scheduler = Scheduler(current.workers or usable_cores(), QUEUE, metrics)
    limits = replace(Limits(**current.limits), texts=BLOCK)
    inference = Inference.open(model or _default_model(current), scheduler, metrics, limits)
    scheduler.start()
    try:
        yield inference
    finally:
        # A worker that still runs while the interpreter ends would abort the process. What waits was cancelled.
        scheduler.stop(timeout=10.0)


def _answer(
    texts: list[str] | None,
    ask: Callable[[Sequence[str]], Future[list[Any]]],
    line: Callable[[Any], Mapping[str, Any]],
) -> None:
    """Write one line of JSON a text, errors in their place. Exit status 1 if any text failed."""
    failed = False
    given = texts if texts and texts != ["-"] else (line.rstrip("\r\n") for line in sys.stdin)
    source = iter(given)
    while group := list(islice(source, BLOCK)):
        answers = ask(group)
        try:
            answers.result()
        finally:
            answers.cancel()  # for an interrupt; what is done cannot be
        for answer in answers.result():
            failed |= isinstance(answer, ServiceError)
            typer.echo(json.dumps(line(answer)))
    if failed:
        raise typer.Exit(1)


def _embedding(answer: Any) -> Mapping[str, Any]:
    if isinstance(answer, ServiceError):
        return error_body(answer)
    return {"embedding": embedding_values(answer), "tokens": answer.tokens, "truncated": answer.left_out > 0}


def _job(
    arguments: list[str] | None,
    column: str | None,
    output: str | None,
    source_format: Format | None,
    target_format: Format | None,
    *,
    overwrite: bool,
    resume: bool,
) -> Job | None:
    """What is to be done with which file; None if the arguments are texts."""
    meant = any((column, output, source_format, target_format, overwrite, resume))
    one = arguments[0] if arguments and len(arguments) == 1 else None
    if not (meant or (one and _format(one) and _exists(one))):
        return None
    if one is None:
        raise typer.BadParameter("give one file, or - for standard input", param_hint="TEXTS")
    if one != "-" and not _exists(one):
        raise typer.BadParameter(f"there is no file {one}", param_hint="TEXTS")
    source_format = source_format or _format(one)
    if source_format is None:
        raise typer.BadParameter(f"the name {one} does not tell a format: give it", param_hint="--format")
    target = None if output in (None, "-") else output
    target_format = target_format or (_format(target) if target else source_format)
    if target_format is None:
        raise typer.BadParameter(f"the name {target} does not tell a format: give it", param_hint="--output-format")
    if target is None and target_format == "parquet" and sys.stdout.isatty():
        raise typer.BadParameter("Parquet is nothing for a terminal: name a file", param_hint="--output")
    # pyarrow, which costs time and memory that serving need not pay
    try:
        from service.files.survey import Job
    except ModuleNotFoundError as error:
        if error.name != "pyarrow":
            raise
        _say("files are read with pyarrow, which is not installed: pip install 'sentiment-service[files]'")
        raise typer.Exit(2) from None

    return Job(
        source=None if one == "-" else Path(one),
        source_format=source_format,
        target=Path(target) if target else None,
        target_format=target_format,
        column="text" if column is None else column,
        resume=resume,
        overwrite=overwrite,
    )


def _format(name: str) -> Format | None:
    return FORMATS.get(Path(name).suffix.lower())


def _exists(name: str) -> bool:
    try:
        path = Path(name)
        return path.exists() and not path.is_dir()
    except (OSError, ValueError):  # a text, too long for a name or with a NUL in it
        return False


def _run(job: Job, operation: Operation) -> None:
    """Answer a file and say how it went. Exit status: 1 a row failed, 2 nothing was written, 130 interrupted."""
    from service.files.progress import shown
    from service.files.run import run

    try:
        with shown() as progress:
            summary = run(job, operation, progress)
    except KeyboardInterrupt:
        _say(f"interrupted; {_kept(job)}")
        raise typer.Exit(130) from None
    except RequestError as error:
        _say(error.message)
        raise typer.Exit(2) from None
    except BrokenPipeError:
        raise  # whoever read the output has had enough: click ends the command in silence
    except (ServiceError, OSError) as error:
        _say(f"{error}; {_kept(job)}")
        raise typer.Exit(2) from None
    counts = summary.counts
    labels = ", ".join(f"{label} {number}" for label, number in sorted(counts.labels.items()))
    rate = summary.answered / max(summary.seconds, 1e-9)
    _say(f"{counts.rows} rows, {counts.failed} failed, {rate:.0f} rows/s" + (f": {labels}" if labels else ""))
    if counts.failed:
        raise typer.Exit(1)


def _kept(job: Job) -> str:
    from service.files.parts import partial_folder

    if job.target and (folder := partial_folder(job.target)).exists():
        return f"what is done is kept in {folder}: the same command with --resume goes on"
    return "nothing is kept"


def _say(message: str) -> None:
    typer.echo(f"sentiment: {message}", err=True)
