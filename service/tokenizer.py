"""Text to token ids: clean-up, the Rust tokenizer, and what is done with a text longer than the model reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tokenizers
from numpy.typing import NDArray

from service.cleaning import clean
from service.errors import ArtifactError, InputError


@dataclass(frozen=True, slots=True)
class Tokenized:
    """A text as the encoder reads it: ids int64 [n], special tokens included, and how many tokens were left out."""

    ids: NDArray[np.int64]
    left_out: int


class Tokenizer:
    """A model's tokenizer with the clean-up the model was trained with. Safe to call from several threads."""

    def __init__(self, path: Path, max_tokens: int, cleanup: Sequence[str]) -> None:
        """Raises ArtifactError if the file is no tokenizer or frames a text by anything but one token at each end."""
        try:
            self._rust = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:
            raise ArtifactError(f"{path.name} is not a tokenizer: {error}") from error
        self._rust.no_padding()
        self._rust.no_truncation()
        self._cleanup = tuple(cleanup)
        self.max_tokens = max_tokens
        if len(self._rust.encode("").ids) != 2:
            raise ArtifactError(f"{path.name} does not frame a text by one token at each end, as [CLS] and [SEP]")

    @property
    def vocabulary_size(self) -> int:
        """How many ids there are."""
        return self._rust.get_vocab_size()

    def encode(self, text: str) -> Tokenized:
        """The first `max_tokens` tokens of a text. Raises InputError for a text there is nothing to read in."""
        cleaned = clean(_checked(text), self._cleanup).text
        ids = self._rust.encode(cleaned).ids
        if len(ids) <= 2:
            raise InputError("the text is empty", code="empty_text")
        left_out = max(0, len(ids) - self.max_tokens)
        if left_out:
            ids[self.max_tokens - 1 :] = ids[-1:]
        return Tokenized(np.array(ids, np.int64), left_out)


def _checked(text: str) -> str:
    if "\0" in text:
        raise InputError("the text contains a NUL character (U+0000)", code="nul_character")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"the text contains a lone surrogate at character {error.start}: it is not valid Unicode",
            code="lone_surrogate",
        ) from None
    return text
