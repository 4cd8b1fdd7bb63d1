"""Results are written as they come, and a stopped run goes on."""

import json
from pathlib import Path

import pytest

from models.study.record import Record, read


def test_rows_are_there_for_the_next_run(tmp_path: Path) -> None:
    path = tmp_path / "results" / "part.json"
    Record(path, {"seeds": (0, 1)}).add(head="mean", seed=0, score=1.5)
    again = Record.resume(path, {"seeds": (0, 1)})
    assert again.has(head="mean", seed=0)
    assert not again.has(head="mean", seed=1)
    again.add(head="mean", seed=1, score=2.5)
    assert read(path) == (
        {"seeds": [0, 1]},
        [{"head": "mean", "seed": 0, "score": 1.5}, {"head": "mean", "seed": 1, "score": 2.5}],
    )
    assert json.loads(path.read_text())["settings"] == {"seeds": [0, 1]}


def test_other_settings_are_not_mixed_in(tmp_path: Path) -> None:
    Record(tmp_path / "part.json", {"each": 3}).add(head="mean")
    with pytest.raises(ValueError, match="other settings"):
        Record.resume(tmp_path / "part.json", {"each": 4})


def test_an_earlier_run_is_replaced_by_the_first_row_and_not_before(tmp_path: Path) -> None:
    path = tmp_path / "part.json"
    Record(path, {"each": 3}).add(head="mean")
    again = Record(path, {"each": 4})
    assert read(path) == ({"each": 3}, [{"head": "mean"}])
    again.add(head="cls")
    assert read(path) == ({"each": 4}, [{"head": "cls"}])
