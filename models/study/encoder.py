"""A BERT encoder in PyTorch as the study looks at it: every layer's states, one thread, the clean-up of serving."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import AutoModel, AutoTokenizer

from models.finetuned import has_bf16, token_ids

States = tuple[Tensor, ...]


class Encoder:
    """An encoder with its tokenizer. States are float32 [batch, tokens, hidden], the embeddings' and each layer's."""

    def __init__(self, folder: Path, *, attentions: bool = False, half: bool = False) -> None:
        """Read a Hugging Face folder. `half` computes in bfloat16 where the processor does, as training does."""
        torch.set_num_threads(1)
        self._half = half and has_bf16()
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model: Any = AutoModel.from_pretrained(
            folder, attn_implementation="eager" if attentions else "sdpa", add_pooling_layer=True
        )

    @property
    def hidden_size(self) -> int:
        """Width of the states."""
        return int(self.model.config.hidden_size)

    def encode(self, texts: Sequence[str], max_tokens: int = 512) -> list[list[int]]:
        """Token ids of each text, [CLS] and [SEP] included, cut to `max_tokens`."""
        return token_ids(self.tokenizer, texts, max_tokens)

    def states(self, ids: Sequence[Sequence[int]]) -> tuple[States, Tensor]:
        """The states of a batch and its mask float32 [batch, tokens]."""
        padded = self.tokenizer.pad({"input_ids": [list(one) for one in ids]}, return_tensors="pt")
        with torch.autocast("cpu", torch.bfloat16, enabled=self._half):
            output = self.model(
                input_ids=padded["input_ids"], attention_mask=padded["attention_mask"], output_hidden_states=True
            )
        return tuple(state.float() for state in output.hidden_states), padded["attention_mask"].float()

    @torch.inference_mode()
    def each(
        self, ids: Sequence[Sequence[int]], take: Callable[[States, Tensor], Tensor], batch: int = 32
    ) -> NDArray[np.float32]:
        """What `take` makes of the states of each text [n, ...], in their order, without dropout."""
        self.model.eval()
        order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
        found: list[Any] = [None] * len(ids)
        for start in range(0, len(order), batch):
            rows = order[start : start + batch]
            for row, value in zip(rows, take(*self.states([ids[i] for i in rows])).numpy(), strict=True):
                found[row] = value
        return np.stack(found)


def first(state: Tensor) -> Tensor:
    """The state of [CLS], [batch, hidden]."""
    return state[:, 0]


def mean(state: Tensor, mask: Tensor) -> Tensor:
    """The mean of the states of a text's tokens, [batch, hidden]; [CLS] and [SEP] are among them, as in serving."""
    return (state * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True)
