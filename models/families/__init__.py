"""The families of encoders that can be imported, by the model type of their configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from models.families import bert, deberta, modernbert
from models.families.encoder import Encoder, State

Read = Callable[[State, Mapping[str, Any]], Encoder]

FAMILIES: Mapping[str, Read] = {
    **{name: bert.reader(layout) for name, layout in bert.LAYOUTS.items()},
    "deberta-v2": deberta.Deberta.read,
    "modernbert": modernbert.ModernBert.read,
}
"""Each reads a state dict and a configuration with its defaults, and raises ValueError for what its graphs lack."""
