"""Cores counted from what the process may use, in trees of files like those of the kernel."""

import math
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.cpu import usable_cores

AFFINITY = 16

Count: TypeAlias = Callable[..., int]


@pytest.fixture
def count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Count:
    """Cores of a process with an affinity for 16, given its membership and the files under /sys/fs/cgroup."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(AFFINITY)), raising=False)

    def count(membership: str | bytes, files: Mapping[str, str | bytes]) -> int:
        return usable_cores(*tree(tmp_path, membership, files))

    return count


def tree(folder: Path, membership: str | bytes, files: Mapping[str, str | bytes]) -> tuple[Path, Path]:
    for name, content in {"self": membership, **{f"cgroup/{name}": content for name, content in files.items()}}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder / "cgroup", folder / "self"


def v1(quota: int, period: int = 100_000, folder: str = "cpu,cpuacct") -> dict[str, str]:
    return {f"{folder}/cpu.cfs_quota_us": f"{quota}\n", f"{folder}/cpu.cfs_period_us": f"{period}\n"}


@pytest.mark.parametrize(
    ("limit", "cores"),
    [
        ("max 100000", AFFINITY),
        ("200000 100000", 2),
        ("150000 100000", 2),
        ("100001 100000", 2),
        ("50000 100000", 1),
        ("1000 100000", 1),
        ("6400000 100000", AFFINITY),
        ("30000 10000", 3),
    ],
)
def test_the_quota_of_version_2_is_rounded_up(count: Count, limit: str, cores: int) -> None:
    assert count("0::/\n", {"cpu.max": f"{limit}\n"}) == cores


def test_the_tightest_quota_on_the_way_up_counts(count: Count) -> None:
    files = {
        "cpu.max": "max 100000",
        "kubepods/cpu.max": "800000 100000",
        "kubepods/pod/cpu.max": "300000 100000",
        "kubepods/pod/container/cpu.max": "400000 100000",
        "kubepods/other/cpu.max": "100000 100000",
    }
    assert count("0::/kubepods/pod/container\n", files) == 3


def test_inside_a_container_the_root_is_read_whatever_path_the_host_gave(count: Count) -> None:
    assert count("0::/system.slice/docker-0123.scope\n", {"cpu.max": "250000 100000"}) == 3


def test_a_path_that_leaves_its_namespace_is_no_error(count: Count) -> None:
    assert count("0::/../../init.scope\n", {"cpu.max": "200000 100000"}) == 2


@pytest.mark.parametrize("mount", ["cpu,cpuacct", "cpu"])
@pytest.mark.parametrize(("quota", "cores"), [(-1, AFFINITY), (150_000, 2), (400_000, 4), (1, 1)])
def test_the_quota_of_version_1_is_rounded_up(count: Count, mount: str, quota: int, cores: int) -> None:
    membership = "12:memory:/job\n4:cpu,cpuacct:/job\n1:name=systemd:/job\n"
    assert count(membership, v1(quota, folder=f"{mount}/job")) == cores


def test_a_quota_of_another_controller_is_not_read(count: Count) -> None:
    assert count("5:cpuset:/\n3:memory:/\n", v1(100_000, folder="cpuset") | v1(100_000, folder="memory")) == AFFINITY


def test_both_versions_at_once(count: Count) -> None:
    membership = "4:cpu,cpuacct:/job\n0::/job\n"
    assert count(membership, v1(700_000, folder="cpu,cpuacct/job") | {"unified/job/cpu.max": "500000 100000"}) == 5
    assert count(membership, v1(200_000, folder="cpu,cpuacct/job")) == 2


@pytest.mark.parametrize(
    "limit",
    ["", "max", "150000", "1 2 3", "-1 100000", "100000 0", "one two", "1.5 1", "\u00b2 \u00b2", b"\xff\xfe \x00"],
)
def test_a_limit_that_makes_no_sense_is_none(count: Count, limit: str | bytes) -> None:
    assert count("0::/\n", {"cpu.max": limit}) == AFFINITY


@pytest.mark.parametrize("half", ["quota", "period"])
def test_half_of_a_limit_is_none(count: Count, half: str) -> None:
    assert count("4:cpu:/\n", {f"cpu/cpu.cfs_{half}_us": "100000"}) == AFFINITY


@pytest.mark.parametrize("membership", ["", "\n\n", "nonsense", "1:2", ":::::", b"\xff\xfe:\xff:\xff", "0::relative"])
def test_a_membership_that_makes_no_sense_is_no_error(count: Count, membership: str | bytes) -> None:
    assert count(membership, {}) == AFFINITY


def test_without_control_groups_the_affinity_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {3, 7, 11}, raising=False)
    assert usable_cores(tmp_path / "none", tmp_path / "none") == 3


@pytest.mark.parametrize(("counted", "cores"), [(6, 6), (None, 1)])
def test_without_affinity_the_machine_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: int | None, cores: int
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: counted)
    assert usable_cores(tmp_path, tmp_path / "none") == cores


def test_this_machine_has_an_answer() -> None:
    assert 1 <= usable_cores() <= (os.cpu_count() or 1)


@given(quota=st.integers(0, 10**8), period=st.integers(1, 10**6))
def test_never_none_and_never_more_than_may_be_used(quota: int, period: int) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "sched_getaffinity", lambda _pid: set(range(AFFINITY)), raising=False)
        cores = usable_cores(*tree(Path(folder), "0::/\n", {"cpu.max": f"{quota} {period}"}))
    assert cores == min(AFFINITY, max(1, math.ceil(quota / period)))
