"""Ways to multiply by a weight matrix: in float32, in int8, or with weights in blocks of 8 bits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.checkpoint import Floats
from models.graph import MICROSOFT, Graph, Product

HEAD = ("pooler", "classifier")


@dataclass(frozen=True)
class Int8Matrix:
    """A weight matrix int8 [in, out], of which column j stands for values * scale[j] / smoothing[:, None].

    The input is divided by `smoothing` float32 [in] before it is quantized, unless that is all ones, over the range
    `low` to `high` if it is fixed. Always low <= 0 <= high.
    """

    values: NDArray[np.int8]
    scale: Floats
    smoothing: Floats
    low: float
    high: float


def float32(graph: Graph, x: str, name: str, weight: Floats, bias: Floats | None) -> str:
    """Exact: what the checkpoint computes."""
    y = graph.node("MatMul", x, graph.constant(f"{name}.weight", weight))
    return y if bias is None else graph.node("Add", y, graph.constant(f"{name}.bias", bias))


class DynamicInt8:
    """u8 x s8 products, the input quantized over the range that it turns out to have."""

    def __init__(self, matrices: Mapping[str, Int8Matrix]) -> None:
        self._matrices = matrices

    def __call__(self, graph: Graph, x: str, name: str, weight: Floats, bias: Floats | None) -> str:
        """Float32 for a matrix that was not quantized."""
        if name not in self._matrices:
            return float32(graph, x, name, weight, bias)
        matrix = self._matrices[name]
        x, values, scale = _operands(graph, x, name, matrix)
        return graph.node("DynamicQuantizeMatMul", x, values, scale, "", _optional(graph, name, bias), domain=MICROSOFT)


class StaticInt8:
    """u8 x s8 products, the input quantized over the range seen in calibration; beyond it, values are clipped."""

    def __init__(self, matrices: Mapping[str, Int8Matrix]) -> None:
        self._matrices = matrices

    def __call__(self, graph: Graph, x: str, name: str, weight: Floats, bias: Floats | None) -> str:
        """Float32 for a matrix that was not quantized."""
        if name not in self._matrices:
            return float32(graph, x, name, weight, bias)
        matrix = self._matrices[name]
        x, values, scale = _operands(graph, x, name, matrix)
        step = (matrix.high - matrix.low) / 255
        x_scale = graph.constant(f"{name}.input_scale", np.array(step, np.float32))
        x_zero = graph.constant(f"{name}.input_zero", np.array(round(-matrix.low / step), np.uint8))
        x = graph.node("QuantizeLinear", x, x_scale, x_zero)
        return graph.node(
            "MatMulIntegerToFloat",
            x,
            values,
            x_scale,
            scale,
            x_zero,
            "",
            _optional(graph, name, bias),
            domain=MICROSOFT,
        )


class Blocks8Bit:
    """Weights in blocks of 8 bits along the input, each with its scale; the input in blocks of int8 of its own row."""

    def __init__(self, block: int) -> None:
        self._block = block

    def __call__(self, graph: Graph, x: str, name: str, weight: Floats, bias: Floats | None) -> str:
        """Float32 for the head, and for a matrix that does not divide into blocks."""
        rows, columns = weight.shape
        if name in HEAD or rows % self._block:
            return float32(graph, x, name, weight, bias)
        blocks = weight.T.reshape(columns, rows // self._block, self._block)
        scale = np.abs(blocks).max(axis=2) / 127
        scale[scale == 0] = 1
        values = np.clip(np.rint(blocks / scale[..., None]), -127, 127) + 128
        sizes: dict[str, Any] = {"K": rows, "N": columns, "bits": 8, "block_size": self._block, "accuracy_level": 4}
        return graph.node(
            "MatMulNBits",
            x,
            graph.constant(f"{name}.values", values.astype(np.uint8)),
            graph.constant(f"{name}.scale", scale.astype(np.float32)),
            "",
            "",
            _optional(graph, name, bias),
            domain=MICROSOFT,
            **sizes,
        )


class Either:
    """One way for the matrices whose names end in one of the given words, another for the others."""

    def __init__(self, words: tuple[str, ...], chosen: Product, otherwise: Product) -> None:
        self._words, self._chosen, self._otherwise = words, chosen, otherwise

    def __call__(self, graph: Graph, x: str, name: str, weight: Floats, bias: Floats | None) -> str:
        """As the way chosen for this name."""
        return (self._chosen if name.endswith(self._words) else self._otherwise)(graph, x, name, weight, bias)


def _operands(graph: Graph, x: str, name: str, matrix: Int8Matrix) -> tuple[str, str, str]:
    """The input, smoothed if need be, and the names of the matrix's values and scale."""
    if (matrix.smoothing != 1).any():
        x = graph.node("Mul", x, graph.constant(f"{name}.smoothing", 1 / matrix.smoothing))
    values = graph.constant(f"{name}.values", matrix.values)
    return x, values, graph.constant(f"{name}.scale", matrix.scale)


def _optional(graph: Graph, name: str, bias: Floats | None) -> str:
    """A bias as the last input of a node: the empty name stands for none."""
    return "" if bias is None else graph.constant(f"{name}.bias", bias)
