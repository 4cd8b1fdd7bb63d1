"""The tokenizer of a model to import: the one that its own library makes of its files, in the form that is served."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from models.source import RefusedError, Source

FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "*.model")
"""What a tokenizer is made from; without any, the library makes up one that knows no words."""

UNSTATED = 1_000_000
"""A longest text beyond this means that none was stated."""


def write(source: Source, path: Path, texts: Sequence[str]) -> int | None:
    """Write `tokenizer.json`; returns the longest text that the tokenizer states, in tokens. Raises RefusedError.

    On the texts, it must give the ids that the library gives and that a tokenizer.json beside the model gives.
    """
    if not any(any(source.folder.glob(pattern)) for pattern in FILES):
        raise RefusedError(
            f"{source.folder} has no tokenizer ({', '.join(FILES)}): save it beside the model with "
            "tokenizer.save_pretrained"
        )
    try:
        theirs = AutoTokenizer.from_pretrained(source.folder, trust_remote_code=False, local_files_only=True)
    except Exception as error:
        raise RefusedError(
            f"{source.folder} has no tokenizer that can be loaded ({_first_line(error)}): "
            "save it beside the model with tokenizer.save_pretrained"
        ) from error
    if not isinstance(theirs, PreTrainedTokenizerFast):
        raise RefusedError(
            f"{type(theirs).__name__} has no fast form, tokenizer.json: load it with its Fast class and save it again"
        )
    rust = tokenizers.Tokenizer.from_str(theirs.backend_tokenizer.to_str())
    rust.no_padding()
    rust.no_truncation()
    _check_ids(source, rust, theirs)
    _check_beside(source.folder / "tokenizer.json", rust, texts)
    rust.save(str(path), pretty=False)
    longest = theirs.model_max_length
    return int(longest) if longest < UNSTATED else None


def _check_ids(source: Source, rust: tokenizers.Tokenizer, theirs: PreTrainedTokenizerFast) -> None:
    highest = max(rust.get_vocab(with_added_tokens=True).values(), default=-1)
    if highest >= source.vocabulary:
        raise RefusedError(
            f"the tokenizer has ids up to {highest} and the model's table {source.vocabulary} words: it is another "
            "model's; save the one it was trained with (or call resize_token_embeddings before you fine-tune)"
        )
    known = source.config.get("pad_token_id")
    if known is not None and theirs.pad_token_id is not None and theirs.pad_token_id != known:
        raise RefusedError(
            f"the tokenizer pads with id {theirs.pad_token_id} and config.json says {known}: it is another model's; "
            "save the one it was trained with"
        )
    frame = rust.encode("").ids
    if len(frame) != 2:
        raise RefusedError(
            f"the tokenizer frames a text by {len(frame)} tokens, not by one at each end as [CLS] and [SEP]: "
            "save it with the post-processor of its family"
        )


def _check_beside(path: Path, rust: tokenizers.Tokenizer, texts: Sequence[str]) -> None:
    if not path.exists():
        return
    beside = tokenizers.Tokenizer.from_file(str(path))
    beside.no_padding()
    beside.no_truncation()
    for text in texts:
        if beside.encode(text).ids != rust.encode(text).ids:
            raise RefusedError(
                f"tokenizer.json and what transformers makes of tokenizer_config.json read {text[:40]!r} differently: "
                f"remove the one that is wrong from {json.dumps(str(path.parent))}"
            )


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:160]}"
