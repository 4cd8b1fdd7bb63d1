"""Text to tokens: what is refused, the clean-up, and the Rust tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import tokenizers

from service.cleaning import clean
from service.errors import ArtifactError, InputError
from service.reading import Reading


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
        self._rust.encode_special_tokens = True  # [SEP] in a text is what somebody wrote, not the end of it
        self._cleanup = tuple(cleanup)
        self.max_tokens = max_tokens
        unknown = getattr(self._rust.model, "unk_token", None)
        self._unknown = self._rust.token_to_id(unknown) if unknown else None
        if len(self._rust.encode("").ids) != 2:
            raise ArtifactError(f"{path.name} does not frame a text by one token at each end, as [CLS] and [SEP]")

    @property
    def vocabulary_size(self) -> int:
        """How many ids there are."""
        return self._rust.get_vocab_size()

    @property
    def mask(self) -> int | None:
        """The id of the mask token of masked language modelling, if the vocabulary has one."""
        ids = (self._rust.token_to_id(token) for token in ("[MASK]", "<mask>"))
        return next((id_ for id_ in ids if id_ is not None), None)

    def unknown(self, reading: Reading) -> int:
        """How many of a text's tokens stand for what the vocabulary has no word for."""
        return reading.count(self._unknown) if self._unknown is not None else 0

    def read(self, text: str) -> Reading:
        """Tokenize a text. Raises InputError for one there is nothing to read in."""
        cleaned = clean(_checked(text), self._cleanup)
        encoding = self._rust.encode(cleaned.text)
        if len(encoding.ids) <= 2 or cleaned.text.isspace():  # some vocabularies have tokens for spaces
            raise InputError("the text is empty", code="empty_text")
        return Reading(text, cleaned, encoding, self.max_tokens)


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
