"""A Hugging Face encoder with a classification head on [CLS] in PyTorch, as it is trained and as it teaches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from models.data import LABELS
from service.cleaning import STEPS, clean

TOKENS_AT_ONCE = 8192


class Outputs(NamedTuple):
    """Logits [batch, 3], the masked mean of the last hidden states and the last hidden state of [CLS], both [batch,
    hidden]; all float32."""

    logits: Tensor
    mean: Tensor
    cls: Tensor


class Reading(NamedTuple):
    """Logits float32 [batch, 3], the hidden states [batch, tokens, hidden] of the embeddings and of each layer, and
    which tokens are no padding, bool [batch, tokens]."""

    logits: Tensor
    hidden: tuple[Tensor, ...]
    mask: Tensor

    def outputs(self) -> Outputs:
        """What of it is kept of many texts."""
        mask = self.mask.unsqueeze(-1).float()
        last = self.hidden[-1].float()
        return Outputs(self.logits, (last * mask).sum(1) / mask.sum(1), last[:, 0])


class Finetuned:
    """A model in training with its tokenizer, on the CPU."""

    def __init__(self, start: str, dropout: float) -> None:
        names = dict(enumerate(LABELS))
        self.tokenizer = AutoTokenizer.from_pretrained(start)
        self.model: Any = AutoModelForSequenceClassification.from_pretrained(
            start,
            num_labels=len(LABELS),
            id2label=names,
            label2id={name: index for index, name in names.items()},
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=dropout,
            # For short texts plain products are much sooner done than PyTorch's fused attention, going back above all.
            attn_implementation="eager",
        )

    def encode(self, texts: Sequence[str], max_tokens: int) -> list[list[int]]:
        """Token ids of each text after the clean-up of serving, cut to `max_tokens`."""
        return token_ids(self.tokenizer, texts, max_tokens)

    def read(self, ids: Sequence[Sequence[int]]) -> Reading:
        """A batch of texts, all that the model makes of it."""
        padded = self.tokenizer.pad({"input_ids": [list(one) for one in ids]}, return_tensors="pt")
        with torch.autocast("cpu", torch.bfloat16, enabled=has_bf16()):
            output = self.model(
                input_ids=padded["input_ids"], attention_mask=padded["attention_mask"], output_hidden_states=True
            )
        return Reading(output.logits.float(), output.hidden_states, padded["attention_mask"].bool())

    @torch.inference_mode()
    def predict(self, texts: Sequence[str], max_tokens: int = 512) -> Outputs:
        """What the model says of texts, in their order, without dropout."""
        self.model.eval()
        ids = self.encode(texts, max_tokens)
        order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
        hidden = self.model.config.hidden_size
        found = Outputs(*(torch.empty(len(ids), size) for size in (len(LABELS), hidden, hidden)))
        for chunk in _chunks(order, [len(one) for one in ids]):
            for whole, part in zip(found, self.read([ids[i] for i in chunk]).outputs(), strict=True):
                whole[chunk] = part
        return found


def token_ids(tokenizer: Any, texts: Sequence[str], max_tokens: int) -> list[list[int]]:
    """Token ids of each text after the clean-up of serving, [CLS] and [SEP] included, cut to `max_tokens`."""
    cleaned = [clean(text, tuple(STEPS)).text for text in texts]
    return list(tokenizer(cleaned, truncation=True, max_length=max_tokens)["input_ids"])


def has_bf16() -> bool:
    """Whether this CPU multiplies bfloat16 in hardware; elsewhere autocast would only be slower."""
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def _chunks(order: Sequence[int], lengths: Sequence[int]) -> Iterator[list[int]]:
    """Indices in order of length, in chunks of at most `TOKENS_AT_ONCE` tokens with their padding."""
    chunk: list[int] = []
    for index in order:
        if chunk and (len(chunk) + 1) * lengths[index] > TOKENS_AT_ONCE:
            yield chunk
            chunk = []
        chunk.append(index)
    if chunk:
        yield chunk
