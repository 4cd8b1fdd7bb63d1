"""The model card: what a model is, what it was measured to do, and how to make it again, all from its own records."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from service.artifact import Artifact

TEMPLATE = Path(__file__).with_name("card.md.jinja")
LABELLED = {
    "sst2": ("SST-2 dev (GLUE)", "accuracy, positive against negative"),
    "trees": ("Stanford Sentiment Treebank dev, sentences", "accuracy in three classes"),
    "tweets": ("TweetEval sentiment dev", "macro-averaged recall"),
}
RATED = {
    "rated_tweets": "tweets",
    "rated_product_snippets": "sentences of product reviews",
    "rated_editorial_snippets": "sentences of newspaper editorials",
}


def write(folder: Path, training: Sequence[Path], table: Path) -> None:
    """Write `README.md` into a model folder from its manifest, its training records and the table of quantization."""
    records = [json.loads(path.read_text(encoding="utf-8")) for path in training]
    text = card(Artifact.open(folder), records, table.read_text(encoding="utf-8"))
    (folder / "README.md").write_text(text, encoding="utf-8")


def card(artifact: Artifact, records: Sequence[dict[str, Any]], table: str) -> str:
    """The card as Markdown. What was not measured is said."""
    manifest = artifact.manifest

    def value(name: str, form: str) -> str:
        return format(float(manifest.metrics[name]), form) if name in manifest.metrics else "not measured"

    def percent(name: str) -> str:
        return f"{100 * float(manifest.metrics[name]):.1f} %" if name in manifest.metrics else "not measured"

    template = Environment(undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False).from_string(
        TEMPLATE.read_text(encoding="utf-8")
    )
    return template.render(
        manifest=manifest,
        records=records,
        table=table.strip(),
        sizes={name: artifact.path(name).stat().st_size / 1e6 for name in manifest.files},
        labelled=LABELLED,
        rated=RATED,
        checklist=manifest.metrics.get("checklist", {}),
        value=value,
        percent=percent,
    )
