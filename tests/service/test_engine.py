"""Token ids to numbers: the same for the same ids whoever else is running, finite, or an error."""

import math
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray

from service.artifact import Artifact
from service.engine import SLOWER, TIMED, WIDE, WORTH_SHARING, ClassifyOutput, Engine, same_bits, session, worth_sharing
from service.errors import ArtifactError, EngineError
from service.settings import DEFAULT_MODEL
from service.tokenizer import Tokenizer

TINY = Path(__file__).parents[1] / "tiny"


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(Artifact.open(TINY))


def some_ids(length: int, seed: int = 0) -> NDArray[np.int64]:
    return np.random.default_rng(seed).integers(5, 100, length)


@pytest.mark.parametrize("length", [1, 2, 3, 17, 64])
def test_shapes_and_types(engine: Engine, length: int) -> None:
    output = engine.classify(some_ids(length))
    mean = engine.embed(some_ids(length))
    assert (output.logits.shape, output.cls.shape, mean.shape) == ((3,), (32,), (32,))
    assert {output.logits.dtype, output.cls.dtype, mean.dtype} == {np.dtype(np.float32)}


def test_answers_the_golden_texts(engine: Engine) -> None:
    manifest = Artifact.open(TINY).manifest
    tokenizer = Tokenizer(TINY / "tokenizer.json", manifest.max_tokens, manifest.cleanup)
    for golden in manifest.golden:
        ids = tokenizer.read(golden.text).first().ids
        np.testing.assert_allclose(engine.classify(ids).logits, golden.logits, atol=manifest.tolerance)
        np.testing.assert_allclose(engine.embed(ids)[: len(golden.mean)], golden.mean, atol=manifest.tolerance)


def test_same_ids_same_answer_bit_for_bit_under_load(engine: Engine) -> None:
    texts = [some_ids(1 + seed % 64, seed) for seed in range(64)]

    def answer(ids: NDArray[np.int64]) -> bytes:
        output = engine.classify(ids)
        return output.logits.tobytes() + output.cls.tobytes() + engine.embed(ids).tobytes()

    alone = [answer(ids) for ids in texts]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(answer, texts * 4))
    assert together == alone * 4


def test_a_run_on_two_cores_gives_the_same_answer_bit_for_bit() -> None:
    """Of the real model, whose matrices are large enough to be shared out, beside runs on one core."""
    engine = Engine(Artifact.open(DEFAULT_MODEL))
    engine.widen()
    assert engine.wide
    texts = [np.random.default_rng(size).integers(1000, 30_000, size) for size in (1, 15, 16, 17, 33, 40, 64, 131, 512)]

    def answer(ids: NDArray[np.int64], wide: bool) -> bytes:
        output = engine.classify(ids, wide=wide)
        return output.logits.tobytes() + output.cls.tobytes()

    on_one = [answer(ids, wide=False) for ids in texts]
    assert [answer(ids, wide=True) for ids in texts] == on_one
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(answer, texts * 4, [True, False, True] * 12))
    assert together == on_one * 4


def test_texts_that_share_a_run_get_the_answers_they_get_alone_bit_for_bit() -> None:
    """Of the real model, whose matrices make the kernels choose by the number of rows."""
    engine = Engine(Artifact.open(DEFAULT_MODEL))
    engine.pack()
    assert engine.pack_size == 4
    rng = np.random.default_rng(0)
    packs = [[rng.integers(1000, 30_000, rng.integers(1, 80)) for _ in range(2 + i % 3)] for i in range(24)]
    packs.append([rng.integers(1000, 30_000, 512) for _ in range(4)])

    def answers(texts: Sequence[NDArray[np.int64]]) -> list[bytes]:
        found = [output for output in engine.classify_all(texts) if isinstance(output, ClassifyOutput)]
        return [output.logits.tobytes() + output.cls.tobytes() for output in found]

    alone = [[answers([ids])[0] for ids in texts] for texts in packs]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(answers, packs)) == alone


def test_texts_share_no_run_before_it_is_ready_nor_where_it_would_change_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = Engine(Artifact.open(TINY))
    texts = [some_ids(3), some_ids(7)]
    before = engine.classify_all(texts)
    assert engine.pack_size == 1
    monkeypatch.setattr("service.engine.same_bits", lambda *_: False)
    engine.pack()
    assert engine.pack_size == 1
    monkeypatch.undo()
    graphs = Artifact.open(TINY).manifest.graphs.model_copy(update={"packed": None})
    without = Engine(Artifact(TINY, Artifact.open(TINY).manifest.model_copy(update={"graphs": graphs})))
    without.pack()
    assert without.pack_size == 1
    engine.pack()
    assert engine.pack_size == 4
    for one, other in zip(before, engine.classify_all(texts), strict=True):
        assert isinstance(one, ClassifyOutput)
        assert isinstance(other, ClassifyOutput)
        assert one.logits.tobytes() == other.logits.tobytes()


def test_of_texts_that_share_a_run_only_those_at_fault_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(Artifact.open(TINY))
    engine.pack()
    good, outside = some_ids(5), np.array([10**6])
    first, second, third = engine.classify_all([good, outside, good])
    assert isinstance(first, ClassifyOutput)
    assert isinstance(second, EngineError)
    assert isinstance(third, ClassifyOutput)
    assert first.logits.tobytes() == third.logits.tobytes() == engine.classify(good).logits.tobytes()


@pytest.fixture
def wide() -> Artifact:
    artifact = Artifact.open(TINY)
    assert artifact.manifest.wide
    return artifact


def test_a_run_is_wide_where_it_gains(wide: Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    unseen = Engine(Artifact(TINY, wide.manifest.model_copy(update={"wide": False})))
    unseen.widen()
    assert not unseen.wide  # nobody saw that its answers stay the same
    engine = Engine(wide)
    engine.classify(some_ids(WORTH_SHARING), wide=True)  # before it can be: on one
    engine.widen()
    assert engine._wide is not None
    assert engine._wide._session.get_session_options().intra_op_num_threads == WIDE
    monkeypatch.setattr(engine._wide, "_session", None)
    engine.classify(some_ids(WORTH_SHARING - 1), wide=True)
    engine.classify(some_ids(WORTH_SHARING))
    with pytest.raises(EngineError):
        engine.classify(some_ids(WORTH_SHARING), wide=True)


def test_no_run_is_wide_on_a_cpu_where_it_would_change_an_answer(
    wide: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.engine.same_bits", lambda *_: False)
    engine = Engine(wide)
    engine.widen()
    assert not engine.wide
    engine.classify(some_ids(WORTH_SHARING), wide=True)


@pytest.mark.parametrize(
    ("seconds", "worth"),
    [
        ({16: (1.0, 0.7), 33: (2.0, 1.5), 64: (4.0, 2.1)}, 16),
        ({16: (1.0, 1.1), 33: (2.0, 1.5), 64: (4.0, 2.1)}, 33),
        ({16: (1.0, 0.5), 33: (2.0, 1.7), 64: (4.0, 2.1)}, 64),  # what a short one seemed to gain was chance
        ({16: (1.0, 0.8), 33: (2.0, 1.5), 64: (4.0, 3.9)}, math.inf),
    ],
)
def test_runs_are_shared_from_as_many_tokens_on_as_all_that_were_timed_gain(
    seconds: dict[int, tuple[float, float]], worth: float
) -> None:
    assert worth_sharing(seconds) == worth


@pytest.mark.parametrize("from_tokens", [*TIMED, math.inf])
def test_a_run_is_wide_where_it_was_measured_to_gain(
    wide: Artifact, monkeypatch: pytest.MonkeyPatch, from_tokens: float
) -> None:
    engine = Engine(wide)
    engine.measure_wide()  # before it can be: there is nothing to measure
    engine.widen()
    two = engine._wide
    monkeypatch.setattr(
        "service.engine._seconds", lambda graph, ids: 1.0 if graph is not two or len(ids) < from_tokens else 0.5
    )
    engine.measure_wide()
    assert engine.wide is (from_tokens <= wide.manifest.max_tokens)
    if two and engine.wide:
        monkeypatch.setattr(two, "_session", None)
        engine.classify(some_ids(int(from_tokens) - 1), wide=True)
        with pytest.raises(EngineError):
            engine.classify(some_ids(int(from_tokens)), wide=True)


def test_bits_are_compared_not_values() -> None:
    one = [np.zeros(3, np.float32), np.ones(2, np.float32)]
    assert same_bits(one, [array.copy() for array in one])
    assert not same_bits(one, [one[0], np.nextafter(one[1], np.float32(2))])
    assert not same_bits(one, [-one[0], one[1]])


def test_too_many_tokens_fail_as_an_engine_error(engine: Engine) -> None:
    with pytest.raises(EngineError, match="the run failed"):
        engine.classify(some_ids(65))


def test_an_id_out_of_the_vocabulary_fails_and_the_next_run_works(engine: Engine) -> None:
    with pytest.raises(EngineError, match="the run failed"):
        engine.embed(np.array([10**6]))
    assert np.isfinite(engine.embed(some_ids(4))).all()


def test_a_value_that_is_not_finite_is_an_error(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def run(self, outputs: list[str], feed: dict[str, Any], _options: None) -> list[NDArray[np.float32]]:
            return [np.array([[np.nan, 0, 0]], np.float32) for _ in outputs]

    monkeypatch.setattr(engine._classify, "_session", Broken())
    with pytest.raises(EngineError, match="not finite"):
        engine.classify(some_ids(4))


def test_a_file_that_is_no_graph(tmp_path: Path) -> None:
    shutil.copytree(TINY, tmp_path, dirs_exist_ok=True)
    (tmp_path / "embed.onnx").write_bytes(b"not a graph")
    with pytest.raises(ArtifactError, match=r"embed\.onnx is not a graph"):
        Engine(Artifact(tmp_path, Artifact.open(TINY).manifest))


def test_the_word_table_is_mapped_once_and_is_that_of_the_graphs(engine: Engine, tmp_path: Path) -> None:
    manifest = Artifact.open(TINY).manifest
    assert manifest.words is not None
    apart = Engine(Artifact(TINY, manifest.model_copy(update={"words": None})))
    for length in (1, 9, 64):
        ids = some_ids(length)
        assert all(map(np.array_equal, engine.classify(ids), apart.classify(ids)))
        assert np.array_equal(engine.embed(ids), apart.embed(ids))

    shutil.copytree(TINY, tmp_path, dirs_exist_ok=True)
    table = np.memmap(
        tmp_path / manifest.words.file, manifest.words.dtype, "r+", manifest.words.offset, manifest.words.shape
    )
    shared = Engine(Artifact(tmp_path, manifest))
    ids = some_ids(9)
    before = shared.classify(ids), shared.embed(ids)
    table[ids] += 1
    assert not np.array_equal(shared.classify(ids).logits, before[0].logits)
    assert not np.array_equal(shared.embed(ids), before[1])


def test_a_word_table_that_its_file_does_not_hold(tmp_path: Path) -> None:
    shutil.copytree(TINY, tmp_path, dirs_exist_ok=True)
    manifest = Artifact.open(TINY).manifest
    (tmp_path / "weights.bin").write_bytes(b"short")
    with pytest.raises(ArtifactError, match=r"weights\.bin does not hold the words"):
        Engine(Artifact(tmp_path, manifest))


def test_the_session_runs_the_graph_as_written(tmp_path: Path) -> None:
    """ONNX Runtime fuses again when a session is made; the slow fusions stay off, and a new release adds none."""
    options = session(TINY / "classify.onnx").get_session_options()
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (1, 1)
    onnx = pytest.importorskip("onnx")
    written = {node.op_type for node in onnx.load(TINY / "classify.onnx", load_external_data=False).graph.node}
    assert {"LayerNormalization", "Add", "QuantizeLinear", "MatMulIntegerToFloat", "Gelu"} <= written
    optimized = tmp_path / "optimized.onnx"
    options.optimized_model_filepath = str(optimized)
    onnxruntime.InferenceSession(
        TINY / "classify.onnx", options, providers=["CPUExecutionProvider"], disabled_optimizers=SLOWER
    )
    run = {node.op_type for node in onnx.load(optimized, load_external_data=False).graph.node}
    assert run - written <= {"Gemm", "FusedGemm"}  # the head: MatMul, Add and Tanh


def test_exact_products_give_the_same_answer(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU whose products may overflow, other kernels give what was measured."""
    monkeypatch.setattr("service.engine.saturates", lambda: True)
    careful = Engine(Artifact.open(TINY))
    for length in (1, 9, 40):
        ids = some_ids(length)
        np.testing.assert_allclose(careful.classify(ids).logits, engine.classify(ids).logits, atol=1e-4)
        np.testing.assert_allclose(careful.embed(ids), engine.embed(ids), atol=1e-4)


def test_nothing_heavy_is_imported() -> None:
    code = "import sys, service.engine; print(sorted({'torch', 'transformers', 'onnx', 'scipy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("first", ["service.engine", "models.quantize"])
def test_the_runtime_keeps_and_sends_no_record_of_its_use(first: str, tmp_path: Path) -> None:
    """ONNX Runtime's Linux builds collect telemetry below the home folder unless they are told not to."""
    if first.startswith("models"):
        pytest.importorskip("onnx")
    code = (
        f"import {first}\nfrom pathlib import Path\nfrom service.artifact import Artifact\n"
        f"from service.engine import Engine\nEngine(Artifact.open(Path({str(TINY)!r})))"
    )
    home = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache"), "XDG_DATA_HOME": str(tmp_path / "data")}
    clean = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    subprocess.run([sys.executable, "-c", code], cwd=TINY.parents[1], env=clean | home, check=True)
    assert not list(tmp_path.rglob("*"))
