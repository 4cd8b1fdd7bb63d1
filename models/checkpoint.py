"""A Hugging Face BertForSequenceClassification checkpoint as plain arrays: no torch is needed to read one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


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
class Bert:
    """A BERT encoder with a classification head.

    Words are float32 [vocabulary, hidden]; positions float32 [max_tokens, hidden], the one token type added in.
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

    @classmethod
    def read(cls, folder: Path) -> Bert:
        """Read `config.json` and `model.safetensors`. Raises ValueError for what the graphs cannot express."""
        from safetensors.numpy import load_file

        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        return cls.from_state(load_file(folder / "model.safetensors"), config)

    @classmethod
    def from_state(cls, state: Mapping[str, NDArray[Any]], config: Mapping[str, Any]) -> Bert:
        """Take the weights from a state dict. Raises ValueError for what the graphs cannot express."""
        _check(config)
        weights = _Weights(state)
        types = weights.array("bert.embeddings.token_type_embeddings.weight")
        labels = {int(index): name for index, name in config["id2label"].items()}
        return cls(
            words=weights.array("bert.embeddings.word_embeddings.weight"),
            positions=weights.array("bert.embeddings.position_embeddings.weight") + types[0],
            embedding_norm=weights.norm("bert.embeddings.LayerNorm"),
            layers=tuple(weights.layer(i) for i in range(config["num_hidden_layers"])),
            pooler=weights.dense("bert.pooler.dense"),
            classifier=weights.dense("classifier"),
            labels=tuple(labels[i] for i in range(len(labels))),
            heads=config["num_attention_heads"],
            epsilon=config["layer_norm_eps"],
        )

    @property
    def hidden_size(self) -> int:
        """Width of the hidden states."""
        return int(self.words.shape[1])

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


class _Weights:
    def __init__(self, state: Mapping[str, NDArray[Any]]) -> None:
        self._state = state

    def array(self, name: str) -> Floats:
        if name not in self._state:
            raise ValueError(f"the checkpoint has no {name}: is it a BertForSequenceClassification?")
        return self._state[name].astype(np.float32)

    def dense(self, name: str) -> Dense:
        return Dense(np.ascontiguousarray(self.array(f"{name}.weight").T), self.array(f"{name}.bias"))

    def norm(self, name: str) -> Norm:
        return Norm(self.array(f"{name}.weight"), self.array(f"{name}.bias"))

    def layer(self, index: int) -> Layer:
        name = f"bert.encoder.layer.{index}"
        return Layer(
            query=self.dense(f"{name}.attention.self.query"),
            key=self.dense(f"{name}.attention.self.key"),
            value=self.dense(f"{name}.attention.self.value"),
            attention=self.dense(f"{name}.attention.output.dense"),
            attention_norm=self.norm(f"{name}.attention.output.LayerNorm"),
            up=self.dense(f"{name}.intermediate.dense"),
            down=self.dense(f"{name}.output.dense"),
            output_norm=self.norm(f"{name}.output.LayerNorm"),
        )


def _check(config: Mapping[str, Any]) -> None:
    expected = {"model_type": "bert", "hidden_act": "gelu", "position_embedding_type": "absolute"}
    for key, value in expected.items():
        if config.get(key, value) != value:
            raise ValueError(f"config.json has {key} {config[key]!r}; only {value!r} can be exported")
