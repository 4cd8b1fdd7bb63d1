"""What a request's timings add up to."""

import threading
import time

import pytest

from service.timings import Timings


def test_a_stage_that_was_not_reached_is_not_told() -> None:
    timings = Timings()
    assert timings.stages() == {}
    timings.taken(1.0, 3.0)
    assert list(timings.stages()) == ["queue"]


def test_the_wait_ends_with_the_first_text_that_is_taken() -> None:
    timings = Timings()
    timings.taken(1.0, 3.5)
    timings.taken(1.0, 9.0)
    assert (timings.queue.began, timings.queue.ended, timings.queue.seconds) == (1.0, 3.5, 2.5)


def test_work_adds_up_between_its_first_and_its_last_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    timings = Timings()
    for began, now in ((5.0, 7.0), (2.0, 3.0), (6.0, 6.5)):
        assert timings.done(timings.infer, began) == now - began
    stage = timings.stages()["infer"]
    assert (stage.began, stage.ended, stage.seconds, stage.runs) == (2.0, 7.0, 3.5, 3)


def test_workers_at_once_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 1.0)
    timings = Timings()
    workers = [
        threading.Thread(target=lambda: [timings.done(timings.tokenize, 0.0) for _ in range(2000)]) for _ in range(4)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert (timings.tokenize.runs, timings.tokenize.seconds) == (8000, 8000.0)
