"""What the documents show is what the model that ships answers.

`python -m tests.test_shown` writes its answers anew under the request of README.md and the examples of docs/clients.md.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest
import structlog
from huggingface_hub import close_session

from service.settings import DEFAULT_MODEL
from tests.service.serving import serving

ROOT = Path(__file__).parents[1]
README, CLIENTS = ROOT / "README.md", ROOT / "docs" / "clients.md"
HERE = "http://127.0.0.1:8000"

REQUEST = re.compile(rf"(```\ncurl {HERE}(/\S+) .*?-d '(.*?)'\n```\n)\n```json\n(.*?)```\n", re.DOTALL)
EXAMPLE = re.compile(r"(```python\n(.*?)```\n)\n```text\n(.*?)```\n", re.DOTALL)
NUMBER = re.compile(r"-?\d+\.\d+")
REQUESTS = REQUEST.findall(README.read_text("utf-8"))
EXAMPLES = EXAMPLE.findall(CLIENTS.read_text("utf-8"))


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The address of a service of the model that ships, which logs nothing between the lines that examples print."""
    with structlog.testing.capture_logs(), serving(model=DEFAULT_MODEL) as (address, _):
        yield address


def answered(path: str, body: str, url: str) -> str:
    """What the service at `url` answers to a body."""
    answer = httpx2.post(url + path, content=body, headers={"content-type": "application/json"})
    return json.dumps(answer.json(), indent=1) + "\n"


def printed(code: str, url: str) -> str:
    """What an example prints when it asks the service at `url`."""
    there = code.replace(HERE, url).replace(HERE.removeprefix("http://"), url.removeprefix("http://"))
    with contextlib.redirect_stdout(io.StringIO()) as output:
        exec(compile(there, "<docs/clients.md>", "exec"), {"__name__": "example"})
    close_session()
    return output.getvalue()


def assert_same(shown: str, given: str, within: float) -> None:
    """The same words, and the same numbers but for what CPUs round otherwise."""
    words, numbers = zip(
        *((NUMBER.sub("#", text).split(), NUMBER.findall(text)) for text in (shown, given)), strict=True
    )
    assert words[0] == words[1]
    assert [float(one) for one in numbers[0]] == pytest.approx([float(one) for one in numbers[1]], abs=within)


def test_something_is_shown() -> None:
    assert len(REQUESTS) == 1
    assert len(EXAMPLES) == CLIENTS.read_text("utf-8").count("```python") > 5


@pytest.mark.parametrize(("path", "body", "shown"), [found[1:] for found in REQUESTS])
def test_the_request_of_the_readme_has_its_answer(path: str, body: str, shown: str, url: str) -> None:
    assert_same(shown, answered(path, body, url), within=0.002)


@pytest.mark.parametrize(("code", "shown"), [found[1:] for found in EXAMPLES], ids=range(len(EXAMPLES)))
def test_an_example_prints_what_stands_under_it(code: str, shown: str, url: str) -> None:
    # Of vectors that are cut to three values and then made as long as one, a rounding is seen much enlarged.
    assert_same(shown, printed(code, url), within=0.02)


def rewrite(path: Path, pattern: re.Pattern[str], kind: str, answer: Callable[[re.Match[str]], str]) -> None:
    """Put under each request or example of a document what comes of it."""
    text = path.read_text("utf-8")
    path.write_text(pattern.sub(lambda found: f"{found[1]}\n```{kind}\n{answer(found)}```\n", text), "utf-8")


def main() -> None:
    """Ask, and write."""
    with structlog.testing.capture_logs(), serving(model=DEFAULT_MODEL) as (url, _):
        rewrite(README, REQUEST, "json", lambda found: answered(found[2], found[3], url))
        rewrite(CLIENTS, EXAMPLE, "text", lambda found: printed(found[2], url))


if __name__ == "__main__":
    main()
