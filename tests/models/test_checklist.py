"""The checklist is filled in and judged as it says, and shares nothing with what the model is trained on."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from models import templates
from models.checklist.changes import CHANGES
from models.checklist.suite import Case, Suite, Test

TINY = Path(__file__).parents[1] / "tiny"
RUN = 5
# The one frame that training shares with the checklist, each with endings of its own: the service is known by the
# sentence "I'm very happy that I'm not in collaboration with you", so training has to hold such sentences.
SHARED = {("i", "am", "very", "happy", "that"), ("am", "very", "happy", "that", "i")}


def words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+|[^\w\s]", text.lower().replace("n't", " not").replace("'m", " am"))


def runs(texts: Iterator[str]) -> set[tuple[str, ...]]:
    found: set[tuple[str, ...]] = set()
    for text in texts:
        read = [word for word in words(text) if word.isalnum()]
        found.update(tuple(read[at : at + RUN]) for at in range(len(read) - RUN + 1))
    return found


def suite(test: str, slots: str = 'a = ["x", "y"]\nb = ["1", "2", "3"]') -> list[Case]:
    import tomllib

    return Suite.model_validate(tomllib.loads(f'[slots]\n{slots}\n[[test]]\ncapability = "c"\n{test}')).cases()


def test_the_suite_is_large_and_covers_every_capability() -> None:
    read = Suite.read()
    assert sum(len(test.texts) for test in read.test) >= 100
    assert 1500 <= len(read.cases()) <= 4000
    assert {test.capability for test in read.test} >= {
        "negation",
        "neutral statements",
        "intensifiers",
        "emoji",
        "names and countries",
        "typos",
        "punctuation and case",
        "hashtags, handles and links",
        "questions",
        "quotations",
        "mixed opinions",
        "threats and self-harm",
    }


def test_every_case_is_of_distinct_finished_texts_and_drawn_alike_each_time() -> None:
    cases = Suite.read().cases()
    assert cases == Suite.read().cases()
    for case in cases:
        assert len(set(case.texts)) == len(case.texts)
        assert len(case.texts) > 1 or case.test.expect
        assert not any("{" in text for text in case.texts)


def test_every_slot_is_used() -> None:
    read = Suite.read()
    written = " ".join(text for test in read.test for text in test.texts)
    assert not [name for name in read.slots if f"{{{name}}}" not in written]


def test_no_wording_is_shared_with_the_training_templates() -> None:
    trained = [text for made in templates.TEMPLATES.values() for template in made for text in templates.fill(template)]
    checked = [text for case in Suite.read().cases() for text in case.texts]
    assert not {tuple(words(text)) for text in checked} & {tuple(words(text)) for text in trained}
    assert runs(iter(checked)) & runs(iter(trained)) == SHARED


def test_no_slot_shares_a_word_with_those_of_training() -> None:
    ours = {word.lower() for values in Suite.read().slots.values() for word in values}
    theirs = {word.lower().strip() for values in templates.WORDS.values() for word in values}
    assert not ours & theirs


def test_expected_labels_make_each_text_a_case() -> None:
    cases = suite('texts = ["{a} is", "{a} has {b}"]\nexpect = ["neutral"]')
    assert sorted(case.texts for case in cases) == sorted(
        [("x is",), ("y is",), *((f"{a} has {b}",) for a in "xy" for b in "123")]
    )


def test_a_slot_that_varies_makes_one_case_of_its_values() -> None:
    cases = suite('texts = ["{a} has {b}"]\nsame = true\nvaries = "b"')
    assert sorted(case.texts for case in cases) == [
        ("x has 1", "x has 2", "x has 3"),
        ("y has 1", "y has 2", "y has 3"),
    ]


def test_texts_without_either_are_one_case_and_share_their_words() -> None:
    cases = suite('texts = ["{a}.", "{a} has {b}."]\ndirection = "up"')
    assert ("y.", "y has 2.") in {case.texts for case in cases}
    assert len(cases) == 6


def test_changes_make_one_case_with_the_text_they_change() -> None:
    cases = suite('texts = ["It is {a}."]\nsame = true\nchanges = ["upper case", "no full stop", "no apostrophes"]')
    assert sorted(case.texts for case in cases) == [
        ("It is x.", "IT IS X.", "It is x"),
        ("It is y.", "IT IS Y.", "It is y"),
    ]


def test_a_vowel_asks_for_an() -> None:
    assert suite('texts = ["A {a} is a {b}."]\nexpect = ["neutral"]', 'a = ["ox"]\nb = ["bull"]')[0].texts == (
        "An ox is a bull.",
    )


@pytest.mark.parametrize(
    "test",
    [
        'texts = ["a"]',
        'texts = ["a"]\nexpect = ["glad"]',
        'texts = ["a"]\nexpect = ["neutral"]\nsame = true',
        'texts = ["a"]\ndirection = "up"',
        'texts = ["a", "b"]\ndirection = "up"\nvaries = "a"',
    ],
)
def test_a_malformed_test_is_refused(test: str) -> None:
    with pytest.raises(ValidationError):
        suite(test)


def test_a_typo_is_made_inside_one_word_and_always_the_same() -> None:
    text = "The battery lasted for days"
    assert sorted(CHANGES["swapped letters"](text)) == sorted(text) != sorted("")
    assert CHANGES["swapped letters"](text) == CHANGES["swapped letters"](text) != text
    assert len(CHANGES["dropped letter"](text)) == len(text) - 1
    assert len(CHANGES["doubled letter"](text)) == len(text) + 1
    assert CHANGES["swapped letters"]("a b c") == "a b c"


class TestJudging:
    @staticmethod
    def passed(probabilities: list[list[float]], **test: object) -> bool:
        from models.checklist.judge import judge

        texts = tuple(f"text {number}" for number in range(len(probabilities)))
        answers = dict(zip(texts, probabilities, strict=True))
        made = Test.model_validate({"capability": "c", "texts": texts} | test)
        return judge(Case(made, texts), lambda text: np.array(answers[text])).passed

    def test_a_label_must_be_one_of_those_expected(self) -> None:
        assert self.passed([[0.6, 0.3, 0.1]], expect=("negative", "neutral"))
        assert not self.passed([[0.1, 0.3, 0.6]], expect=("negative", "neutral"))

    def test_invariance_is_about_the_label(self) -> None:
        assert self.passed([[0.6, 0.3, 0.1], [0.9, 0.1, 0.0]], same=True)
        assert not self.passed([[0.6, 0.3, 0.1], [0.45, 0.55, 0.0]], same=True)

    def test_a_valence_may_move_a_tenth_the_wrong_way(self) -> None:
        for moved, up, down in ((0.3, True, False), (0.09, True, True), (-0.09, True, True), (-0.3, False, True)):
            pair = [[0.3, 0.4, 0.3], [0.3 - moved / 2, 0.4, 0.3 + moved / 2]]
            assert self.passed(pair, direction="up") is up
            assert self.passed(pair, direction="down") is down


def test_the_command_prints_records_and_shows_failures(tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="writing a manifest needs the training set: make test-models")
    from models.__main__ import app
    from service.artifact import Artifact

    folder = Path(shutil.copytree(TINY, tmp_path / "model"))
    result = CliRunner().invoke(app, ["checklist", str(folder), "--failures", "--record"])
    assert result.exit_code == 0, result.output
    recorded = Artifact.open(folder).manifest.metrics["checklist"]
    assert set(recorded) == {test.capability for test in Suite.read().test}
    row = recorded["negation"]
    assert f"{row['passed']:5} of {row['cases']:5}" in result.output
    failed = sum(one["cases"] - one["passed"] for one in recorded.values())
    assert len(re.findall(r"^\S.*: (?:.* or .*|one label|valence .*|\w+)$", result.output, re.MULTILINE)) == failed > 0


def test_a_model_with_other_labels_is_refused(tmp_path: Path) -> None:
    from models.checklist import judge

    folder = Path(shutil.copytree(TINY, tmp_path / "model"))
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["labels"] = ["bad", "so-so", "good"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match="so-so"):
        judge.check(folder)
