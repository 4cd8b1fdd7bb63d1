"""Where figures go: to the screen, and with --write into docs/holding-up.md and a JSON file beside it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from bench import machine

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "holding-up.md"
FOLDER = DOCS / "holding-up"

Write = Annotated[bool, typer.Option(help="Put the figures into docs/holding-up.md and docs/holding-up/.")]


def publish(
    name: str,
    figures: Mapping[str, object],
    *,
    write: bool,
    data: Mapping[str, object] | None = None,
    picture: str = "",
) -> None:
    """Print figures as a table.

    With `write`, put it between its marks in the page, with a picture of the folder if there is one, and into NAME.json
    with `data`.
    """
    table = tabled(figures)
    typer.echo(table)
    if not write:
        return
    facts = machine.facts()
    measured = f"{facts['cpu']}, {facts['cores']} cores, {facts['made'].split()[0]}"
    FOLDER.mkdir(exist_ok=True)
    content = {"measured": measured, "figures": figures, **(data or {})}
    (FOLDER / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    shown = f"\n\n![{name}]({FOLDER.name}/{picture})" if picture else ""
    page = placed(PAGE.read_text(encoding="utf-8"), name, f"{table}\n\n{measured}.{shown}")
    PAGE.write_text(page, encoding="utf-8")


def tabled(figures: Mapping[str, object]) -> str:
    """Figures as a table of Markdown, a row each."""
    return "\n".join(["| | |", "|---|---:|", *(f"| {label} | {value} |" for label, value in figures.items())])


def placed(page: str, name: str, content: str) -> str:
    """A page with what stands between the marks of a name replaced. Raises ValueError for a page without them."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    if page.count(begin) != 1 or page.count(end) != 1:
        raise ValueError(f"the page has no place marked {begin} {end}")
    return re.sub(
        f"{re.escape(begin)}.*{re.escape(end)}", lambda _: f"{begin}\n{content}\n{end}", page, flags=re.DOTALL
    )
