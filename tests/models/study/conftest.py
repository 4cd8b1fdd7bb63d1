"""A random encoder of four layers that knows the words of the made-up data."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Hugging Face folder of an encoder, 32 wide."""
    torch = pytest.importorskip("torch", reason="PyTorch belongs to the training set: make test-models")
    from transformers import BertConfig, BertModel, BertTokenizer

    from tests.tiny import corpus

    folder = tmp_path_factory.mktemp("package") / "start"
    folder.mkdir()
    seen = dict.fromkeys(word for _, text in corpus(500, 0) for word in text.lower().split())
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", ",", "!", *seen]
    (folder / "vocab.txt").write_text("\n".join(dict.fromkeys(words)), encoding="utf-8")
    BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(dict.fromkeys(words)),
        hidden_size=32,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=64,
        initializer_range=0.1,
    )
    BertModel(config).save_pretrained(folder)
    return folder
