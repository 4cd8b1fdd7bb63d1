"""The measurements of docs/holding-up.md in their short forms: what they assert of the service is asserted here too."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from bench import avx2, bitforbit, figures, overload, soak
from bench.client import Client
from bench.processes import Server
from bench.service import serving
from tests.service.api.conftest import TINY

BITFORBIT = typer.Typer()
BITFORBIT.command()(bitforbit.main)


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(TINY, workers=2, queue=1000, request_timeout=60) as started:
        yield started


def test_a_soak_of_3000_texts_leaks_nothing(server: Server) -> None:
    run = asyncio.run(soak.soak(server, seconds=300.0, count=3000, every=0.2))
    assert run.texts >= 3000
    assert set(run.statuses) == {200}
    assert run.leaks == (0, 0)
    assert max(one.megabytes for one in run.samples) < run.samples[0].megabytes + 60


def test_growth_and_leaks_are_seen() -> None:
    grown = soak.Soak([soak.Sample(float(i), i, 100.0 + i, 20 + i // 50, 8) for i in range(100)])
    assert grown.growth == pytest.approx(1 - 129.5 / 189.5, abs=0.15)
    assert grown.leaks == (1, 0)
    flat = soak.Soak([soak.Sample(float(i), i, 100.0, 20, 8) for i in range(100)])
    assert (flat.growth, flat.leaks) == (0.0, (0, 0))


def test_at_five_times_capacity_all_are_answered_or_refused_with_a_time(server: Server) -> None:
    async def run() -> tuple[overload.Seen, float]:
        mix, seen = overload.requests(), overload.Seen()
        async with Client(server.port) as client:
            capacity = await overload.closed(client, mix, 1.0)
            watchers = [asyncio.ensure_future(overload.probe(server, seen, path)) for path in overload.PROBES]
            await asyncio.gather(*await overload.opened(client, mix, seen, 1.0, 5 * capacity))
            await overload.stopped(watchers)
        return seen, capacity

    seen, capacity = asyncio.run(run())
    assert capacity > 0
    assert {one.answer.status for one in seen.asked} <= {200, 429}
    assert all(one.answer.retry_after is (one.answer.status == 429) for one in seen.asked)
    assert all(one.answer.status == 200 for one in seen.probes)
    assert seen.probes


def test_300_texts_alone_in_lists_and_in_a_crowd() -> None:
    done = CliRunner().invoke(BITFORBIT, ["--model", str(TINY), "--texts", "300"])
    assert done.exit_code == 0, done.output
    assert "300, of " in done.output


def test_an_answer_that_differs_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bitforbit, "in_lists", lambda _inference, texts: [b"other"] * len(texts))
    done = CliRunner().invoke(BITFORBIT, ["--model", str(TINY), "--texts", "20"])
    assert done.exit_code == 1
    assert "lists that differ from those alone | 20 |" in done.output


def test_figures_take_the_place_that_is_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "holding-up.md"
    page.write_text("before\n<!-- soak -->\nold\n<!-- /soak -->\nafter\n")
    monkeypatch.setattr(figures, "PAGE", page)
    monkeypatch.setattr(figures, "FOLDER", tmp_path / "holding-up")
    for value in (r"1 \g<0>", "2"):
        figures.publish("soak", {"texts": value}, write=True)
    text = page.read_text()
    assert text.startswith("before\n<!-- soak -->\n| | |\n|---|---:|\n| texts | 2 |\n")
    assert text.endswith("<!-- /soak -->\nafter\n")
    assert "old" not in text
    assert '"texts": "2"' in (tmp_path / "holding-up" / "soak.json").read_text()
    with pytest.raises(ValueError, match="no place marked"):
        figures.publish("overload", {}, write=True)


def test_every_measurement_has_its_place_in_the_page() -> None:
    page = figures.PAGE.read_text(encoding="utf-8")
    for name in ("overload", "fairness", "bitforbit", "soak"):
        assert figures.placed(page, name, "") != page.replace(f"<!-- {name} -->", "")


def test_answers_of_two_cpus_are_compared_by_label_and_score() -> None:
    here = [{"label": "a", "scores": {"a": 0.7, "b": 0.3}}, {"label": "b", "scores": {"a": 0.4, "b": 0.6}}]
    there = [{"label": "a", "scores": {"a": 0.69, "b": 0.31}}, {"label": "a", "scores": {"a": 0.6, "b": 0.4}}]
    off, differing = avx2.compare(here, there)
    assert off == pytest.approx(0.2)
    assert differing == 1
    assert avx2.compare(here, here) == (0.0, 0)
