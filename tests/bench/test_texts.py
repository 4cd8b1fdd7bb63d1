from pathlib import Path

from bench import texts


def test_the_committed_texts_are_what_the_generator_writes(tmp_path: Path) -> None:
    texts.write(tmp_path)
    for name in ("short", "mixed"):
        assert (tmp_path / f"{name}.txt").read_text("utf-8").splitlines() == texts.read(name)


def test_texts_have_the_lengths_that_they_are_said_to_have() -> None:
    short, mixed = (texts.tokens(texts.read(name)) for name in ("short", "mixed"))
    assert len(short) == 872
    assert 25 < sum(short) / len(short) < 25.5
    assert sorted(short) == sorted(texts.short_lengths())
    assert len(mixed) == 500
    assert sum(100 <= count <= 300 for count in mixed) == 50
    assert sum(count == 512 for count in mixed) == 10
