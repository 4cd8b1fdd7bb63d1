"""The docs keep up with the code: what exists is named in them, and what they point at exists."""

import re
import shutil
import subprocess
from pathlib import Path
from urllib.parse import unquote

import pytest
from fastapi.routing import iter_route_contexts
from typer.core import TyperGroup
from typer.main import get_command

from service.api.app import create_app
from service.cli import app as cli
from service.metrics import Metrics
from service.settings import Settings

ROOT = Path(__file__).parents[1]
TEXT = "\n".join(
    path.read_text("utf-8")
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]
)
# In two parts, so that this file does not hold what it forbids.
REGISTRY_HOSTS = [f"{name}.{domain}" for name, domain in [("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org")]]
FENCED = re.compile(r"^(`{3,}|~{3,}).*?^\1", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(<?([^)\s>]+)>?[^)]*\)|\b(?:src|href)=\"([^\"]+)\"")


def committed() -> list[Path]:
    if not shutil.which("git") or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: what is committed cannot be told")
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [ROOT / name for name in names.split("\0") if name and (ROOT / name).is_file()]


def missing(names: list[str]) -> list[str]:
    """The names that stand nowhere in the docs as whole words: /info is not named by /v2/information."""
    assert names
    return [name for name in names if not re.search(rf"(?<![\w/-]){re.escape(name)}(?![\w-])", TEXT)]


def anchors(text: str) -> set[str]:
    """The anchors of a Markdown file's headings: lower case, punctuation gone, spaces as hyphens."""
    headings = re.findall(r"^#{1,6} +(.+?) *$", FENCED.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_make_target_is_documented() -> None:
    targets = re.findall(r"^([a-z0-9-]+):.*## ", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert not missing([f"make {target}" for target in targets])


def test_every_command_is_documented() -> None:
    group = get_command(cli)
    assert isinstance(group, TyperGroup)
    assert not missing([f"sentiment {command}" for command in group.commands])


def test_every_setting_is_documented() -> None:
    prefix = Settings.model_config["env_prefix"]
    assert prefix == "SENTIMENT_"
    assert not missing([f"{prefix}{field.upper()}" for field in Settings.model_fields])


def test_every_route_is_documented() -> None:
    app = create_app(Settings(model=ROOT / "tests" / "tiny"))
    assert not missing([route.path for route in iter_route_contexts(app.routes) if route.path])


def test_every_metric_is_documented() -> None:
    families = [family for family in Metrics().registry.collect() if family.name.startswith("sentiment_")]
    assert not missing([f"{family.name}_total" if family.type == "counter" else family.name for family in families])


@pytest.mark.parametrize(
    "path", sorted(ROOT.glob("*.md")) + sorted(ROOT.glob("docs/**/*.md")), ids=lambda path: path.name
)
def test_relative_links_resolve(path: Path) -> None:
    broken = []
    for match in LINK.finditer(FENCED.sub("", path.read_text("utf-8"))):
        link = match[1] or match[2]
        if re.match(r"[a-z][a-z0-9+.-]*:", link):
            continue
        name, _, anchor = unquote(link).partition("#")
        target = path.parent / name if name else path
        if not target.exists() or (anchor and anchor not in anchors(target.read_text("utf-8"))):
            broken.append(link)
    assert not broken


def test_no_registry_is_named() -> None:
    hosts = re.compile("|".join(re.escape(host) for host in REGISTRY_HOSTS).encode())
    assert not [path.relative_to(ROOT) for path in committed() if hosts.search(path.read_bytes())]


def test_every_threat_has_a_test_that_exists() -> None:
    text = (ROOT / "docs" / "security.md").read_text("utf-8")
    rows = re.findall(r"^\|(?! threat|---)(.*)\|$", text.partition("## Threat model")[2], re.MULTILINE)
    assert len(rows) > 20
    for row in rows:
        threat, _, tests = row.split("|")
        named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", tests)
        assert named, threat
        for path, name in named:
            assert f"\ndef {name}(" in (ROOT / path).read_text("utf-8"), f"{path}::{name}"
