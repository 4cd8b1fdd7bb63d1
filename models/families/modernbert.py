"""ModernBERT: rotary positions, local attention in most layers, gated feed-forward blocks (Warner et al. 2024)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import onnx

from models.checkpoint import Activation, Dense, Floats, Norm, Weights, label_names
from models.families.encoder import State, Writer, activation
from models.graph import MICROSOFT, Product


@dataclass(frozen=True)
class Layer:
    """One layer's weights. The first has no norm before its attention; a local one sees no further than the window."""

    attention_norm: Norm | None
    qkv: Dense
    attention: Dense
    feed_norm: Norm
    up: Dense
    down: Dense
    local: bool


@dataclass(frozen=True)
class ModernBert:
    """A ModernBERT encoder with its head, which reads the first token or the mean. `window` are tokens to each side;
    `bases` are those of the rotation's wave lengths, global and local."""

    labels: tuple[str, ...]
    max_tokens: int
    words: Floats
    embedding_norm: Norm
    layers: tuple[Layer, ...]
    final_norm: Norm
    pooling: Literal["cls", "mean"]
    dense: Dense
    pooled: Activation
    pooled_norm: Norm
    classifier: Dense
    heads: int
    window: int
    bases: tuple[float, float]
    act: Activation
    epsilon: float

    @classmethod
    def read(cls, state: State, config: Mapping[str, Any]) -> ModernBert:
        """Take the weights. Raises ValueError for what the graphs lack."""
        weights = Weights(state)
        rotation = config["rope_parameters"]
        kinds = {rotation[kind]["rope_type"] for kind in ("full_attention", "sliding_attention")}
        if kinds != {"default"}:
            raise ValueError(f"config.json has rope_type {', '.join(sorted(kinds))}; only 'default' can be exported")
        return cls(
            labels=label_names(config),
            max_tokens=int(config["max_position_embeddings"]),
            words=weights.array("model.embeddings.tok_embeddings.weight"),
            embedding_norm=weights.norm("model.embeddings.norm"),
            layers=tuple(
                _layer(weights, f"model.layers.{index}", index, kind)
                for index, kind in enumerate(config["layer_types"])
            ),
            final_norm=weights.norm("model.final_norm"),
            pooling=config["classifier_pooling"],
            dense=weights.dense("head.dense"),
            pooled=activation(config["classifier_activation"]),
            pooled_norm=weights.norm("head.norm"),
            classifier=weights.dense("classifier"),
            heads=int(config["num_attention_heads"]),
            window=int(config["local_attention"]) // 2,
            bases=(rotation["full_attention"]["rope_theta"], rotation["sliding_attention"]["rope_theta"]),
            act=activation(config["hidden_activation"]),
            epsilon=config["norm_eps"],
        )

    @property
    def outputs(self) -> int:
        """How many logits there are."""
        return len(self.classifier.bias)

    @property
    def hidden_size(self) -> int:
        """Width of the hidden states."""
        return int(self.words.shape[1])

    @property
    def last_layer(self) -> Literal["cls_only", "full"]:
        """A head that reads the mean reads every token."""
        return "cls_only" if self.pooling == "cls" else "full"

    def classify(self, product: Product, *, half_words: bool = False, full: bool = False) -> onnx.ModelProto:
        """The graph of `logits` and `cls`."""
        writer = _Writer(self, product, half_words=half_words)
        x = writer.encode(cls_only=self.last_layer == "cls_only" and not full)
        cls = writer.cls(x)
        read = cls if self.pooling == "cls" else writer.mean(x)
        pooled = writer.graph.activate(self.pooled, writer.product(read, "pooler", self.dense))
        pooled = writer.norm(pooled, "pooler", self.pooled_norm)
        writer.product(pooled, "classifier", self.classifier, "logits")
        return writer.graph.model({"logits": self.outputs, "cls": self.hidden_size})

    def embed(self, product: Product, *, half_words: bool = False) -> onnx.ModelProto:
        """The graph of pooled vectors."""
        writer = _Writer(self, product, half_words=half_words)
        return writer.pool(writer.encode(cls_only=False), self.hidden_size)


class _Writer(Writer):
    def __init__(self, model: ModernBert, product: Product, *, half_words: bool) -> None:
        super().__init__(product, model.words, model.epsilon, half_words=half_words)
        self._model = model

    def encode(self, *, cls_only: bool) -> str:
        """The last hidden states; with `cls_only` that of the first token alone."""
        graph, model = self.graph, self._model
        x = self.norm(self.words(), "embeddings", model.embedding_norm)
        away = graph.node("Abs", self.differences(self.length()))
        near = graph.node("LessOrEqual", away, self.number(model.window))
        for index, layer in enumerate(model.layers):
            last = cls_only and index == len(model.layers) - 1
            seen = self.first(near, 0) if last else near
            x = self._layer(x, index, layer, seen, last=last)
        return self.norm(x, "final", model.final_norm)

    def _layer(self, x: str, index: int, layer: Layer, near: str, *, last: bool) -> str:
        graph, model = self.graph, self._model
        normed = self.norm(x, f"{index}.before", layer.attention_norm) if layer.attention_norm else x
        packed = self.product(normed, f"{index}.qkv", layer.qkv)
        q, k, v = graph.nodes_of("Split", packed, outputs=3, axis=-1, num_outputs=3)
        if last:
            q, x = self.first(q, 1), self.first(x, 1)
        heads: dict[str, Any] = {"q_num_heads": model.heads, "kv_num_heads": model.heads}
        rotated = (self._rotated(one, local=layer.local) for one in (q, k))
        context = graph.node("Attention", *rotated, v, *([near] if layer.local else []), **heads)
        x = graph.node("Add", x, self.product(context, f"{index}.attention", layer.attention))
        inner = self.product(self.norm(x, f"{index}.feed", layer.feed_norm), f"{index}.up", layer.up)
        inner, gate = graph.nodes_of("Split", inner, outputs=2, axis=-1, num_outputs=2)
        inner = graph.node("Mul", graph.activate(model.act, inner), gate)
        return graph.node("Add", x, self.product(inner, f"{index}.down", layer.down))

    def _rotated(self, x: str, *, local: bool) -> str:
        model = self._model
        half = model.hidden_size // model.heads // 2
        # In float32, as the checkpoint's own code has it.
        waves = 1 / np.float32(model.bases[local]) ** (np.arange(0, 2 * half, 2, dtype=np.float32) / (2 * half))
        angles = np.arange(model.max_tokens, dtype=np.float32)[:, None] * waves.astype(np.float32)
        kind = "local" if local else "global"
        tables = (self.graph.constant(f"{kind}.{f.__name__}", f(angles)) for f in (np.cos, np.sin))
        return self.graph.node("RotaryEmbedding", x, self.axis(0), *tables, domain=MICROSOFT)


def _layer(weights: Weights, name: str, index: int, kind: str) -> Layer:
    return Layer(
        attention_norm=weights.norm(f"{name}.attn_norm") if index else None,
        qkv=weights.dense(f"{name}.attn.Wqkv"),
        attention=weights.dense(f"{name}.attn.Wo"),
        feed_norm=weights.norm(f"{name}.mlp_norm"),
        up=weights.dense(f"{name}.mlp.Wi"),
        down=weights.dense(f"{name}.mlp.Wo"),
        local=kind == "sliding_attention",
    )
