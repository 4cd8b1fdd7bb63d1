"""A tiny checkpoint and its data, made once for the tests of how a model is made."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.models.words import EXAMPLES, LEARNED, write_encoder

NEEDS_TORCH = "PyTorch belongs to the training set: make test-models"


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a Hugging Face checkpoint of the tests' tiny BERT."""
    pytest.importorskip("safetensors", reason="safetensors belongs to the training set: make test-models")
    from tests.tiny import write_checkpoint

    folder = tmp_path_factory.mktemp("checkpoint")
    write_checkpoint(folder)
    return folder


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the data files that the steps read."""
    pytest.importorskip("safetensors", reason="safetensors belongs to the training set: make test-models")
    from tests.tiny import write_data

    folder = tmp_path_factory.mktemp("data")
    write_data(folder)
    return folder


@pytest.fixture(scope="module")
def exact() -> Iterator[None]:
    """The same arithmetic on every CPU, on as many threads as so small a model can use."""
    torch = pytest.importorskip("torch", reason=NEEDS_TORCH)
    from models import finetuned

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finetuned, "has_bf16", lambda: False)
        yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A random encoder, without a head: 2 layers, 32 wide, and the words of the texts."""
    pytest.importorskip("torch", reason=NEEDS_TORCH)
    folder = tmp_path_factory.mktemp("start")
    write_encoder(folder)
    return str(folder)


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of what training is measured on."""
    folder = tmp_path_factory.mktemp("dev")
    (folder / "sst2_dev.tsv").write_text("sentence\tlabel\nthe film is lovely\t1\nthe meal is awful\t0\n")
    tweets = "text\tlabel\n@jack the song is good\tpositive\nthe trip is long\tneutral\nthe talk is boring\tnegative\n"
    (folder / "tweets_dev.tsv").write_text(tweets)
    (folder / "sst_trees_dev.txt").write_text("(4 (2 the) (3 good))\n(0 (2 the) (1 awful))\n(2 (2 the) (2 new))\n")
    pairs = [
        "5\tthe film is good\tthe film is good",
        "2\tthe film is good\tthe book is good",
        "0\tgood film\tit is awful",
    ]
    (folder / "stsb_dev.tsv").write_text("\n".join(["score\tsentence1\tsentence2", *pairs]))
    return folder


@pytest.fixture(scope="module")
def trained(exact: None, start: str, dev: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[float]]:
    """The checkpoint of a run of 8 epochs, and the loss of each of its steps."""
    from models import finetune

    out = tmp_path_factory.mktemp("trained")
    losses: list[float] = []
    step = finetune.Run.step

    def spy(run: finetune.Run, batch: list[int], rate: float) -> float:
        losses.append(step(run, batch, rate))
        return losses[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finetune.Run, "step", spy)
        finetune.finetune(start, EXAMPLES, dev, out, finetune.Recipe(**LEARNED | {"epochs": 8}), teacher=None)
    return out, losses
