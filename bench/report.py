"""docs/performance.md's tables and picture from the results: `python -m bench.report`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from bench import chart, layer_tables, peer_tables
from bench.environments import ROOT
from bench.peer_tables import table
from bench.results import FOLDER, Results, spread
from bench.targets import TARGETS, Measured

PAGE = ROOT / "docs" / "performance.md"
PICTURE = ROOT / "docs" / "performance.svg"
BLOCK = re.compile(r"(<!-- begin (?P<name>[a-z-]+):[^>]*-->\n).*?(<!-- end -->)", re.DOTALL)
NOT_MEASURED = "Not measured yet."


def write() -> None:
    """Fill the page's blocks and draw the picture."""
    measured = read()
    if measured.peers:
        chart.draw(measured.peers, FOLDER / "peers.json", PICTURE)
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), blocks(measured)), encoding="utf-8")


def read() -> Measured:
    """The results there are."""
    return Measured(*(Results.read(FOLDER / f"{name}.json") for name in ("peers", "layers", "memory", "variants")))


def filled(page: str, contents: Mapping[str, str]) -> str:
    """A page with each marked block's content replaced. Raises KeyError for a block that nothing is made for."""
    return BLOCK.sub(lambda block: f"{block[1]}{contents[block['name']]}\n{block[3]}", page)


def blocks(measured: Measured) -> dict[str, str]:
    """What stands in each block, by its name."""
    found = {"targets": targets(measured)}
    for module, results in ((peer_tables, measured.peers), (layer_tables, measured.layers)):
        for name, render in module.BLOCKS.items():
            found[name] = render(results) if results else NOT_MEASURED
    found["variants"] = layer_tables.variants(measured.variants) if measured.variants else NOT_MEASURED
    found["picture"] = f"![Texts a second of every server]({PICTURE.name})" if measured.peers else NOT_MEASURED
    found["memory"] = layer_tables.memory(measured.memory) if measured.memory else NOT_MEASURED
    return found


def targets(measured: Measured) -> str:
    """The table of targets."""
    rows: list[Sequence[str]] = []
    for target in TARGETS:
        values = target.values(measured)
        verdict = {None: "not measured", True: "met", False: "**missed**"}[target.met(values)]
        bound = f"{'at least' if target.at_least else 'at most'} {target.bound:g}{target.unit}"
        rows.append([target.name, bound, spread(values, "{:.2f}".format), verdict])
    return table(["target", "wanted", "measured (smallest to largest of the rounds)", ""], rows, right=0)


if __name__ == "__main__":
    write()
