"""How many operations a text takes on the encoder's weight matrices: a multiplication and an addition count two."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shape:
    """An encoder's sizes."""

    layers: int
    hidden: int
    heads: int
    inner: int

    def classify(self, tokens: float) -> float:
        """Operations of the graph that computes the last layer for [CLS] alone.

        A full layer multiplies each token's row by query, key, value and output [hidden, hidden] and by the two
        matrices of the feed-forward block [hidden, inner]. In the last layer one row is multiplied by query, output and
        the block, and one row a head by key and by value (models/graph.py has the derivation). Attention's products of
        activations with each other are not counted, nor is the head.
        """
        square, block = self.hidden**2, 2 * self.hidden * self.inner
        full = tokens * (4 * square + block)
        last = 2 * square + block + 2 * self.heads * square
        return 2 * ((self.layers - 1) * full + last)
