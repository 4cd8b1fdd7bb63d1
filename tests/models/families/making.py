"""Small checkpoints of every family as Hugging Face saves them, with random weights and tokenizers trained on the spot.

Special tokens keep the ids that the family's own vocabularies give them where its code counts on them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers
from tokenizers import decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from tests.tiny import corpus

torch.set_num_threads(1)  # models this small are slower on more

LONGEST = 48
SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "max_position_embeddings": LONGEST,
}
SPREAD = 0.3
"""Of the weights: small enough to keep activations in range, large enough that every token tells in the logits."""


@cache
def texts() -> list[str]:
    """What tokenizers are trained on: sentences with capital letters, so that case shows."""
    return [text[:1].upper() + text[1:] for _, text in corpus(300, 0)]


def _trained(name: str, **options: Any) -> PreTrainedTokenizerBase:
    base = getattr(transformers, name)(**options)
    made: PreTrainedTokenizerBase = base.train_new_from_iterator(texts(), 400, show_progress=False)
    return made


def _mpnet() -> PreTrainedTokenizerBase:
    """MPNet's code takes 1 for the padding's id whatever the vocabulary says."""
    words = [token for token in _trained("BertTokenizer").get_vocab() if not token.startswith("[")]
    vocabulary = ["<s>", "<pad>", "</s>", "<unk>", *sorted(words), "[UNK]", "<mask>"]
    return transformers.MPNetTokenizer(vocab={token: index for index, token in enumerate(vocabulary)})


def _modernbert() -> PreTrainedTokenizerBase:
    """Byte-level BPE between [CLS] and [SEP], which no tokenizer class of its own stands for."""
    rust = tokenizers.Tokenizer(models.BPE())
    rust.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    rust.decoder = decoders.ByteLevel()
    special = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    rust.train_from_iterator(texts(), trainer)
    ends = [(token, rust.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    rust.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    names = dict(
        zip(("unk_token", "cls_token", "sep_token", "pad_token", "mask_token"), special, strict=True),
        model_max_length=LONGEST,
    )
    return transformers.PreTrainedTokenizerFast(tokenizer_object=rust, **names)


TOKENIZERS: dict[str, Callable[[], PreTrainedTokenizerBase]] = {
    "bert": lambda: _trained("BertTokenizer", do_lower_case=False),
    "distilbert": lambda: _trained("DistilBertTokenizer"),
    "electra": lambda: _trained("ElectraTokenizer"),
    "mpnet": _mpnet,
    "roberta": lambda: _trained("RobertaTokenizer"),
    "xlm-roberta": lambda: _trained("XLMRobertaTokenizer"),
    "camembert": lambda: _trained("CamembertTokenizer"),
    "albert": lambda: _trained("AlbertTokenizer"),
    "deberta-v2": lambda: _trained("DebertaV2Tokenizer"),
    "modernbert": _modernbert,
}

CONFIGS: dict[str, dict[str, Any]] = {
    "bert": {},
    "distilbert": {"dim": 32, "hidden_dim": 64, "n_heads": 4, "n_layers": 2},
    "electra": {"embedding_size": 16},
    "mpnet": {"max_position_embeddings": LONGEST + 2},
    "roberta": {"type_vocab_size": 1},
    "xlm-roberta": {"type_vocab_size": 1},
    "camembert": {"type_vocab_size": 1},
    "albert": {"embedding_size": 16, "num_hidden_layers": 4, "num_hidden_groups": 2},
    "deberta-v2": {
        "relative_attention": True,
        "position_buckets": 12,
        "pos_att_type": ["p2c", "c2p"],
        "share_att_key": True,
        "norm_rel_ebd": "layer_norm",
        "position_biased_input": False,
    },
    "modernbert": {"num_hidden_layers": 4, "local_attention": 8},
}
BEHIND_PADDING = {"roberta", "xlm-roberta", "camembert"}


def config(family: str, tokenizer: PreTrainedTokenizerBase | None = None, **changes: Any) -> PretrainedConfig:
    """A small configuration, for a tokenizer or for ids up to 100."""
    names = ("pad", "cls", "sep")
    ids = dict(zip(names, (1, 0, 2), strict=True))
    if tokenizer:
        ids = {name: getattr(tokenizer, f"{name}_token_id") for name in names}
    values = SIZES | CONFIGS[family] | {"id2label": {0: "negative", 1: "neutral", 2: "positive"}}
    values |= {"vocab_size": len(tokenizer) if tokenizer else 100}
    values |= {"pad_token_id": ids["pad"], "bos_token_id": ids["cls"], "eos_token_id": ids["sep"]}
    if family in BEHIND_PADDING:
        values["max_position_embeddings"] = LONGEST + ids["pad"] + 1
    if family == "modernbert":
        values |= {"cls_token_id": ids["cls"], "sep_token_id": ids["sep"]}
    return AutoConfig.for_model(family, **values | changes)


def classifier(settings: PretrainedConfig, seed: int = 0) -> PreTrainedModel:
    """A classifier with random weights that make a difference."""
    model: PreTrainedModel = AutoModelForSequenceClassification.from_config(settings, attn_implementation="eager")
    spread(model, seed)
    return model.eval()


def write(family: str, folder: Path, **changes: Any) -> Path:
    """Save a classifier of a family with its tokenizer; `changes` are those of its configuration."""
    tokenizer = TOKENIZERS[family]()
    classifier(config(family, tokenizer, **changes)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def spread(model: torch.nn.Module, seed: int) -> None:
    """Random weights that make a difference, biases and norms too."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            drawn = torch.randn(weight.shape, generator=generator)
            centre = 1.0 if weight.ndim == 1 and "norm" in name.lower() and name.endswith("weight") else 0.0
            weight.copy_(centre + (0.1 if weight.ndim == 1 else SPREAD) * drawn)
