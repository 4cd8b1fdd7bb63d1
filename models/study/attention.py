"""Where the attention of [CLS] goes, layer by layer, for a few sentences whose opinion words are marked.

How much attention a token gets is not how much it matters (Jain and Wallace 2019, "Attention is not Explanation"); for
that the service has /explain. Clark et al. 2019, "What Does BERT Look At?", found much of BERT's attention on [SEP].
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from models.study.encoder import Encoder
from models.study.record import Record, Row

SENTENCES = (
    "The film is *wonderful* .",
    "I *hated* every minute of it .",
    "The staff were *friendly* , but the room was *dirty* and *cold* .",
    "It is *not* *bad* at all , considering the price we paid for it .",
    "We took the train to the coast , and the view from the window was *breathtaking* .",
    "After two weeks of use the battery is *dead* and nobody answers my calls .",
)
TARGETS = ("cls", "sep", "opinion", "other")


def run(encoders: Mapping[str, Path], out: Path) -> None:
    """Record each layer's shares, averaged over its heads, of every sentence for every encoder."""
    record = Record(out, {"sentences": list(SENTENCES)})
    for name, folder in encoders.items():
        encoder = Encoder(folder, attentions=True)
        for number, sentence in enumerate(SENTENCES):
            for layer, row in enumerate(shares(encoder, sentence), start=1):
                record.add(encoder=name, sentence=number, layer=layer, **row)


@torch.inference_mode()
def shares(encoder: Encoder, sentence: str) -> list[Row]:
    """By layer, the shares of the attention of [CLS] that go to itself, to [SEP], to the words between asterisks and to
    the others; they sum to 1. `tokens` and `opinion_tokens` say how many there are to share among."""
    encoder.model.eval()
    words = sentence.split()
    marked = {number for number, word in enumerate(words) if re.fullmatch(r"\*.+\*", word)}
    read = encoder.tokenizer([word.strip("*") for word in words], is_split_into_words=True, return_tensors="pt")
    kinds = np.array([_kind(word, position, marked) for position, word in enumerate(read.word_ids())])
    attentions = encoder.model(**read, output_attentions=True).attentions
    return [
        {target: round(float(layer[0, :, 0].mean(0).numpy()[kinds == target].sum()), 4) for target in TARGETS}
        | {"tokens": len(kinds), "opinion_tokens": int((kinds == "opinion").sum())}
        for layer in attentions
    ]


def _kind(word: int | None, position: int, marked: set[int]) -> str:
    if word is None:
        return "sep" if position else "cls"
    return "opinion" if word in marked else "other"
