"""BERT and those of its relatives that compute as it does: where each keeps its weights, and what little differs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import onnx

from models.checkpoint import Bert, Floats, Layout
from models.families.encoder import Encoder, State
from models.graph import Product, classify_graph, embed_graph

BERT = Layout()


def _behind_padding(config: Mapping[str, Any]) -> int:
    """RoBERTa counts positions from the one behind the padding's: a table of 514 holds 512."""
    return int(config["pad_token_id"]) + 1


ROBERTA = replace(
    BERT,
    prefix="roberta",
    pooler="classifier.dense",
    classifier="classifier.out_proj",
    first_position=_behind_padding,
)

LAYOUTS: Mapping[str, Layout] = {
    "bert": BERT,
    "roberta": ROBERTA,
    "xlm-roberta": ROBERTA,
    "camembert": ROBERTA,
    "electra": replace(
        BERT,
        prefix="electra",
        projection="electra.embeddings_project",
        pooler="classifier.dense",
        pooled="gelu",
        classifier="classifier.out_proj",
    ),
    "distilbert": replace(
        BERT,
        prefix="distilbert",
        layers="transformer.layer.{index}",
        layer={
            "query": "attention.q_lin",
            "key": "attention.k_lin",
            "value": "attention.v_lin",
            "attention": "attention.out_lin",
            "attention_norm": "sa_layer_norm",
            "up": "ffn.lin1",
            "down": "ffn.lin2",
            "output_norm": "output_layer_norm",
        },
        pooler="pre_classifier",
        pooled="relu",
        keys={"num_hidden_layers": "n_layers", "num_attention_heads": "n_heads", "hidden_act": "activation"},
    ),
    "mpnet": replace(
        BERT,
        prefix="mpnet",
        layer={
            **BERT.layer,
            "query": "attention.attn.q",
            "key": "attention.attn.k",
            "value": "attention.attn.v",
            "attention": "attention.attn.o",
            "attention_norm": "attention.LayerNorm",
        },
        distances="mpnet.encoder.relative_attention_bias.weight",
        pooler="classifier.dense",
        classifier="classifier.out_proj",
        first_position=lambda _: 2,
    ),
    "albert": replace(
        BERT,
        prefix="albert",
        # inner_group_num layers make a group, and one group's weights serve several layers in turn
        layers="encoder.albert_layer_groups.{index}.albert_layers.0",
        layer={
            "query": "attention.query",
            "key": "attention.key",
            "value": "attention.value",
            "attention": "attention.dense",
            "attention_norm": "attention.LayerNorm",
            "up": "ffn",
            "down": "ffn_output",
            "output_norm": "full_layer_layer_norm",
        },
        projection="albert.encoder.embedding_hidden_mapping_in",
        pooler="albert.pooler",
        group=lambda config, index: index * config["num_hidden_groups"] // config["num_hidden_layers"],
    ),
}


@dataclass(frozen=True)
class BertLike:
    """A model of one of these families."""

    bert: Bert
    last_layer: Literal["cls_only", "full"] = "cls_only"

    @property
    def labels(self) -> tuple[str, ...]:
        """What the logits stand for."""
        return self.bert.labels

    @property
    def outputs(self) -> int:
        """How many logits there are."""
        return len(self.bert.classifier.bias)

    @property
    def words(self) -> Floats:
        """The word table."""
        return self.bert.words

    @property
    def hidden_size(self) -> int:
        """Width of the hidden states."""
        return self.bert.hidden_size

    @property
    def max_tokens(self) -> int:
        """How many positions there are."""
        return len(self.bert.positions)

    def classify(self, product: Product, *, half_words: bool = False, full: bool = False) -> onnx.ModelProto:
        """The graph of `logits` and `cls`."""
        return classify_graph(self.bert, product, half_words=half_words, full=full)

    def embed(self, product: Product, *, half_words: bool = False) -> onnx.ModelProto:
        """The graph of pooled vectors."""
        return embed_graph(self.bert, product, half_words=half_words)


def reader(layout: Layout) -> Callable[[State, Mapping[str, Any]], Encoder]:
    """How a family of this layout is read."""

    def read(state: State, config: Mapping[str, Any]) -> Encoder:
        if config.get("inner_group_num", 1) != 1:
            raise ValueError(f"config.json has inner_group_num {config['inner_group_num']}; only 1 can be exported")
        return BertLike(Bert.from_state(state, config, layout))

    return read
