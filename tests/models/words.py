"""A few words, and what can be learned of them."""

from pathlib import Path
from typing import Any

from models.data import Example

NEGATIVE, NEUTRAL, POSITIVE = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)
SUBJECTS = ["film", "book", "song", "talk", "meal", "trip"]
OPINIONS = {
    "awful": NEGATIVE,
    "boring": NEGATIVE,
    "long": NEUTRAL,
    "new": NEUTRAL,
    "good": POSITIVE,
    "lovely": POSITIVE,
}
EXAMPLES = [Example(f"the {s} is {o}", target) for s in SUBJECTS for o, target in OPINIONS.items()]
TEXTS = [example.text for example in EXAMPLES]
LEARNED: dict[str, Any] = {"epochs": 2, "batch": 6, "rate": 1e-2, "dropout": 0.0, "max_tokens": 16}
"""A recipe that the tiny encoder learns something by."""


def write_encoder(folder: Path, layers: int = 2, hidden: int = 32, seed: int = 0) -> None:
    """Write a random encoder of the words of the texts, without a head."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizer

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = [*special, *OPINIONS, *SUBJECTS, "the", "is", "and", "@", "user", "http", ".", "it"]
    (folder / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        initializer_range=0.1,
    )
    BertModel(config).save_pretrained(folder)
