"""The `sentiment` command: the service, and the same answers on the command line."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from rich.console import Console
from rich.table import Table

from service import __version__
from service.api.schemas import Shown, classify_result, embedding_values, error_body
from service.artifact import Artifact
from service.cpu import usable_cores
from service.errors import ServiceError
from service.inference import Inference, Limits, Pool
from service.logs import configure
from service.metrics import Metrics
from service.scheduler import Scheduler
from service.settings import Settings

app = typer.Typer(
    help="Says how a text feels: a BERT classifier on the CPU.", no_args_is_help=True, pretty_exceptions_enable=False
)

ModelOption = Annotated[Path | None, typer.Option(help="Folder of the model; unset: SENTIMENT_MODEL, or the default.")]
TextArguments = Annotated[list[str] | None, typer.Argument(help="Texts; without any, one a line from standard input.")]


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
    # FastAPI and uvicorn, which no other command needs
    from service.api.app import create_app
    from service.api.server import run

    chosen = _settings(_cli_prog_name="sentiment serve", _cli_parse_args=context.args)
    configure(chosen.log_level, chosen.log_format)
    sys.exit(run(create_app(chosen), chosen.host, chosen.port, chosen.grace_period))


@app.command()
def classify(texts: TextArguments = None, model: ModelOption = None) -> None:
    """Label texts: one line of JSON for each."""
    with _inference(model) as inference:
        shown = Shown(inference.manifest.labels)
        _answer(texts, inference.limits.texts, inference.classify, lambda one: classify_result(one, shown))


@app.command()
def embed(
    texts: TextArguments = None,
    model: ModelOption = None,
    pool: Annotated[str, typer.Option(help="cls or mean.")] = "cls",
    normalize: Annotated[bool, typer.Option("--normalize", help="Scale each vector to unit length.")] = False,
    dimensions: Annotated[int | None, typer.Option(help="Keep the first so many values.")] = None,
) -> None:
    """Turn texts into vectors: one line of JSON for each."""
    if pool not in ("cls", "mean"):
        raise typer.BadParameter("use cls or mean", param_hint="--pool")
    chosen: Pool = "mean" if pool == "mean" else "cls"
    with _inference(model) as inference:

        def ask(batch: Sequence[str]) -> Future[list[Any]]:
            return inference.embed(batch, chosen, normalize=normalize, dimensions=dimensions)

        def line(one: Any) -> Mapping[str, Any]:
            if isinstance(one, ServiceError):
                return error_body(one)
            return {"embedding": embedding_values(one), "tokens": one.tokens, "truncated": one.left_out > 0}

        _answer(texts, inference.limits.texts, ask, line)


@app.command()
def info(model: ModelOption = None) -> None:
    """Show what a model folder holds, after checking it."""
    manifest = Artifact.open(model or _settings().model).manifest
    shown = manifest.model_dump(mode="json", exclude={"golden", "files"})
    typer.echo(json.dumps({"version": __version__, **shown}, indent=2))


@app.command()
def settings() -> None:
    """List every setting: its variable, its value now, and what it does."""
    table = Table("variable", "flag", "now", "what it is")
    current = _settings()
    for name, field in Settings.model_fields.items():
        flag = "--" + name.replace("_", "-")
        table.add_row(f"SENTIMENT_{name.upper()}", flag, str(getattr(current, name)), field.description)
    Console().print(table)


def _settings(**sources: Any) -> Settings:
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
    scheduler = Scheduler(current.workers or usable_cores(), current.queue, metrics)
    limits = Limits(**current.limits)
    inference = Inference.open(model or current.model, scheduler, metrics, limits)
    scheduler.start()
    try:
        yield inference
    finally:
        scheduler.stop(timeout=0.0)


def _answer(
    texts: list[str] | None,
    batch: int,
    ask: Callable[[Sequence[str]], Future[list[Any]]],
    line: Callable[[Any], Mapping[str, Any]],
) -> None:
    """Write one line of JSON a text, errors in their place. Exit status 1 if any text failed."""
    failed = False
    lines: Iterable[str] = texts or (line.rstrip("\r\n") for line in sys.stdin)
    source = iter(lines)
    while group := list(islice(source, batch)):
        for answer in ask(group).result():
            failed |= isinstance(answer, ServiceError)
            typer.echo(json.dumps(line(answer)))
    if failed:
        raise typer.Exit(1)
