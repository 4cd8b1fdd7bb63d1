"""What every family is to the steps that make a model of it, and what graphs that differ from BERT's share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto

from models.checkpoint import ACTIVATIONS, Activation, Dense, Floats, Norm
from models.graph import Graph, Product

State = Mapping[str, NDArray[Any]]


class Encoder(Protocol):
    """A sequence classifier as arrays, which writes itself as graphs."""

    @property
    def labels(self) -> tuple[str, ...]:
        """What the logits stand for."""

    @property
    def outputs(self) -> int:
        """How many logits the weights of the head give."""

    @property
    def words(self) -> Floats:
        """The word table, float32 [vocabulary, width]."""

    @property
    def hidden_size(self) -> int:
        """Width of the hidden states."""

    @property
    def max_tokens(self) -> int:
        """Tokens of the longest text, the special ones included."""

    @property
    def last_layer(self) -> Literal["cls_only", "full"]:
        """Whether `classify` computes the last layer for the first token alone."""

    def classify(self, product: Product, *, half_words: bool = False, full: bool = False) -> onnx.ModelProto:
        """The graph of `logits` and `cls`; `full` computes the last layer for every token, whatever `last_layer` is."""

    def embed(self, product: Product, *, half_words: bool = False) -> onnx.ModelProto:
        """The graph of pooled vectors."""


class Writer:
    """A graph being written, for texts of one length: there is no padding, and no mask to keep it out.

    Hidden states are float32 [batch, length, hidden].
    """

    def __init__(self, product: Product, words: Floats, epsilon: float, *, half_words: bool) -> None:
        self.graph = Graph()
        self._product = product
        self._words = words.astype(np.float16) if half_words else words
        self._epsilon = epsilon

    def words(self) -> str:
        """The embedding of each token."""
        words = self.graph.node("Gather", self.graph.constant("words", self._words), "input_ids")
        return self.graph.node("Cast", words, to=TensorProto.FLOAT) if self._words.dtype == np.float16 else words

    def number(self, value: int) -> str:
        """An integer, int64 []."""
        return self.graph.constant(f"number_{value}", np.array(value, np.int64))

    def axis(self, value: int) -> str:
        """An integer in a list, int64 [1]."""
        return self.graph.constant(f"axis_{value}", np.array([value], np.int64))

    def length(self) -> str:
        """Tokens of the text, int64 [1]."""
        return self.graph.node("Shape", "input_ids", start=1, end=2)

    def differences(self, length: str) -> str:
        """The place of each query less that of each key, int64 [length, length]."""
        places = self.graph.node("Range", self.number(0), self.graph.node("Squeeze", length), self.number(1))
        return self.graph.node("Sub", self.graph.node("Unsqueeze", places, self.axis(1)), places)

    def first(self, x: str, axis: int) -> str:
        """The first entry along an axis, which is kept."""
        return self.graph.node("Slice", x, self.axis(0), self.axis(1), self.axis(axis))

    def norm(self, x: str, name: str, norm: Norm, output: str | None = None) -> str:
        """Layer normalization."""
        scale, bias = (self.graph.constant(f"{name}.norm.{part}", getattr(norm, part)) for part in ("scale", "bias"))
        return self.graph.node("LayerNormalization", x, scale, bias, axis=-1, epsilon=self._epsilon, output=output)

    def product(self, x: str, name: str, dense: Dense, output: str | None = None) -> str:
        """A linear layer, multiplied in the way this graph was asked for."""
        y = self._product(self.graph, x, name, *dense)
        if output:
            self.graph.nodes[-1].output[0] = output
        return output or y

    def cls(self, x: str) -> str:
        """`cls` [batch, hidden], the first token's hidden state."""
        return self.graph.node("Gather", x, self.number(0), axis=1, output="cls")

    def mean(self, x: str, output: str | None = None) -> str:
        """The mean of the hidden states over the tokens, [batch, hidden]."""
        return self.graph.node("ReduceMean", x, self.axis(1), keepdims=0, output=output)

    def pool(self, x: str, size: int) -> onnx.ModelProto:
        """The graph that ends in `mean`, `max` and `cls` [batch, size]."""
        self.mean(x, "mean")
        self.graph.node("ReduceMax", x, self.axis(1), keepdims=0, output="max")
        self.cls(x)
        return self.graph.model(dict.fromkeys(("mean", "max", "cls"), size))


def activation(name: str) -> Activation:
    """An activation function by the name that configurations have for it. Raises ValueError."""
    if name not in ACTIVATIONS:
        raise ValueError(f"config.json has the activation {name!r}; {', '.join(ACTIVATIONS)} can be exported")
    return ACTIVATIONS[name]
