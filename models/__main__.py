"""How a model is made, step by step: finetune, export, quantize, verify."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__)

Folder = Annotated[Path, typer.Argument(exists=True, file_okay=False, help="The model's folder.")]
Checkpoint = Annotated[Path, typer.Argument(exists=True, file_okay=False, help="A Hugging Face checkpoint.")]
Data = Annotated[Path, typer.Option(exists=True, file_okay=False, help="The folder with the data files.")]
Way = Annotated[str | None, typer.Option(help="Take this way instead of the fastest within the bounds.")]
Seed = Annotated[int, typer.Option(help="Decides which training texts calibrate.")]


@app.command()
def export(checkpoint: Checkpoint, out: Annotated[Path, typer.Option(help="The model's folder.")]) -> None:
    """Write a checkpoint as float32 ONNX graphs, in OUT/fp32, and its tokenizer."""
    from models.export import export

    export(checkpoint, out)


@app.command()
def quantize(folder: Folder, data: Data, classify: Way = None, embed: Way = None, seed: Seed = 0) -> None:
    """Measure the ways to quantize an exported model; write the best of them for each graph."""
    from models.quantize import quantize

    quantize(folder, data, classify, embed, seed=seed)


@app.command()
def verify(
    folder: Folder,
    data: Data,
    checkpoint: Annotated[
        Path | None, typer.Option(exists=True, file_okay=False, help="Compare with torch too.")
    ] = None,
) -> None:
    """Measure a model as it is served, finish its manifest, and fail if a bound is broken."""
    from models.verify import verify

    verdict = verify(folder, data, checkpoint)
    for name, value in verdict.metrics.items():
        typer.echo(f"{name:36} {value:.6g}")
    for problem in verdict.broken:
        typer.echo(f"broken: {problem}", err=True)
    raise typer.Exit(1 if verdict.broken else 0)


if __name__ == "__main__":
    app()
