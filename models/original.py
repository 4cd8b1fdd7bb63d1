"""A checkpoint as its authors run it, in PyTorch: what every graph made of it is compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModelForSequenceClassification, PreTrainedModel

from models.checkpoint import Floats

Ids = NDArray[np.int64]


class Answer(NamedTuple):
    """Logits float32 [labels], and the last hidden states' first row and mean, float32 [hidden] each."""

    logits: Floats
    cls: Floats
    mean: Floats


@dataclass(frozen=True)
class Original:
    """A sequence classifier in evaluation mode, float32, and the names of the weights that its files lacked."""

    model: PreTrainedModel
    missing: frozenset[str]

    @classmethod
    def load(cls, folder: Path) -> Original:
        """Load from safetensors alone, running no code but the library's. Raises what transformers raises."""
        model, found = AutoModelForSequenceClassification.from_pretrained(
            folder,
            dtype=torch.float32,
            attn_implementation="eager",
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
            output_loading_info=True,
        )
        return cls(model.eval(), frozenset(found["missing_keys"]))

    @property
    def state(self) -> Mapping[str, NDArray[Any]]:
        """The weights by name."""
        return {name: weight.numpy() for name, weight in self.model.state_dict().items()}

    @property
    def config(self) -> Mapping[str, Any]:
        """The configuration with its defaults."""
        return self.model.config.to_dict()

    def answer(self, ids: Ids) -> Answer:
        """What the checkpoint makes of token ids int64 [n]."""
        batch = torch.from_numpy(ids[None])
        mask = torch.ones_like(batch)
        with torch.inference_mode():
            logits = self.model(input_ids=batch, attention_mask=mask).logits[0]
            hidden = self.model.base_model(input_ids=batch, attention_mask=mask).last_hidden_state[0]
        return Answer(logits.numpy(), hidden[0].numpy(), hidden.mean(dim=0).numpy())
