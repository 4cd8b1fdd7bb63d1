"""A model's manifest says what was measured, and a broken bound is named."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx", reason="onnx belongs to the training set: make test-models")
pytest.importorskip("safetensors", reason="safetensors belongs to the training set: make test-models")
pytest.importorskip("scipy", reason="SciPy belongs to the training set: make test-models")

from typer.testing import CliRunner

from models.__main__ import app
from models.evaluation import Answers, DevSets
from models.fidelity import same_in_packs, same_on_two_threads
from models.manifest import BOUNDS, broken
from models.verify import calibration_error, fit_temperature, verify, within_classes
from service.artifact import Artifact
from service.engine import PACK_TOKENS, ClassifyOutput, Engine, Ids
from service.errors import EngineError

TINY = Path(__file__).parents[1] / "tiny"


@pytest.fixture(scope="module")
def made(checkpoint: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder by the three commands, `verify` not yet run."""
    out = tmp_path_factory.mktemp("made") / "model"
    runner = CliRunner()
    way = "int8-dynamic-fitted"
    for command in (
        ["export", str(checkpoint), "--out", str(out)],
        ["quantize", str(out), "--data", str(data), "--classify", way, "--embed", way],
    ):
        result = runner.invoke(app, command)
        assert result.exit_code == 0, result.output
    return out


def test_the_command_fails_naming_each_broken_bound(made: Path, checkpoint: Path, data: Path) -> None:
    pytest.importorskip("torch")
    result = CliRunner().invoke(app, ["verify", str(made), "--data", str(data), "--checkpoint", str(checkpoint)])
    assert result.exit_code == 1
    assert "broken: sst2 is " in result.output
    assert "broken: export_difference" not in result.output
    manifest = Artifact.open(made).manifest
    assert manifest.bounds == BOUNDS
    assert {"torch", "transformers", "onnxruntime"} <= set(manifest.versions)
    assert manifest.wide
    assert 0 <= manifest.metrics["export_difference"] < 1e-4
    assert manifest.metrics["cosine_worst"] > 0.99
    assert {"sst2", "tweets_ece", "tweets_ece_raw", "rated_tweets_pearson", "megabytes"} <= set(manifest.metrics)


def test_a_finished_model_is_checked_and_left_alone(data: Path, tmp_path: Path) -> None:
    shutil.copytree(TINY, tmp_path, dirs_exist_ok=True)
    before = (tmp_path / "manifest.json").read_bytes()
    verdict = verify(tmp_path, data)
    assert not verdict.broken
    assert "agreement" not in verdict.metrics
    assert (tmp_path / "manifest.json").read_bytes() == before


@pytest.mark.parametrize(
    ("compared", "said"),
    [
        ("same_on_two_threads", "two threads do not give the bits that one does"),
        ("same_in_packs", "several texts in a run do not give the bits"),
    ],
)
def test_a_model_whose_bits_depend_on_threads_or_company_does_not_say_otherwise(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compared: str, said: str
) -> None:
    shutil.copytree(TINY, tmp_path, dirs_exist_ok=True)
    assert Artifact.open(tmp_path).manifest.wide
    assert not verify(tmp_path, data).broken
    monkeypatch.setattr(f"models.verify.{compared}", lambda *_: False)
    (problem,) = verify(tmp_path, data).broken
    assert problem.startswith(said)


def test_two_threads_are_compared_on_every_text(monkeypatch: pytest.MonkeyPatch) -> None:
    artifact = Artifact.open(TINY)
    texts = [np.arange(5, 5 + length) for length in (1, 20, 40)]
    assert same_on_two_threads(artifact, texts)
    run = Engine.classify

    def otherwise(self: Engine, ids: Ids, *, wide: bool = False) -> ClassifyOutput:
        """The last bit of one text's logits depends on the threads."""
        output = run(self, ids, wide=wide)
        last = np.nextafter(output.logits, np.float32(9)) if wide and len(ids) == 40 else output.logits
        return output._replace(logits=last)

    monkeypatch.setattr(Engine, "classify", otherwise)
    assert same_on_two_threads(artifact, texts[:2])
    assert not same_on_two_threads(artifact, texts)


def test_texts_that_share_runs_are_each_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    artifact = Artifact.open(TINY)
    texts = [np.arange(5, 5 + length) for length in range(1, 60)]
    assert same_in_packs(artifact, texts)
    run, packs = Engine.classify_all, []

    def otherwise(self: Engine, texts: Sequence[Ids]) -> list[ClassifyOutput | EngineError]:
        """The last bit of one text's logits depends on the company it has."""
        packs.append([len(ids) for ids in texts])
        outputs = run(self, texts)
        for output in outputs:
            assert isinstance(output, ClassifyOutput)
            if len(texts) > 1 and 40 in packs[-1]:
                np.nextafter(output.logits, np.float32(9), out=output.logits)
        return outputs

    monkeypatch.setattr(Engine, "classify_all", otherwise)
    assert same_in_packs(artifact, [ids for ids in texts if len(ids) != 40])
    assert max(map(len, packs)) == 4
    assert max(map(sum, packs)) <= PACK_TOKENS
    assert not same_in_packs(artifact, texts)


def test_without_a_packed_graph_there_is_nothing_to_compare() -> None:
    artifact = Artifact.open(TINY)
    graphs = artifact.manifest.graphs.model_copy(update={"packed": None})
    assert not same_in_packs(Artifact(TINY, artifact.manifest.model_copy(update={"graphs": graphs})), [])


def test_a_golden_text_with_another_answer_is_named(data: Path, tmp_path: Path) -> None:
    shutil.copytree(TINY, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    manifest["golden"][1]["logits"][0] += 0.5
    path.write_text(json.dumps(manifest), encoding="utf-8")
    (problem,) = verify(tmp_path, data).broken
    assert problem.startswith(f"golden text {manifest['golden'][1]['text']!r} is off by 0.5")


def test_bounds_know_floors_from_ceilings() -> None:
    bounds = {"a_min": 0.5, "b_max": 0.5, "absent_min": 9.0}
    assert broken(bounds, {"a": 0.5, "b": 0.5}) == []
    assert broken(bounds, {"a": 0.4, "b": 0.6}) == ["a is 0.4; a_min is 0.5", "b is 0.6; b_max is 0.5"]
    assert broken(bounds, {"a": float("nan")}) == ["a is nan; a_min is 0.5"]


def test_temperature_undoes_a_scale() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 2, (4000, 3)).astype(np.float32)
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    classes = np.array([rng.choice(3, p=row / row.sum()) for row in probabilities.astype(np.float64)])
    assert fit_temperature([(logits * 2.5, classes)]) == pytest.approx(2.5, rel=0.08)


def test_a_set_without_neutral_texts_is_measured_between_its_two_classes() -> None:
    sets = DevSets({}, {"sst2": np.array([0, 2, 2]), "trees": np.array([0, 1, 2])}, [], {})
    logits = np.array([[1.0, 9.0, 2.0], [3.0, 9.0, 4.0], [6.0, 9.0, 5.0]], np.float32)
    found = within_classes(Answers({"sst2": logits, "trees": logits}, logits), sets)
    assert found["sst2"][0].tolist() == [[1.0, 2.0], [3.0, 4.0], [6.0, 5.0]]
    assert found["sst2"][1].tolist() == [0, 1, 1]
    assert found["trees"][0].shape == (3, 3)
    certain = {"sst2": 40 * np.eye(3, dtype=np.float32)[[0, 2, 2]], "trees": 40 * np.eye(3, dtype=np.float32)}
    assert calibration_error(Answers(certain, logits), sets, 1.0)["sst2_ece"] == pytest.approx(0.0, abs=1e-6)


def test_the_committed_tiny_model_holds_what_its_builder_makes() -> None:
    manifest = Artifact.open(TINY).manifest
    assert manifest.name == "tiny"
    assert manifest.bounds == {}
    assert sum(path.stat().st_size for path in TINY.iterdir()) < 400_000
