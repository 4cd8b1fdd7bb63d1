"""The checklist read and filled in: templates to cases, each a few texts that one judgement is about."""

from __future__ import annotations

import random
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, model_validator

from models.checklist.changes import CHANGES

SUITE = Path(__file__).with_name("suite.toml")
CASES = 40
SLOT = re.compile(r"{(\w+)}")

Label = Literal["negative", "neutral", "positive"]
Slots = Mapping[str, Sequence[str]]


class Test(BaseModel):
    """One entry of the suite, as `suite.toml` describes it."""

    __test__ = False
    model_config = ConfigDict(frozen=True, extra="forbid")

    capability: str
    texts: tuple[str, ...]
    expect: tuple[Label, ...] = ()
    same: bool = False
    direction: Literal["up", "down"] | None = None
    varies: str | None = None
    changes: tuple[str, ...] = ()
    note: str = ""

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if sum(map(bool, (self.expect, self.same, self.direction))) != 1:
            raise ValueError("a test has one of `expect`, `same` and `direction`")
        if self.direction and len(self.texts) != 2:
            raise ValueError("a direction is from one text to another")
        if (self.varies or self.changes) and not self.same:
            raise ValueError("`varies` and `changes` are for tests of invariance")
        return self


class Suite(BaseModel):
    """Words by slot, and the tests whose templates use them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    slots: dict[str, tuple[str, ...]]
    test: tuple[Test, ...]

    @classmethod
    def read(cls, path: Path = SUITE) -> Suite:
        """Read a suite. Raises ValueError for one that is malformed."""
        return cls.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))

    def cases(self) -> list[Case]:
        """At most 40 cases of each test's templates, drawn alike each time."""
        return [case for test in self.test for case in _cases(test, self.slots)]


@dataclass(frozen=True, slots=True)
class Case:
    """Texts that are judged together, and the test that says how."""

    test: Test
    texts: tuple[str, ...]


def _cases(test: Test, slots: Slots) -> Iterator[Case]:
    apart = bool(test.expect or test.varies or test.changes)
    groups = [(template,) for template in test.texts] if apart else [test.texts]
    for templates in groups:
        fixed = sorted({name for template in templates for name in SLOT.findall(template)} - {test.varies})
        values = list(product(*(slots[name] for name in fixed)))
        drawn = random.Random("".join(templates)).sample(values, min(CASES // len(groups), len(values)))
        yield from (Case(test, _texts(test, templates, dict(zip(fixed, one, strict=True)), slots)) for one in drawn)


def _texts(test: Test, templates: Sequence[str], words: dict[str, str], slots: Slots) -> tuple[str, ...]:
    """The texts of one case, of which `words` are those that its texts share."""
    if test.varies:
        return tuple(_fill(templates[0], words | {test.varies: word}) for word in slots[test.varies])
    texts = [_fill(template, words) for template in templates]
    return tuple(dict.fromkeys(texts + [CHANGES[name](texts[0]) for name in test.changes]))


def _fill(template: str, words: Mapping[str, str]) -> str:
    """A template with its words, `a` made `an` before a vowel."""
    return re.sub(r"\b([Aa]) (?=[aeiouAEIOU])", r"\1n ", SLOT.sub(lambda slot: words[slot[1]], template))
