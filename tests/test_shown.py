"""The examples of docs/clients.md are run against a running service.

`python -m tests.service.api.compat.test_examples URL` asks the service at URL and writes its answers under them.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from pathlib import Path

import pytest
from huggingface_hub import close_session

DOCS = Path(__file__).parents[4] / "docs" / "clients.md"
EXAMPLE = re.compile(r"(```python\n(.*?)```\n)(?:\n```text\n.*?```\n)?", re.DOTALL)
EXAMPLES = [code for _, code in re.findall(EXAMPLE, DOCS.read_text("utf-8"))]


def printed(code: str, url: str) -> str:
    """What an example prints when it asks the service at `url`."""
    here = code.replace("http://127.0.0.1:8000", url).replace("127.0.0.1:8000", url.removeprefix("http://"))
    with contextlib.redirect_stdout(io.StringIO()) as output:
        exec(compile(here, "<docs/clients.md>", "exec"), {"__name__": "example"})
    close_session()
    return output.getvalue()


@pytest.mark.parametrize("code", EXAMPLES, ids=[str(number) for number in range(len(EXAMPLES))])
def test_example(code: str, url: str, model: str) -> None:
    assert printed(code.replace("sentiment-en", model), url)


def write_answers(url: str) -> None:
    """Put under each example what it prints."""
    text = DOCS.read_text("utf-8")
    DOCS.write_text(EXAMPLE.sub(lambda found: f"{found[1]}\n```text\n{printed(found[2], url)}```\n", text), "utf-8")


if __name__ == "__main__":
    write_answers(sys.argv[1])
