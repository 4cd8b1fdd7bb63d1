"""What is said of [CLS] and of the mean, measured part by part: heads, probes, length, cost, attention; then report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help=__doc__)

RESULTS = Path("docs/cls-or-mean")
DOCUMENT = Path("docs/cls-or-mean.md")
WORK = Path("runs/study")

Data = Annotated[Path, typer.Option(exists=True, file_okay=False, help="The folder with the data files.")]
Work = Annotated[Path, typer.Option(help="Folder for the encoders that `heads` trains and `length` reads.")]
Out = Annotated[Path, typer.Option(help="Folder for the results, docs/cls-or-mean.")]
Checkpoint = Annotated[Path, typer.Option(exists=True, file_okay=False, help="The fine-tuned checkpoint.")]
Model = Annotated[Path, typer.Option(exists=True, file_okay=False, help="The served model's folder.")]


@app.command()
def heads(
    data: Data,
    work: Work = WORK,
    out: Out = RESULTS,
    each: Annotated[int, typer.Option(help="Sentences, and as many tweets, to train on.")] = 3000,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each head.")] = 3,
) -> None:
    """Fine-tune seven heads on the same encoder with the same budget. 45 minutes on one core; goes on if stopped."""
    from models import starts
    from models.study import heads

    budget = heads.Budget(each=each, seeds=tuple(range(seeds)))
    heads.run(starts.minilm(), data, out / "heads.json", work, budget)


@app.command()
def probes(data: Data, checkpoint: Checkpoint, out: Out = RESULTS) -> None:
    """Fit linear probes to the frozen start and to the fine-tuned checkpoint, layer by layer. 5 minutes."""
    from models import starts
    from models.study import probes

    probes.run({"start": starts.minilm(), "fine-tuned": checkpoint}, data, out / "probes.json")


@app.command()
def length(data: Data, model: Model, work: Work = WORK, out: Out = RESULTS) -> None:
    """Measure by length, and an opinion among neutral sentences, on the heads trained by `heads` and as served.
    10 minutes."""
    from models.study import length

    length.run(work, out / "heads.json", model, data, out / "length.json")


@app.command()
def cost(model: Model, out: Out = RESULTS) -> None:
    """Time each pooling behind the served encoder. A minute, on an idle machine."""
    from models.study import cost

    cost.run(model, out / "cost.json")


@app.command()
def attention(checkpoint: Checkpoint, out: Out = RESULTS) -> None:
    """Record where the attention of [CLS] goes. Seconds."""
    from models import starts
    from models.study import attention

    attention.run({"start": starts.minilm(), "fine-tuned": checkpoint}, out / "attention.json")


@app.command()
def report(
    document: Annotated[Path, typer.Option(exists=True, help="The document to fill in.")] = DOCUMENT,
    out: Out = RESULTS,
) -> None:
    """Fill in the tables of docs/cls-or-mean.md and draw its pictures from the results."""
    from models.study.report import write

    write(document, out)
