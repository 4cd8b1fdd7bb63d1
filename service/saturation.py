"""Whether 8-bit products overflow on this machine, by multiplying some: what a CPU says of itself may not be so.

x86 without VNNI instructions multiplies u8 by s8 in pairs that are added in 16 bits, and a sum over 32,767 is cut to
it (VPMADDUBSW). `/proc/cpuinfo` under an emulator is that of the host.
"""

from __future__ import annotations

from base64 import b64decode
from functools import cache

import numpy as np
import onnxruntime

PROBE = b64decode(
    "CAgSADp4ChgKAWEKAWISAXkiDU1hdE11bEludGVnZXISBXByb2JlKisIAggQEANCAWJKIH9/f39/f39/f39/f39/f39/f39/f39/"
    "f39/f39/f39/WhMKAWESDgoMCAISCAoCCAEKAggCYhMKAXkSDgoMCAYSCAoCCAEKAggQQgQKABAN"
)
"""An ONNX graph of one MatMulInteger: `a`, u8 [1, 2], by s8 [2, 16] all of 127 gives `y`, int32 [1, 16]."""


@cache
def saturates() -> bool:
    """Whether u8 x s8 products overflow here. Then ONNX Runtime has to be asked for u8 x u8, exact and half as fast."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(PROBE, options, providers=["CPUExecutionProvider"])
    (sums,) = session.run(["y"], {"a": np.full((1, 2), 255, np.uint8)})
    return bool((sums != 2 * 255 * 127).any())
