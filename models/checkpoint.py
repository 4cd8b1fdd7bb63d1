"""A Hugging Face checkpoint of BERT, or of a family that computes as BERT does, as plain arrays: without torch."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

WEIGHTS = "model.safetensors"
"""The file of a checkpoint's weights."""

Floats = NDArray[np.float32]
Activation = Literal["gelu", "gelu_tanh", "relu", "tanh"]

ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "tanh": "tanh",
}
"""By the name that a configuration has for it."""


class Dense(NamedTuple):
    """y = x @ weight + bias: weight float32 [in, out], bias float32 [out]."""

    weight: Floats
    bias: Floats


class Norm(NamedTuple):
    """Scale and bias of a layer normalization, float32 [hidden] each."""

    scale: Floats
    bias: Floats


@dataclass(frozen=True)
class Layer:
    """The weights of one encoder layer."""

    query: Dense
    key: Dense
    value: Dense
    attention: Dense
    attention_norm: Norm
    up: Dense
    down: Dense
    output_norm: Norm


@dataclass(frozen=True)
class Layout:
    """What a family calls the parts of its encoder and its head, in its weights and in its configuration.

    `layer` names the layers' own parts after `layers`, which may hold {index}; `first_position` is the row of the first
    token's position.
    """

    prefix: str = "bert"
    layers: str = "encoder.layer.{index}"
    layer: Mapping[str, str] = field(
        default_factory=lambda: {
            "query": "attention.self.query",
            "key": "attention.self.key",
            "value": "attention.self.value",
            "attention": "attention.output.dense",
            "attention_norm": "attention.output.LayerNorm",
            "up": "intermediate.dense",
            "down": "output.dense",
            "output_norm": "output.LayerNorm",
        }
    )
    projection: str | None = None
    distances: str | None = None
    pooler: str = "bert.pooler.dense"
    pooled: Activation = "tanh"
    classifier: str = "classifier"
    first_position: Callable[[Mapping[str, Any]], int] = lambda _: 0
    group: Callable[[Mapping[str, Any], int], int] = lambda _, index: index
    keys: Mapping[str, str] = field(default_factory=dict)

    def config(self, config: Mapping[str, Any], key: str) -> Any:
        """A value by the name that BERT's configuration has for it."""
        return config[self.keys.get(key, key)]


@dataclass(frozen=True)
class Bert:
    """An encoder like BERT's with a classification head.

    Words are float32 [vocabulary, width]; positions float32 [max_tokens, width], the one token type added in. The width
    is the hidden states' unless there is a projection. What the distance of two tokens adds to their attention score,
    for a family that has it, is float32 [heads, 2 * max_tokens - 1], nearest in the middle.
    """

    words: Floats
    positions: Floats
    embedding_norm: Norm
    layers: tuple[Layer, ...]
    pooler: Dense
    classifier: Dense
    labels: tuple[str, ...]
    heads: int
    epsilon: float
    activation: Activation = "gelu"
    pooled: Activation = "tanh"
    projection: Dense | None = None
    distances: Floats | None = None

    @classmethod
    def read(cls, folder: Path) -> Bert:
        """Read BERT's `config.json` and `model.safetensors`. Raises ValueError for what the graphs cannot express."""
        from safetensors.numpy import load_file

        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        if config["model_type"] != "bert":
            raise ValueError(
                f"config.json has model_type {config['model_type']!r}: `import` takes it, `export` does not"
            )
        return cls.from_state(load_file(folder / WEIGHTS), config)

    @classmethod
    def from_state(
        cls, state: Mapping[str, NDArray[Any]], config: Mapping[str, Any], layout: Layout | None = None
    ) -> Bert:
        """Take the weights from a state dict. Raises ValueError for what the graphs cannot express."""
        layout = layout or Layout()
        activation = _activation(config, layout)
        weights = Weights(state)
        embeddings = f"{layout.prefix}.embeddings"
        positions = weights.array(f"{embeddings}.position_embeddings.weight")[layout.first_position(config) :]
        if f"{embeddings}.token_type_embeddings.weight" in state:
            positions = positions + weights.array(f"{embeddings}.token_type_embeddings.weight")[0]
        layers = f"{layout.prefix}.{layout.layers}"
        count = int(layout.config(config, "num_hidden_layers"))
        projection = layout.projection
        heads = int(layout.config(config, "num_attention_heads"))
        return cls(
            words=weights.array(f"{embeddings}.word_embeddings.weight"),
            positions=positions,
            embedding_norm=weights.norm(f"{embeddings}.LayerNorm"),
            layers=tuple(
                weights.layer(layers.format(index=layout.group(config, index)), layout.layer) for index in range(count)
            ),
            pooler=weights.dense(layout.pooler),
            classifier=weights.dense(layout.classifier),
            labels=label_names(config),
            heads=heads,
            epsilon=config.get("layer_norm_eps", 1e-12),
            activation=activation,
            pooled=layout.pooled,
            projection=weights.dense(projection) if projection and f"{projection}.weight" in state else None,
            distances=by_distance(weights.array(layout.distances), len(positions)) if layout.distances else None,
        )

    @property
    def hidden_size(self) -> int:
        """Width of the hidden states."""
        return len(self.layers[-1].output_norm.scale)

    @property
    def head_size(self) -> int:
        """Width of one attention head."""
        return self.hidden_size // self.heads

    def scaled(self, query: Dense) -> Dense:
        """A query's weights with the scaling of attention scores folded in."""
        factor = np.float32(self.head_size**-0.5)
        return Dense(query.weight * factor, query.bias * factor)

    def qkv(self, layer: Layer) -> Dense:
        """Query, key and value of a layer as one matrix [hidden, 3 * hidden], the query scaled."""
        parts = (self.scaled(layer.query), layer.key, layer.value)
        weight = np.concatenate([part.weight for part in parts], axis=1)
        return Dense(weight, np.concatenate([part.bias for part in parts]))


class Weights:
    """A state dict, its matrices as [in, out]. Whatever is asked for and missing raises ValueError."""

    def __init__(self, state: Mapping[str, NDArray[Any]]) -> None:
        self._state = state

    def array(self, name: str) -> Floats:
        """A tensor, float32."""
        if name not in self._state:
            raise ValueError(f"the checkpoint has no {name}: is it a sequence classifier?")
        return self._state[name].astype(np.float32)

    def dense(self, name: str) -> Dense:
        """A linear layer; one without a bias has zeros."""
        weight = np.ascontiguousarray(self.array(f"{name}.weight").T)
        bias = f"{name}.bias"
        return Dense(weight, self.array(bias) if bias in self._state else np.zeros(weight.shape[1], np.float32))

    def norm(self, name: str) -> Norm:
        """A layer normalization; one without a bias has zeros."""
        scale = self.array(f"{name}.weight")
        bias = f"{name}.bias"
        return Norm(scale, self.array(bias) if bias in self._state else np.zeros_like(scale))

    def layer(self, name: str, parts: Mapping[str, str]) -> Layer:
        """An encoder layer, its parts by their names in it."""
        kinds = {part: self.norm if part.endswith("norm") else self.dense for part in parts}
        return Layer(**{part: kinds[part](f"{name}.{own}") for part, own in parts.items()})  # type: ignore[arg-type]


def label_names(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The labels in the order of the logits."""
    labels = {int(index): str(name) for index, name in config["id2label"].items()}
    return tuple(labels[index] for index in range(len(labels)))


def by_distance(table: Floats, longest: int, buckets: int = 32, furthest: int = 128) -> Floats:
    """A value for each distance key - query from 1 - longest to longest - 1, float32 [heads, 2 * longest - 1].

    The table is float32 [buckets, heads]: half of the buckets for each direction, the nearest half of those for one
    distance each, the others for logarithmic ranges (Raffel et al. 2020, as MPNet has it).
    """
    distance = np.arange(1 - longest, longest)
    half = buckets // 2
    exact = half // 2
    away = np.abs(distance)
    share = np.log(np.maximum(away, 1).astype(np.float32) / exact) / np.float32(np.log(furthest / exact))
    far = np.minimum(exact + (share * (half - exact)).astype(np.int64), half - 1)
    return np.ascontiguousarray(table[np.where(away < exact, away, far) + half * (distance > 0)].T)


def _activation(config: Mapping[str, Any], layout: Layout) -> Activation:
    positions = config.get("position_embedding_type", "absolute")
    if positions != "absolute":
        raise ValueError(f"config.json has position_embedding_type {positions!r}; only 'absolute' can be exported")
    name = config.get(layout.keys.get("hidden_act", "hidden_act"), "gelu")
    if name not in ACTIVATIONS:
        raise ValueError(f"config.json has hidden_act {name!r}; {', '.join(ACTIVATIONS)} can be exported")
    return ACTIVATIONS[name]
