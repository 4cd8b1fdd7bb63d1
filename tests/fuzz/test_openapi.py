"""What the described interface allows, and what it forbids, asked at random: each answer is one that is described.

SENTIMENT_FUZZ_EXAMPLES=500 asks longer.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode

# Not asked: a text of nothing but blanks is a string as the schema wants it, and refused.
from schemathesis.specs.openapi.checks import positive_data_acceptance

from service.api.app import create_app
from service.settings import Settings
from tests.service.api.conftest import TINY
from tests.service.serving import serving

EXAMPLES = int(os.environ.get("SENTIMENT_FUZZ_EXAMPLES", "10"))

SCHEMA = schemathesis.openapi.from_dict(create_app(Settings(model=TINY)).openapi())
OPERATIONS: dict[str, Any] = {one.label: one for one in (found.ok() for found in SCHEMA.get_all_operations())}  # type: ignore[union-attr]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(request_timeout=20) as (address, _):
        yield address


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["allowed", "forbidden"])
@pytest.mark.parametrize("label", OPERATIONS)
def test_every_answer_is_one_that_is_described(url: str, label: str, mode: GenerationMode) -> None:
    @settings(max_examples=EXAMPLES, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
    @given(case=OPERATIONS[label].as_strategy(generation_mode=mode))
    def ask(case: schemathesis.Case[Any]) -> None:
        case.call_and_validate(base_url=url, timeout=60, excluded_checks=[positive_data_acceptance])

    with suppress(Unsatisfiable):  # of an operation that takes nothing, nothing is forbidden
        ask()
