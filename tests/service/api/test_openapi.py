"""The described interface changes only when it should: `python -m tests.service.api.test_openapi` writes it."""

from __future__ import annotations

import json
from pathlib import Path

from service.api.app import create_app
from service.settings import Settings
from tests.service.api.conftest import TINY

SNAPSHOT = Path(__file__).with_name("openapi.json")


def described() -> str:
    return json.dumps(create_app(Settings(model=TINY)).openapi(), indent=1, sort_keys=True) + "\n"


def test_the_interface_is_the_one_that_was_agreed_on() -> None:
    assert json.loads(described()) == json.loads(SNAPSHOT.read_text(encoding="utf-8"))


if __name__ == "__main__":
    SNAPSHOT.write_text(described(), encoding="utf-8")
