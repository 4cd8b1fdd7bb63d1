from pathlib import Path
from typing import Any

import pytest

from bench import report
from bench.chart import digest
from bench.peers.ours import NAME as OURS
from bench.results import FOLDER, Results, Run
from bench.scenarios import (
    BASE64,
    BOTH,
    EMBED,
    LISTS,
    NO_RUN,
    ONE,
    PACKED,
    PRODUCT,
    SERVICE,
    SINGLE,
    STOCK,
    THREAD,
    THREADS,
)
from bench.targets import TARGETS, Measured

FACTS: dict[str, Any] = {
    "cpu": "a CPU",
    "flags": ["avx2"],
    "cores": 2,
    "memory_gb": 8,
    "load_before": 0.1,
    "system": "Linux",
    "python": "3.11",
    "versions": {"onnxruntime": "1"},
    "commit": "abc",
    "made": "today",
    "rounds": 2,
    "seconds": 6,
    "texts": {"short": {"texts": 2, "mean_tokens": 25.0}},
    "weights": "random",
    "operations_per_text": 1e9,
}


def of(subject: str, what: str, *rates: float, **more: Any) -> list[Run]:
    """A run for each round."""
    found: list[Any] = [
        {"round": number, "subject": subject, "what": what, "texts_per_s": rate, **more}
        for number, rate in enumerate(rates)
    ]
    return found


def test_the_page_holds_what_the_committed_results_say() -> None:
    page = report.PAGE.read_text("utf-8")
    assert report.filled(page, report.blocks(report.read())) == page


def test_every_block_that_is_made_is_on_the_page() -> None:
    names = [block["name"] for block in report.BLOCK.finditer(report.PAGE.read_text("utf-8"))]
    assert sorted(names) == sorted(report.blocks(Measured(None, None, None)))


def test_the_picture_is_of_the_committed_results() -> None:
    source = FOLDER / "peers.json"
    if not source.exists():
        pytest.skip("the comparison is not measured yet")
    assert digest(source) in report.PICTURE.read_text("utf-8")


def test_a_block_of_an_unknown_name_is_an_error() -> None:
    with pytest.raises(KeyError):
        report.filled("<!-- begin nothing: here -->\n<!-- end -->", {})


def test_ratios_are_of_the_same_round_and_against_the_best() -> None:
    runs = of(OURS, SINGLE.name, 800, 400) + of("infinity", SINGLE.name, 100, 50) + of("other", SINGLE.name, 50, 100)
    names: dict[str, dict[str, Any]] = {OURS: {}, "infinity": {}, "other": {}}
    best, infinity = TARGETS[:2]
    measured = Measured(Results(FACTS, names, runs), None, None)
    assert best.values(measured) == [8, 4]
    assert infinity.values(measured) == [8, 8]
    assert best.met([8, 4]) is True
    assert best.met([3.9]) is False
    assert best.met([]) is None


def test_a_bound_from_above_is_one() -> None:
    ready = next(target for target in TARGETS if target.name == "ready after exec")
    assert ready.met([0.5, 0.9, 2.0]) is True
    assert ready.met([1.1]) is False


def test_every_target_is_computed_where_everything_is_measured() -> None:
    peers = Results(FACTS, {OURS: {}, "infinity": {}})
    for scenario in (ONE, SINGLE, LISTS):
        peers.runs += of(OURS, scenario.name, 500, 500) + of("infinity", scenario.name, 100, 100)
    layers = Results(FACTS, {PRODUCT: {"operations_per_s": [2e12, 2e12]}, SERVICE: {"ready_s": [0.5]}})
    layers.subject(SERVICE)[f"lock_us_{SINGLE.name}"] = [40.0]
    for subject, threads in ((PACKED, THREAD), (PACKED, THREADS), (STOCK, THREADS), (BOTH, THREAD), (BOTH, THREADS)):
        layers.runs += of(subject, threads, 1000, 1000)
    for what in (SINGLE.name, LISTS.name, f"{EMBED}, {SINGLE.name}"):
        layers.runs += of(SERVICE, what, 900, 900, cpu_s_per_1000=2.0)
    layers.runs += of(SERVICE, f"{BASE64}, {SINGLE.name}", 900, 900, cpu_s_per_1000=1.5)
    layers.runs += of(NO_RUN, SINGLE.name, 900, 900, cpu_s_per_1000=0.07)
    memory = Results(FACTS, {SERVICE: {"resident_mb": [150.0, 160.0], "resident_mb_at_rest": [120.0]}})
    found = {target.name: target.values(Measured(peers, layers, memory)) for target in TARGETS}
    assert all(found.values())
    assert found["operations on the encoder's matrices, of one large int8 product's"] == [0.5, 0.5]
    assert found["the same bounded from above: CPU time of all but the run"] == pytest.approx([70, 70])
    assert found["JSON in a 384-vector's CPU time, as what base64 saves"] == [0.25, 0.25]
    assert found["resident as the last of 100,000 texts of up to 512 tokens run"] == [160]
    assert found["resident after them, at rest"] == [120]
    assert found["HTTP of the raw engine, single texts, 16 connections"] == [0.9, 0.9]


def test_a_peer_that_failed_is_in_the_table_with_its_reason() -> None:
    names: dict[str, dict[str, Any]] = {OURS: {}, "other": {"failed": "not installed: no such | package"}}
    peers = Results(FACTS, names, of(OURS, SINGLE.name, 800, 400))
    shown = report.blocks(Measured(peers, None, None))["peers"]
    assert f"| **{OURS}** | - | 600 (400 to 800) | - | - | - |" in shown
    assert "| other * | - | - | - | - | - |" in shown
    assert "\\* other: not installed: no such / package" in shown


def test_results_are_read_as_they_were_saved(tmp_path: Path) -> None:
    results = Results(FACTS)
    results.note("one", "ready_s", 0.123456)
    results.runs += of("one", "what", 1.0)
    results.save(tmp_path / "results.json")
    found = Results.read(tmp_path / "results.json")
    assert found
    assert (found.facts, found.subjects, found.runs) == (FACTS, {"one": {"ready_s": [0.1235]}}, results.runs)
    assert Results.read(tmp_path / "none.json") is None
