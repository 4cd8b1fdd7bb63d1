"""Whether 8-bit products overflow is measured, not read from what the CPU says of itself."""

import platform
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from service.saturation import PROBE, saturates


def test_the_probe_multiplies_what_would_overflow() -> None:
    onnx = pytest.importorskip("onnx")
    model = onnx.load_from_string(PROBE)
    onnx.checker.check_model(model)
    (node,) = model.graph.node
    (weights,) = (onnx.numpy_helper.to_array(one) for one in model.graph.initializer)
    assert node.op_type == "MatMulInteger"
    assert weights.dtype == np.int8
    assert (weights == 127).all()
    assert np.iinfo(np.int16).max < 2 * 255 * 127


@pytest.mark.skipif(platform.machine() != "x86_64", reason="elsewhere products are exact")
def test_a_machine_that_is_not_emulated_says_so_itself() -> None:
    flags = set(Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").split())
    if "avx2" not in flags:
        pytest.skip("older kernels add in 32 bits")
    assert saturates() is not bool({"avx512_vnni", "avx_vnni"} & flags)


def test_sums_that_were_cut_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    class Cut:
        def __init__(self, *_args: object, **_options: object) -> None: ...

        def run(self, _outputs: list[str], _feed: dict[str, object]) -> list[object]:
            return [np.full((1, 16), np.iinfo(np.int16).max)]

    monkeypatch.setattr(onnxruntime, "InferenceSession", Cut)
    assert saturates.__wrapped__() is True
