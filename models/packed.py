"""The classify graph for several texts in one run: their tokens one behind the other, without padding.

Sequence packing (Krell et al. 2021, "Efficient Sequence Packing without Cross-contamination") as it serves inference:
each weight is read once for all the texts, and the products have rows enough to keep the kernels busy. Rows of one text
meet those of another in no sum: attention is computed text by text, and so are the head's products, whose kernels go by
the number of rows. Where the other products add integers, over scales that were fixed in advance, a text's answer is
to the last bit the one that it has alone. Scales found at run time are a whole run's, and would break that.
"""

from __future__ import annotations

import numpy as np
import onnx

from models.checkpoint import Bert
from models.graph import Product, Writer

TEXTS = 4
"""Texts in a run. Twice as many gained little more, and would keep the first waiting for longer."""


def packed_graph(bert: Bert, product: Product, *, half_words: bool = False) -> onnx.ModelProto:
    """`logits` [TEXTS, labels] and `cls` [TEXTS, hidden] as `classify_graph` has them, of `input_ids` [1, tokens], each
    token's place in its own text, `position_ids` [tokens], and the texts' `lengths` [TEXTS], each 1 at least.

    Raises ValueError for an encoder in which the distance of two tokens counts.
    """
    if bert.distances is not None:
        raise ValueError("the distances of tokens are those of one text")
    writer = _PackedWriter(bert, product, half_words)
    x = writer.embeddings()
    for index, layer in enumerate(bert.layers[:-1]):
        x = writer.layer(x, f"{index}", layer)
    writer.cls_layer(x, f"{len(bert.layers) - 1}.cls", bert.layers[-1])
    writer.head()
    inputs = {"input_ids": (1, "tokens"), "position_ids": ("tokens",), "lengths": (TEXTS,)}
    return writer.graph.model({"logits": len(bert.labels), "cls": bert.hidden_size}, inputs)


class _PackedWriter(Writer):
    """Hidden states are float32 [1, tokens, hidden], where texts meet."""

    def positions(self, table: str) -> str:
        return self.graph.node("Gather", table, "position_ids")

    def attention(self, q: str, k: str, v: str, *more: str) -> str:
        texts = zip(*(self._texts(each) for each in (q, k, v)), strict=True)
        attend = super().attention
        return self.graph.node("Concat", *(attend(*text, *more) for text in texts), axis=1)

    def first_rows(self, x: str, output: str | None = None) -> str:
        graph = self.graph
        zero = graph.constant("axis_0", np.array([0], np.int64))
        starts = graph.node("CumSum", "lengths", graph.constant("number_0", np.array(0, np.int64)), exclusive=1)
        return graph.node("Squeeze", graph.node("Gather", x, starts, axis=1), zero, output=output)

    def cls_attention(self, x: str, query: str) -> str:
        texts = zip(self._texts(x), self._rows(query), strict=True)
        attend = super().cls_attention
        return self.graph.node("Concat", *(attend(*text) for text in texts), axis=0)

    def head(self) -> str:
        return self.graph.node("Concat", *map(self.logits, self._rows("cls")), axis=0, output="logits")

    def _texts(self, x: str) -> list[str]:
        """Rows [1, tokens, ...] of all texts as those of each."""
        return self.graph.nodes_of("Split", x, "lengths", outputs=TEXTS, axis=1)

    def _rows(self, x: str) -> list[str]:
        """What there is one of for each text [TEXTS, ...], one by one [1, ...]."""
        return self.graph.nodes_of("Split", x, outputs=TEXTS, axis=0, num_outputs=TEXTS)
