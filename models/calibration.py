"""What int8 matrices are fitted to: the inputs that real texts give them.

Three steps keep int8 close to float32 at next to no cost in speed. Smoothing (Xiao et al. 2022) divides the few input
channels that are far larger than the others, which would otherwise take the whole range of 8 bits, and multiplies the
weights by the same factors. Inside the feed-forward blocks, where one token has a channel ten times any other, copies
of that channel share its weights (Zhao et al. 2019), so that smoothing need not make them large in turn. Rounding by
GPTQ (Frantar et al. 2022) makes up for the error of each weight's rounding in the weights that are still to be rounded,
as seen from the inputs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

from models.checkpoint import Bert, Dense, Floats, Layer
from models.graph import Graph, classify_graph, embed_graph
from models.products import HEAD, Int8Matrix, float32

Ids = NDArray[np.int64]
SEARCHED_TEXTS = 32
DAMPING = 0.01
EVEN = (".attention",)  # no channel of what attention gives stands out: smoothing there costs a node, gains nothing
TOKENS = (".qkv", ".up", ".query", ".key", ".value")  # what they are fed was normalized, or is a mean of such
BLOCK = 128


@dataclass
class Calibration:
    """Every encoder matrix by name, and its inputs: an array float32 [rows, in] for each text."""

    matrices: dict[str, Floats] = field(default_factory=dict)
    inputs: dict[str, list[Floats]] = field(default_factory=dict)


class _Recorder:
    """Multiplies in float32 and notes which value is whose input."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.matrices: dict[str, Floats] = {}

    def __call__(self, graph: Graph, x: str, name: str, weight: Floats, bias: Floats | None) -> str:
        if name not in HEAD:
            self.values[name] = x
            self.matrices[name] = weight
        return float32(graph, x, name, weight, bias)


def calibrate(bert: Bert, texts: Sequence[Ids], tokenwise: int) -> Calibration:
    """Run texts, given as token ids, through both float32 graphs: [CLS]-only matrices see all of them, the others,
    which have a row for each token, the first `tokenwise`."""
    calibration = Calibration()
    for write, count in ((embed_graph, tokenwise), (classify_graph, len(texts))):
        recorder = _Recorder()
        model = write(bert, recorder)
        new = {name: value for name, value in recorder.values.items() if name not in calibration.matrices}
        calibration.matrices |= {name: recorder.matrices[name] for name in new}
        for name in new:
            calibration.inputs[name] = []
        for outputs in _outputs(model, sorted(set(new.values())), texts[:count]):
            for name, value in new.items():
                calibration.inputs[name].append(outputs[value].reshape(-1, outputs[value].shape[-1]))
    return calibration


def _outputs(model: onnx.ModelProto, values: list[str], texts: Sequence[Ids]) -> Iterator[dict[str, Floats]]:
    """The named values inside a graph for each text."""
    for value in values:
        model.graph.output.add(name=value)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])

    def run(ids: Ids) -> dict[str, Floats]:
        return dict(zip(values, session.run(values, {"input_ids": ids[None]}), strict=True))

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield from pool.map(run, texts)


def split_channels(bert: Bert, texts: Sequence[Ids], copies: int) -> Bert:
    """The same function with `copies` more channels inside each feed-forward block: the channels that texts drive
    furthest are repeated, as often as brings the largest share down most, and their outgoing weights divided.

    Outlier channel splitting: Zhao et al. 2019, "Improving Neural Network Quantization without Retraining using
    Outlier Channel Splitting".
    """
    inputs = calibrate(bert, texts, len(texts)).inputs
    layers: list[Layer] = []
    for index, layer in enumerate(bert.layers):
        peaks = np.max([np.abs(rows).max(axis=0) for rows in inputs[f"{index}.down"]], axis=0)
        counts = np.ones(len(peaks), np.int64)
        for _ in range(copies):
            counts[np.argmax(peaks / counts)] += 1
        channels = np.repeat(np.arange(len(peaks)), counts)
        up = Dense(layer.up.weight[:, channels], layer.up.bias[channels])
        shares = (1 / counts[channels]).astype(np.float32)
        down = Dense(layer.down.weight[channels] * shares[:, None], layer.down.bias)
        layers.append(replace(layer, up=up, down=down))
    return replace(bert, layers=tuple(layers))


def int8(
    calibration: Calibration, *, fitted: bool, bits: int = 8, even: tuple[str, ...] = EVEN
) -> dict[str, Int8Matrix]:
    """Quantize every matrix, per output channel: plainly, or smoothed and rounded by GPTQ. Those whose names end in
    one of `even` are not smoothed."""
    found: dict[str, Int8Matrix] = {}
    for name, exact in calibration.matrices.items():
        inputs = calibration.inputs[name]
        smooth = fitted and not name.endswith(even)
        smoothing = _smoothing(exact, inputs) if smooth else np.ones(len(exact), np.float32)
        weight = exact * smoothing[:, None]
        rows = np.concatenate(inputs) / smoothing
        scale = channel_scale(weight, bits)
        values = gptq(weight, scale, rows, bits) if fitted else round_to(weight, scale, bits)
        low, high = min(float(rows.min()), 0.0), max(float(rows.max()), 0.0)
        found[name] = Int8Matrix(values, scale, smoothing, low, high)
    return found


def channel_scale(weight: Floats, bits: int = 8) -> Floats:
    """Scale of each output channel, float32 [out], that makes its largest weight the largest integer."""
    scale = np.abs(weight).max(axis=0) / (2 ** (bits - 1) - 1)
    return np.where(scale == 0, 1, scale).astype(np.float32)


def round_to(weight: Floats, scale: Floats, bits: int = 8) -> NDArray[np.int8]:
    """Weights [in, out] in units of their channel's scale, each rounded to the nearest integer."""
    largest = 2 ** (bits - 1) - 1
    return np.clip(np.rint(weight / scale), -largest, largest).astype(np.int8)


def gptq(weight: Floats, scale: Floats, rows: Floats, bits: int = 8) -> NDArray[np.int8]:
    """Weights [in, out] as integers whose product with `rows` [n, in] is as close as can be to the weights' own.

    Input channels are rounded in turn, the most active first; what each loses is spread over those that remain,
    by the inverse of the rows' second moments.
    """
    largest = 2 ** (bits - 1) - 1
    moments = rows.T.astype(np.float64) @ rows / len(rows)
    moments[np.diag_indices_from(moments)] += DAMPING * np.trace(moments) / len(moments) + 1e-12
    order = np.argsort(-np.diag(moments))
    spread = np.linalg.cholesky(np.linalg.inv(moments[np.ix_(order, order)])).T
    left = weight[order].astype(np.float64)
    rounded = np.zeros_like(left)
    for start in range(0, len(left), BLOCK):
        stop = min(start + BLOCK, len(left))
        errors = np.zeros((stop - start, left.shape[1]))
        for i in range(start, stop):
            rounded[i] = np.clip(np.rint(left[i] / scale), -largest, largest)
            errors[i - start] = (left[i] - rounded[i] * scale) / spread[i, i]
            left[i + 1 : stop] -= np.outer(spread[i, i + 1 : stop], errors[i - start])
        left[stop:] -= spread[start:stop, stop:].T @ errors
    values = np.empty(weight.shape, np.int8)
    values[order] = rounded
    return values


def _smoothing(weight: Floats, inputs: Sequence[Floats]) -> Floats:
    """The factors [in], among several kinds, that bring an int8 product closest to the exact one."""
    peaks = np.max([np.abs(rows).max(axis=0) for rows in inputs], axis=0) + np.float32(1e-6)
    step = max(1, len(inputs) // SEARCHED_TEXTS)
    sample = inputs[::step]
    exact = [rows @ weight for rows in sample]

    def error(smoothing: Floats) -> float:
        scaled = weight * smoothing[:, None]
        scale = channel_scale(scaled)
        scaled = round_to(scaled, scale) * scale
        return sum(
            float(np.square(_through_8_bits(rows / smoothing) @ scaled - y).sum())
            for rows, y in zip(sample, exact, strict=True)
        )

    return min(_candidates(weight, peaks), key=error)


def _candidates(weight: Floats, peaks: Floats) -> list[Floats]:
    """Factors by how far a channel's peak stands out from the others', and by the balance of SmoothQuant."""
    found = [np.ones_like(peaks)]
    for percentile in (50, 75, 90, 95, 98, 99, 99.5):
        excess = np.maximum(1, peaks / np.percentile(peaks, percentile))
        found += [excess**power for power in (0.5, 0.75, 1.0)]
    largest = np.abs(weight).max(axis=1) + 1e-6
    found += [peaks**power / largest ** (1 - power) for power in (0.7, 0.85, 1.0)]
    return [factors.astype(np.float32) for factors in found]


def _through_8_bits(rows: Floats) -> Floats:
    """Rows of one text as they are after DynamicQuantizeLinear."""
    low, high = min(float(rows.min()), 0.0), max(float(rows.max()), 0.0)
    step = (high - low) / 255 or 1.0
    zero = round(-low / step)
    return ((np.clip(np.rint(rows / step) + zero, 0, 255) - zero) * step).astype(np.float32)
