"""DeBERTa-v2 and -v3: attention scores with a share of what and one of where, by distance (He et al. 2021)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import onnx
from numpy.typing import NDArray

from models.checkpoint import Activation, Dense, Floats, Layer, Layout, Norm, Weights, label_names
from models.families.encoder import State, Writer, activation
from models.graph import Product

PARTS = {
    **Layout().layer,
    "query": "attention.self.query_proj",
    "key": "attention.self.key_proj",
    "value": "attention.self.value_proj",
}


@dataclass(frozen=True)
class Convolution:
    """What the first layer's output gets added from the neighbours in its input: weight float32 [out, in, width]."""

    weight: Floats
    bias: Floats
    groups: int
    act: Activation
    norm: Norm


@dataclass(frozen=True)
class Positions:
    """One layer's keys and queries of distances, float32 [heads, size, 2 * span] each, None for a kind not used."""

    keys: Floats | None
    queries: Floats | None


@dataclass(frozen=True)
class Deberta:
    """A DeBERTa encoder with its pooler and classifier.

    `buckets` int64 [2 * max_tokens - 1] is the place of each distance query - key in the tables of `positions`, whose
    products with the projections of a layer do not depend on the text and are made here, once.
    """

    labels: tuple[str, ...]
    max_tokens: int
    words: Floats
    offsets: Floats | None
    projection: Dense | None
    embedding_norm: Norm
    layers: tuple[Layer, ...]
    positions: tuple[Positions, ...]
    buckets: NDArray[np.int64]
    convolution: Convolution | None
    pooler: Dense
    pooled: Activation
    classifier: Dense
    heads: int
    act: Activation
    epsilon: float

    @classmethod
    def read(cls, state: State, config: Mapping[str, Any]) -> Deberta:
        """Take the weights. Raises ValueError for what the graphs lack."""
        weights = Weights(state)
        longest = int(config["max_position_embeddings"])
        heads = int(config["num_attention_heads"])
        named = [f"deberta.encoder.layer.{index}" for index in range(config["num_hidden_layers"])]
        layers = tuple(weights.layer(name, PARTS) for name in named)
        span, buckets = _buckets(config, longest)
        kinds = set(config.get("pos_att_type") or ())
        scale = np.float32((layers[0].query.weight.shape[1] // heads * (1 + len(kinds))) ** -0.5)
        relative = config.get("relative_attention", False)
        table = _distances(weights, config, span) if relative else None
        positions = tuple(
            Positions(None, None) if table is None else _positions(weights, config, name, layer, table, scale)
            for name, layer in zip(named, layers, strict=True)
        )
        layers = tuple(_scaled(layer, scale) for layer in layers)
        projection = "deberta.embeddings.embed_proj"
        return cls(
            labels=label_names(config),
            max_tokens=longest,
            words=weights.array("deberta.embeddings.word_embeddings.weight"),
            offsets=_offsets(weights, state, longest),
            projection=weights.dense(projection) if f"{projection}.weight" in state else None,
            embedding_norm=weights.norm("deberta.embeddings.LayerNorm"),
            layers=layers,
            positions=positions,
            buckets=buckets,
            convolution=_convolution(weights, config) if config.get("conv_kernel_size", 0) > 0 else None,
            pooler=weights.dense("pooler.dense"),
            pooled=activation(config.get("pooler_hidden_act", "gelu")),
            classifier=weights.dense("classifier"),
            heads=heads,
            act=activation(config["hidden_act"]),
            epsilon=config["layer_norm_eps"],
        )

    @property
    def outputs(self) -> int:
        """How many logits there are."""
        return len(self.classifier.bias)

    @property
    def hidden_size(self) -> int:
        """Width of the hidden states."""
        return len(self.embedding_norm.scale)

    @property
    def last_layer(self) -> Literal["cls_only", "full"]:
        """The convolution behind the first layer reads every token of it."""
        return "full" if self.convolution and len(self.layers) == 1 else "cls_only"

    def classify(self, product: Product, *, half_words: bool = False, full: bool = False) -> onnx.ModelProto:
        """The graph of `logits` and `cls`."""
        writer = _Writer(self, product, half_words=half_words)
        cls = writer.cls(writer.encode(cls_only=self.last_layer == "cls_only" and not full))
        pooled = writer.graph.activate(self.pooled, writer.product(cls, "pooler", self.pooler))
        writer.product(pooled, "classifier", self.classifier, "logits")
        return writer.graph.model({"logits": self.outputs, "cls": self.hidden_size})

    def embed(self, product: Product, *, half_words: bool = False) -> onnx.ModelProto:
        """The graph of pooled vectors."""
        writer = _Writer(self, product, half_words=half_words)
        return writer.pool(writer.encode(cls_only=False), self.hidden_size)


class _Writer(Writer):
    def __init__(self, model: Deberta, product: Product, *, half_words: bool) -> None:
        super().__init__(product, model.words, model.epsilon, half_words=half_words)
        self._model = model

    def encode(self, *, cls_only: bool) -> str:
        """The last hidden states; with `cls_only` that of the first token alone."""
        graph, model = self.graph, self._model
        x = self.words()
        length = self.length()
        if model.offsets is not None:
            offsets = graph.constant("offsets", model.offsets)
            rows = length if len(model.offsets) > 1 else self.axis(1)
            x = graph.node("Add", x, graph.node("Slice", offsets, self.axis(0), rows, self.axis(0)))
        if model.projection:
            x = self.product(x, "projection", model.projection)
        embedded = x = self.norm(x, "embeddings", model.embedding_norm)
        middle = self.number(model.max_tokens - 1)
        places = graph.node("Add", self.differences(length), middle)
        buckets = graph.node("Gather", graph.constant("buckets", model.buckets), places)
        for index, layer in enumerate(model.layers):
            last = cls_only and index == len(model.layers) - 1
            queries = self.first(x, 1) if last else x
            x = self._layer(x, queries, self.first(buckets, 0) if last else buckets, index, layer)
            if index == 0 and model.convolution:
                x = self._convolve(embedded, x, model.convolution)
        return x

    def _layer(self, x: str, queries: str, buckets: str, index: int, layer: Layer) -> str:
        graph = self.graph
        q = self._heads(self.product(queries, f"{index}.query", layer.query))
        both = self.product(x, f"{index}.key_value", _beside(layer.key, layer.value))
        k, v = (self._heads(one) for one in graph.nodes_of("Split", both, outputs=2, axis=-1, num_outputs=2))
        scores = self._scores(q, k, buckets, index)
        shares = graph.node("Softmax", scores, axis=-1)
        context = graph.node("Transpose", graph.node("MatMul", shares, v), perm=[0, 2, 1, 3])
        context = graph.node("Reshape", context, graph.constant("joined", np.array([0, 0, -1], np.int64)))
        context = self.product(context, f"{index}.attention", layer.attention)
        x = self.norm(graph.node("Add", context, queries), f"{index}.attention", layer.attention_norm)
        inner = graph.activate(self._model.act, self.product(x, f"{index}.up", layer.up))
        inner = self.product(inner, f"{index}.down", layer.down)
        return self.norm(graph.node("Add", inner, x), f"{index}.output", layer.output_norm)

    def _scores(self, q: str, k: str, buckets: str, index: int) -> str:
        """Content to content, content to position and position to content, [batch, heads, queries, keys]."""
        graph = self.graph
        scores = graph.node("MatMul", q, graph.node("Transpose", k, perm=[0, 1, 3, 2]))
        positions = self._model.positions[index]
        if positions.keys is None and positions.queries is None:
            return scores
        chosen = graph.node("Expand", buckets, graph.node("Shape", scores))
        found = scores
        if positions.keys is not None:
            toward = graph.node("MatMul", q, graph.constant(f"{index}.position_keys", positions.keys))
            found = graph.node("Add", found, graph.node("GatherElements", toward, chosen, axis=-1))
        if positions.queries is not None:
            away = graph.node("MatMul", k, graph.constant(f"{index}.position_queries", positions.queries))
            away = graph.node("GatherElements", away, graph.node("Transpose", chosen, perm=[0, 1, 3, 2]), axis=-1)
            found = graph.node("Add", found, graph.node("Transpose", away, perm=[0, 1, 3, 2]))
        return found

    def _heads(self, x: str) -> str:
        shape = self.graph.constant("apart", np.array([0, 0, self._model.heads, -1], np.int64))
        return self.graph.node("Transpose", self.graph.node("Reshape", x, shape), perm=[0, 2, 1, 3])

    def _convolve(self, embedded: str, x: str, convolution: Convolution) -> str:
        graph = self.graph
        width = convolution.weight.shape[2]
        y = graph.node(
            "Conv",
            graph.node("Transpose", embedded, perm=[0, 2, 1]),
            graph.constant("convolution.weight", convolution.weight),
            graph.constant("convolution.bias", convolution.bias),
            group=convolution.groups,
            kernel_shape=[width],
            pads=[(width - 1) // 2] * 2,
        )
        y = graph.activate(convolution.act, graph.node("Transpose", y, perm=[0, 2, 1]))
        return self.norm(graph.node("Add", x, y), "convolution", convolution.norm)


def _buckets(config: Mapping[str, Any], longest: int) -> tuple[int, NDArray[np.int64]]:
    """Half the height of the tables of distances, and each distance's row from 1 - longest to longest - 1."""
    furthest = config.get("max_relative_positions", -1)
    furthest = longest if furthest < 1 else furthest
    size = config.get("position_buckets", -1)
    span = size if size > 0 else furthest
    distance = np.arange(1 - longest, longest)
    place = distance.astype(np.float32)
    if size > 0:
        near = size // 2
        # In float32, as the checkpoint's own code has it: what it rounds up to must be the same.
        away = np.where(np.abs(distance) < near, near - 1, np.abs(distance)).astype(np.float32)
        reach = np.log(np.float32((furthest - 1) / near))
        far = np.ceil(np.log(away / np.float32(near)) / reach * np.float32(near - 1)) + near
        place = np.where(away <= near, distance, far * np.sign(distance))
    return span, np.clip(place.astype(np.int64) + span, 0, 2 * span - 1)


def _distances(weights: Weights, config: Mapping[str, Any], span: int) -> Floats:
    """The embedding of each distance, float32 [2 * span, hidden]."""
    table = weights.array("deberta.encoder.rel_embeddings.weight")[: 2 * span]
    if "layer_norm" not in config.get("norm_rel_ebd", "none").lower():
        return table
    norm = weights.norm("deberta.encoder.LayerNorm")
    spread = np.sqrt(table.var(axis=1, keepdims=True) + np.float32(config["layer_norm_eps"]))
    return np.asarray((table - table.mean(axis=1, keepdims=True)) / spread * norm.scale + norm.bias, np.float32)


def _positions(
    weights: Weights, config: Mapping[str, Any], name: str, layer: Layer, table: Floats, scale: np.float32
) -> Positions:
    kinds = config.get("pos_att_type") or ()
    own = not config.get("share_att_key", False)
    attention = f"{name}.attention.self"

    def projected(dense: Dense) -> Floats:
        made = table @ dense.weight + dense.bias
        return np.ascontiguousarray(made.reshape(len(table), config["num_attention_heads"], -1).transpose(1, 2, 0))

    keys = queries = None
    if "c2p" in kinds:
        keys = projected(weights.dense(f"{attention}.pos_key_proj") if own else layer.key)
    if "p2c" in kinds:
        queries = projected(weights.dense(f"{attention}.pos_query_proj") if own else layer.query) * scale
    return Positions(keys, queries)


def _scaled(layer: Layer, scale: np.float32) -> Layer:
    query = Dense(layer.query.weight * scale, layer.query.bias * scale)
    return Layer(**{**vars(layer), "query": query})


def _beside(first: Dense, second: Dense) -> Dense:
    weight = np.concatenate([first.weight, second.weight], axis=1)
    return Dense(weight, np.concatenate([first.bias, second.bias]))


def _offsets(weights: Weights, state: State, longest: int) -> Floats | None:
    """What is added to every word: positions float32 [max_tokens, width] or the one token type [1, width], or both."""
    names = [f"deberta.embeddings.{kind}_embeddings.weight" for kind in ("position", "token_type")]
    rows = (longest, 1)
    found = [weights.array(name)[:count] for name, count in zip(names, rows, strict=True) if name in state]
    return sum(found[1:], found[0]) if found else None


def _convolution(weights: Weights, config: Mapping[str, Any]) -> Convolution:
    return Convolution(
        weight=weights.array("deberta.encoder.conv.conv.weight"),
        bias=weights.array("deberta.encoder.conv.conv.bias"),
        groups=config.get("conv_groups", 1),
        act=activation(config.get("conv_act", "tanh")),
        norm=weights.norm("deberta.encoder.conv.LayerNorm"),
    )
