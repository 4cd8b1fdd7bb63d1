"""Text to token ids: the frame, the length, the clean-up, and what is refused."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import tokenizers
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import models, normalizers, pre_tokenizers, processors

from service.cleaning import STEPS
from service.errors import ArtifactError, InputError
from service.tokenizer import Tokenizer

WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "i",
    "love",
    "it",
    "##s",
    "@",
    "user",
    "[",
    "]",
    "sep",
    "grinning",
    "face",
]
IDS = {word: number for number, word in enumerate(WORDS)}


def wordpiece(*special: str) -> tokenizers.Tokenizer:
    """BERT's way of tokenizing, with a vocabulary small enough to know every id by name."""
    rust = tokenizers.Tokenizer(models.WordPiece(IDS, unk_token="[UNK]"))
    rust.normalizer = normalizers.BertNormalizer()
    rust.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    rust.add_special_tokens(list(special))
    return rust


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rust = wordpiece("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    rust.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", None, [("[CLS]", 2), ("[SEP]", 3)])
    rust.enable_padding(length=12)  # as many published tokenizers have them: neither is ours
    rust.enable_truncation(4)
    file = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    rust.save(str(file))
    return file


@pytest.fixture(scope="module")
def tokenizer(path: Path) -> Tokenizer:
    return Tokenizer(path, 8, tuple(STEPS))


def words(tokenizer: Tokenizer, text: str) -> list[str]:
    """What the encoder is given of a text, as far as it reads."""
    return [WORDS[number] for number in tokenizer.read(text).first().ids]


def test_a_text_is_framed_and_neither_padded_nor_cut(tokenizer: Tokenizer) -> None:
    reading = tokenizer.read("I love its")
    assert words(tokenizer, "I love its") == ["[CLS]", "i", "love", "it", "##s", "[SEP]"]
    assert reading.first().ids.dtype == "int64"
    assert reading.tokens == 6
    assert reading.fits


@pytest.mark.parametrize(("count", "read", "left_out"), [(1, 3, 0), (5, 7, 0), (6, 8, 0), (7, 8, 1), (1000, 8, 994)])
def test_a_text_is_read_up_to_the_length_of_the_model(
    tokenizer: Tokenizer, count: int, read: int, left_out: int
) -> None:
    reading = tokenizer.read("love " * count)
    ids = reading.first().ids
    assert len(ids) == read
    assert (ids[0], ids[-1]) == (IDS["[CLS]"], IDS["[SEP]"])
    assert set(ids[1:-1]) == {IDS["love"]}
    assert reading.tokens - len(ids) == left_out
    assert reading.fits is (left_out == 0)


def test_a_text_is_cleaned_as_the_model_was_trained(path: Path) -> None:
    text = "@somebody \U0001f600\U0001f600"
    assert words(Tokenizer(path, 8, ("handles", "emoji")), text) == ["[CLS]", "@", "user", "grinning", "face", "[SEP]"]
    assert words(Tokenizer(path, 8, ()), text) == ["[CLS]", "@", "[UNK]", "[UNK]", "[SEP]"]


def test_a_special_token_in_a_text_is_a_word_like_any_other(tokenizer: Tokenizer) -> None:
    """Nobody ends a text, or masks a word of it, by writing so."""
    assert words(tokenizer, "it [SEP] it") == ["[CLS]", "it", "[", "sep", "]", "it", "[SEP]"]


@pytest.mark.parametrize(
    "text", ["", " ", "\t\r\n", "\u00a0\u2003\u3000", "\u200b\u200d\ufeff", "\u00ad", "\u2028", "\x07\x1b", "\ufffd"]
)
@pytest.mark.parametrize("cleanup", [(), tuple(STEPS)])
def test_a_text_with_nothing_to_read_is_empty(path: Path, text: str, cleanup: Sequence[str]) -> None:
    with pytest.raises(InputError) as refusal:
        Tokenizer(path, 8, cleanup).read(text)
    assert refusal.value.code == "empty_text"


@pytest.mark.parametrize("text", ["\0", "love\0", "\0\ud800"])
def test_a_nul_is_refused(tokenizer: Tokenizer, text: str) -> None:
    with pytest.raises(InputError, match="NUL") as refusal:
        tokenizer.read(text)
    assert refusal.value.code == "nul_character"


@pytest.mark.parametrize(("text", "place"), [("\ud83d", 0), ("love \ude00 it", 5), ("\U0001f600\ud83d", 1)])
def test_a_lone_surrogate_is_refused_and_found(tokenizer: Tokenizer, text: str, place: int) -> None:
    with pytest.raises(InputError, match=rf"surrogate at character {place}: ") as refusal:
        tokenizer.read(text)
    assert refusal.value.code == "lone_surrogate"
    assert refusal.value.__cause__ is None


def test_an_escaped_nul_or_surrogate_is_only_text(tokenizer: Tokenizer) -> None:
    assert words(tokenizer, r"love \u0000 it") == ["[CLS]", "love", "it", "[SEP]"]
    assert tokenizer.read(r"\ud83d").tokens > 2


def test_a_refusal_does_not_quote_the_text(tokenizer: Tokenizer) -> None:
    with pytest.raises(InputError) as refusal:
        tokenizer.read("my secret \ud800")
    assert "secret" not in refusal.value.message


def test_a_word_of_a_megabyte_is_one_unknown_word(tokenizer: Tokenizer) -> None:
    assert words(tokenizer, "a" * 2**20) == ["[CLS]", "[UNK]", "[SEP]"]


@given(text=st.text())
@example(text="\ufb01 \u0130 \u1e9e a\u0301 \u5b57\u5b57 \U0001f468\u200d\U0001f469")
def test_every_text_is_read_or_refused_as_empty(tokenizer: Tokenizer, text: str) -> None:
    try:
        reading = tokenizer.read(text.replace("\0", ""))
    except InputError as refusal:
        assert refusal.code == "empty_text"  # noqa: PT017 - most texts are read
    else:
        first = reading.first()
        assert 3 <= len(first.ids) == min(8, reading.tokens)
        assert max(first.ids) < tokenizer.vocabulary_size == len(WORDS)


def test_many_threads_read_the_same(tokenizer: Tokenizer) -> None:
    texts = ["love " * (1 + i % 9) for i in range(200)]
    expected = [words(tokenizer, text) for text in texts]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda text: words(tokenizer, text), texts)) == expected


@pytest.mark.parametrize("name", ["[MASK]", "<mask>"])
def test_the_mask_is_found_by_either_of_its_names(path: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "tokenizer.json").write_text(path.read_text("utf-8").replace("[MASK]", name), "utf-8")
    assert Tokenizer(tmp_path / "tokenizer.json", 8, ()).mask == IDS["[MASK]"]


def test_a_vocabulary_may_have_no_mask(path: Path, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(path.read_text("utf-8").replace("[MASK]", "mask"), "utf-8")
    assert Tokenizer(tmp_path / "tokenizer.json", 8, ()).mask is None


@pytest.mark.parametrize("content", [None, "", "{}", "not json", '{"version": "1.0", "model": {}}'])
def test_a_file_that_is_no_tokenizer_is_refused_by_name(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(ArtifactError, match=r"^tokenizer\.json is not a tokenizer: ") as refusal:
        Tokenizer(tmp_path / "tokenizer.json", 8, ())
    assert str(tmp_path) not in refusal.value.message


@pytest.mark.parametrize("template", [None, "[CLS] $A", "[CLS] $A [SEP] [SEP]"])
def test_a_tokenizer_that_frames_a_text_otherwise_is_refused(tmp_path: Path, template: str | None) -> None:
    rust = wordpiece("[CLS]", "[SEP]")
    if template:
        rust.post_processor = processors.TemplateProcessing(template, None, [("[CLS]", 2), ("[SEP]", 3)])
    rust.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ArtifactError, match="does not frame a text by one token at each end"):
        Tokenizer(tmp_path / "tokenizer.json", 8, ())
