"""BERT written node by node as ONNX graphs for ONNX Runtime's CPU kernels, rather than exported and then repaired."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from models.checkpoint import Activation, Bert, Floats, Layer, Norm

MICROSOFT = "com.microsoft"
OPSETS = {"": 23, MICROSOFT: 1}
Shape = tuple[str | int, ...]
ONE_LENGTH: dict[str, Shape] = {"input_ids": ("batch", "length")}
ACTIVATIONS: dict[Activation, tuple[str, dict[str, Any]]] = {
    "gelu": ("Gelu", {}),
    "gelu_tanh": ("Gelu", {"approximate": "tanh"}),
    "relu": ("Relu", {}),
    "tanh": ("Tanh", {}),
}


class Graph:
    """An ONNX graph being written: every method adds nodes and returns the name of the value they compute."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, NDArray[Any]] = {}
        self._count = 0

    def constant(self, name: str, array: NDArray[Any]) -> str:
        """A named initializer. One name stands for one array."""
        self.constants.setdefault(name, np.asarray(array, order="C"))
        return name

    def nodes_of(
        self, op: str, *inputs: str, outputs: Sequence[str] | int = 1, domain: str = "", **attributes: Any
    ) -> list[str]:
        """Add a node with several outputs, named if names are given."""
        self._count += 1
        name = f"{op}_{self._count}"
        named = list(outputs) if not isinstance(outputs, int) else [f"{name}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), named, name=name, domain=domain, **attributes))
        return named

    def node(self, op: str, *inputs: str, domain: str = "", output: str | None = None, **attributes: Any) -> str:
        """Add a node with one output."""
        return self.nodes_of(op, *inputs, outputs=[output] if output else 1, domain=domain, **attributes)[0]

    def activate(self, activation: Activation, x: str) -> str:
        """A value through an activation function."""
        op, attributes = ACTIVATIONS[activation]
        return self.node(op, x, **attributes)

    def model(self, outputs: Mapping[str, int], inputs: Mapping[str, Shape] = ONE_LENGTH) -> onnx.ModelProto:
        """The finished model, its constants inside, with inputs int64 by name and outputs float32 [batch, size]."""
        given = [helper.make_tensor_value_info(name, TensorProto.INT64, shape) for name, shape in inputs.items()]
        results = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", size]) for n, size in outputs.items()]
        constants = [numpy_helper.from_array(array, name) for name, array in self.constants.items()]
        graph = helper.make_graph(self.nodes, "bert", given, results, constants)
        opsets = [helper.make_opsetid(domain, version) for domain, version in OPSETS.items()]
        return helper.make_model(graph, opset_imports=opsets, ir_version=11, producer_name="sentiment-service")


class Product(Protocol):
    """A way to multiply x float32 [..., in] by weight float32 [in, out] and add bias float32 [out] if there is one."""

    def __call__(self, graph: Graph, x: str, name: str, weight: Floats, bias: Floats | None) -> str:
        """Add the nodes. `name` is the matrix's own, the same in every graph that has it."""


def classify_graph(
    bert: Bert,
    product: Product,
    *,
    half_words: bool = False,
    full: bool = False,
    write_by: Callable[[Bert, Product, bool], Writer] | None = None,
) -> onnx.ModelProto:
    """`logits` [batch, labels] and `cls` [batch, hidden]; the last layer is computed for the [CLS] row alone.

    `half_words` stores the word table in float16. To compare with, `full` computes the last layer for every row, and
    `write_by` is a writer that does some part otherwise.
    """
    writer = (write_by or Writer)(bert, product, half_words)
    x = writer.embeddings()
    for index, layer in enumerate(bert.layers[:-1]):
        x = writer.layer(x, f"{index}", layer)
    last = len(bert.layers) - 1
    if full:
        writer.first(writer.layer(x, f"{last}", bert.layers[-1]))
    else:
        writer.cls_layer(x, f"{last}.cls", bert.layers[-1])
    writer.head()
    return writer.graph.model({"logits": len(bert.labels), "cls": bert.hidden_size})


def embed_graph(bert: Bert, product: Product, *, half_words: bool = False) -> onnx.ModelProto:
    """`mean`, `max` and `cls` [batch, hidden]: pooled from the last hidden states of all tokens, and that of [CLS]."""
    writer = Writer(bert, product, half_words)
    x = writer.embeddings()
    for index, layer in enumerate(bert.layers):
        x = writer.layer(x, f"{index}", layer)
    writer.pool(x)
    return writer.graph.model(dict.fromkeys(("mean", "max", "cls"), bert.hidden_size))


class Writer:
    """Writes the parts of one graph, for texts of one length: there is no padding, and no mask to keep it out.

    Hidden states are float32 [batch, length, hidden] unless said otherwise.
    """

    def __init__(self, bert: Bert, product: Product, half_words: bool) -> None:
        self.bert = bert
        self._word_type = np.float16 if half_words else np.float32
        self.graph = Graph()
        self._multiply = product
        self._bias: str | None = None

    def embeddings(self) -> str:
        """Words, positions and the one token type, summed and normalized, and widened where they are narrower."""
        graph, bert = self.graph, self.bert
        words = graph.node("Gather", graph.constant("words", bert.words.astype(self._word_type)), "input_ids")
        if self._word_type == np.float16:
            words = graph.node("Cast", words, to=TensorProto.FLOAT)
        positions = self.positions(graph.constant("positions", bert.positions))
        x = self._norm(graph.node("Add", words, positions), "embeddings", bert.embedding_norm)
        if bert.distances is not None:
            self._bias = self._distances(bert.distances, self._length())
        return x if bert.projection is None else self.product(x, "projection", *bert.projection)

    def positions(self, table: str) -> str:
        """The rows of the tokens' places, of a table [max_tokens, width]."""
        start = self.graph.constant("start", np.array([0], np.int64))
        return self.graph.node("Slice", table, start, self._length(), start)

    def _length(self) -> str:
        return self.graph.node("Shape", "input_ids", start=1, end=2)

    def _distances(self, table: Floats, length: str) -> str:
        """What each distance adds to attention scores, [1, heads, length, length], from a table [heads, distances]."""
        graph = self.graph
        zero, one = (graph.constant(f"number_{i}", np.array(i, np.int64)) for i in (0, 1))
        places = graph.node("Range", zero, graph.node("Squeeze", length), one)
        rows = graph.node("Unsqueeze", places, graph.constant("axis_1", np.array([1], np.int64)))
        middle = graph.constant("middle", np.array(table.shape[1] // 2, np.int64))
        index = graph.node("Add", graph.node("Sub", places, rows), middle)
        found = graph.node("Gather", graph.constant("distances", table), index, axis=1)
        return graph.node("Unsqueeze", found, graph.constant("start", np.array([0], np.int64)))

    def layer(self, x: str, name: str, layer: Layer) -> str:
        """One encoder layer for every token."""
        graph = self.graph
        packed = self.product(x, f"{name}.qkv", *self.bert.qkv(layer))
        q, k, v = graph.nodes_of("Split", packed, outputs=3, axis=-1, num_outputs=3)
        context = self.attention(q, k, v, *filter(None, [self._bias]))
        context = self.product(context, f"{name}.attention", *layer.attention)
        x = self.add_norm(context, x, f"{name}.attention", layer.attention_norm)
        return self._feed_forward(x, name, layer)

    def attention(self, q: str, k: str, v: str, *more: str) -> str:
        """Softmax of what is added (`more`) and q k^T, times v, head by head; the query is scaled already."""
        heads: dict[str, Any] = {"q_num_heads": self.bert.heads, "kv_num_heads": self.bert.heads, "scale": 1.0}
        return self.graph.node("Attention", q, k, v, *more, **heads)

    def add_norm(self, x: str, y: str, name: str, norm: Norm, output: str | None = None) -> str:
        """The layer normalization of a sum."""
        return self._norm(self.graph.node("Add", x, y), name, norm, output)

    def cls_layer(self, x: str, name: str, layer: Layer) -> str:
        """The last layer for [CLS] alone, equal to its row of the full layer; `cls` [batch, hidden].

        With one query, q K^T = (q Wk^T) x^T and p V = (p x) Wv, so that neither keys nor values are computed for the
        other tokens. The key's bias shifts all scores alike and drops out of the softmax; the value's bias, weighted
        by probabilities that sum to one, moves into the next product's.
        """
        graph, bert = self.graph, self.bert
        cls = self.first_rows(x)
        own = graph.constant("own_head", np.repeat(np.eye(bert.heads, dtype=np.float32), bert.head_size, axis=1))
        one = graph.constant("axis_1", np.array([1], np.int64))

        query = self.product(cls, f"{name}.query", *bert.scaled(layer.query))
        query = graph.node("Mul", graph.node("Unsqueeze", query, one), own)
        query = self.product(query, f"{name}.key", layer.key.weight.T)
        context = self.product(self.cls_attention(x, query), f"{name}.value", layer.value.weight)
        context = graph.node("ReduceSum", graph.node("Mul", context, own), one, keepdims=0)
        weight, bias = layer.attention
        context = self.product(context, f"{name}.attention", weight, bias + layer.value.bias @ weight)
        cls = self.add_norm(context, cls, f"{name}.attention", layer.attention_norm)
        return self._feed_forward(cls, name, layer, output="cls")

    def cls_attention(self, x: str, query: str) -> str:
        """Each head's mean of all hidden states [batch, heads, hidden], weighted by the softmax of their products with
        its query, of [batch, heads, hidden]."""
        graph = self.graph
        # Not q x^T: how far ONNX Runtime sums before it rounds depends on the columns of a thread, here the heads, and
        # texts have rows. So a run on two threads gives what a run on one does.
        scores = graph.node("FusedMatMul", x, query, domain=MICROSOFT, transB=1)
        scores = graph.node("Transpose", scores, perm=[0, 2, 1])
        if self._bias:
            first = graph.constant("first", np.array(0, np.int64))
            scores = graph.node("Add", scores, graph.node("Gather", self._bias, first, axis=2))
        return graph.node("MatMul", graph.node("Softmax", scores, axis=-1), x)

    def first_rows(self, x: str, output: str | None = None) -> str:
        """The hidden state of [CLS] [batch, hidden]."""
        first = self.graph.constant("first", np.array(0, np.int64))
        return self.graph.node("Gather", x, first, axis=1, output=output)

    def first(self, x: str) -> str:
        """`cls` [batch, hidden], of hidden states computed for every token."""
        return self.first_rows(x, output="cls")

    def head(self) -> str:
        """Pooler, its activation and classifier on `cls`; `logits` [batch, labels]."""
        return self.logits("cls", output="logits")

    def logits(self, cls: str, output: str | None = None) -> str:
        """Pooler, its activation and classifier on rows [rows, hidden]; [rows, labels]."""
        pooled = self.graph.activate(self.bert.pooled, self.product(cls, "pooler", *self.bert.pooler))
        return self.product(pooled, "classifier", *self.bert.classifier, output=output)

    def pool(self, x: str) -> None:
        """`mean`, `max` and `cls` [batch, hidden] of hidden states computed for every token."""
        one = self.graph.constant("axis_1", np.array([1], np.int64))
        self.graph.node("ReduceMean", x, one, keepdims=0, output="mean")
        self.graph.node("ReduceMax", x, one, keepdims=0, output="max")
        self.first(x)

    def product(self, x: str, name: str, weight: Floats, bias: Floats | None = None, output: str | None = None) -> str:
        """Multiply in the way this graph was asked for."""
        y = self._multiply(self.graph, x, name, weight, bias)
        if output:
            self.graph.nodes[-1].output[0] = output
        return output or y

    def _feed_forward(self, x: str, name: str, layer: Layer, output: str | None = None) -> str:
        inner = self.graph.activate(self.bert.activation, self.product(x, f"{name}.up", *layer.up))
        inner = self.product(inner, f"{name}.down", *layer.down)
        return self.add_norm(inner, x, f"{name}.output", layer.output_norm, output)

    def _norm(self, x: str, name: str, norm: Norm, output: str | None = None) -> str:
        scale = self.graph.constant(f"{name}.norm.scale", norm.scale)
        bias = self.graph.constant(f"{name}.norm.bias", norm.bias)
        return self.graph.node("LayerNormalization", x, scale, bias, axis=-1, epsilon=self.bert.epsilon, output=output)
