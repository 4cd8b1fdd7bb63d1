"""What is built and installed: the wheel carries the model and works elsewhere, the locks fit pyproject.toml."""

import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder holding what a wheel built from this checkout unpacks to."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_the_wheel_holds_code_and_model_and_nothing_else(installed: Path) -> None:
    metadata = f"sentiment_service-{PROJECT['version']}.dist-info"
    assert {path.name for path in installed.iterdir()} == {"models", "service", metadata}
    shipped = ROOT / "models" / "sentiment-en"
    assert {p.name for p in (installed / "models" / "sentiment-en").iterdir()} == {p.name for p in shipped.iterdir()}


def test_the_wheel_answers_from_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SENTIMENT_")}
    command = [sys.executable, "-c", "from service.cli import main; main()", "classify", "I love it"]
    run = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment | {"PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "positive" in run.stdout


def test_serving_loads_nothing_of_training() -> None:
    """A module that is loaded costs memory and start-up time, and a missing one must not be needed."""
    heavy = {"models", "onnx", "scipy", "torch", "transformers"}
    code = f"import sys, service.cli, service.api.app; print(sorted({heavy!r} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def pinned(lock: str) -> dict[str, set[str]]:
    """The versions that a lock pins, by name."""
    pins: dict[str, set[str]] = {}
    for name, version in re.findall(r"^([A-Za-z0-9._-]+)==([^\s;]+)", (ROOT / lock).read_text("utf-8"), re.MULTILINE):
        pins.setdefault(canonicalize_name(name), set()).add(version)
    return pins


@pytest.mark.parametrize(
    ("lock", "extra"),
    [("requirements.lock", "files"), ("requirements-dev.lock", "dev"), ("constraints-train.txt", "train")],
)
def test_the_locks_fit_the_project(lock: str, extra: str | None) -> None:
    pins = pinned(lock)
    wanted = PROJECT["dependencies"] + (PROJECT["optional-dependencies"][extra] if extra else [])
    for requirement in map(Requirement, wanted):
        if requirement.name == PROJECT["name"]:
            continue  # with extras, which the lock resolves
        versions = pins.get(canonicalize_name(requirement.name), set())
        assert versions, f"{requirement.name} is not in {lock}: run make lock"
        assert all(version in requirement.specifier for version in versions), f"{lock} is out of date: run make lock"


def test_every_pin_of_an_installed_lock_has_its_hashes() -> None:
    for lock in ("requirements.lock", "requirements-dev.lock", "requirements-image.lock"):
        pins = re.split(r"^(?=[a-z0-9])", (ROOT / lock).read_text("utf-8"), flags=re.MULTILINE)[1:]
        assert pins
        assert not [pin for pin in pins if "--hash=sha256:" not in pin]


def test_the_image_has_what_was_tested_less_what_serving_never_loads() -> None:
    """The lock of the image pins what the others do, and the service answers without what it leaves out."""
    image, tested = pinned("requirements-image.lock"), pinned("requirements-dev.lock")
    assert not {name for name, versions in image.items() if tested.get(name) != versions}
    left_out = pinned("requirements.lock").keys() - image.keys()
    assert {"transformers", "huggingface-hub", "pyarrow"} <= left_out
    modules = sorted(
        module
        for module, names in packages_distributions().items()
        if {canonicalize_name(name) for name in names} <= left_out
    )
    assert {"transformers", "pyarrow"} <= set(modules)
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({modules!r}))\n"
        "from fastapi.testclient import TestClient\n"
        "from service.api.app import create_app\n"
        "from service.settings import Settings\n"
        f"with TestClient(create_app(Settings(model={str(ROOT / 'tests' / 'tiny')!r}))) as client:\n"
        "    client.post('/explain', json={'inputs': 'good'}).raise_for_status()"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_files_need_an_extra_which_is_named_where_it_is_missing(tmp_path: Path) -> None:
    (tmp_path / "some.csv").write_text("text\ngood\n", "utf-8")
    code = "import sys; sys.modules['pyarrow'] = None; from service.cli import main; main()"
    command = [sys.executable, "-c", code, "classify", str(tmp_path / "some.csv")]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (2, "")
    assert "pip install 'sentiment-service[files]'" in run.stderr


def test_the_bill_of_materials_holds_every_pin_with_its_hashes(tmp_path: Path) -> None:
    """By the command of `make sbom`, which gets its tool from where pip gets packages: skipped where there is none."""
    (command,) = re.findall(
        r"^\t\$\(BIN\)/uv (tool run .*cyclonedx-py .*)$", (ROOT / "Makefile").read_text(), re.MULTILINE
    )
    out = tmp_path / "sbom.json"
    arguments = [str(out) if word == "dist/sbom.json" else word for word in command.split()]
    run = subprocess.run([sys.executable, "-m", "uv", *arguments], cwd=ROOT, capture_output=True, text=True)
    if run.returncode and "failed to fetch" in run.stderr.lower():
        pytest.skip("the tool cannot be fetched here")
    assert run.returncode == 0, run.stderr
    listed = json.loads(out.read_text())
    assert listed["bomFormat"] == "CycloneDX"
    assert listed["metadata"]["component"]["name"] == PROJECT["name"]
    hashed = {
        (one["name"], one["version"])
        for one in listed["components"]
        if any(hash_["alg"] == "SHA-256" for reference in one["externalReferences"] for hash_ in reference["hashes"])
    }
    pins = re.findall(
        r"^([A-Za-z0-9._-]+)==([^\s;]+)", (ROOT / "requirements-image.lock").read_text("utf-8"), re.MULTILINE
    )
    assert hashed == set(pins)
