from pathlib import Path
from typing import Any

import pytest

from inference.node import sizing


@pytest.mark.parametrize(
    ("contract", "workers", "quota", "threads"),
    [
        ({"spec": {"resources": {"cpu": 1}}}, 2, 8.0, 1),
        ({"spec": {"resources": {"cpu": 4}}}, 2, 2.0, 2),
        ({"spec": {"resources": {"cpu": 2.9}}}, 1, 8.0, 2),
        ({}, 2, 8.0, 4),
        ({}, 16, 8.0, 1),
        ({}, 1, 0.5, 1),
    ],
)
def test_threads_follow_contract_and_quota(
    contract: dict[str, Any], workers: int, quota: float, threads: int
) -> None:
    assert sizing.threads_for(contract, workers=workers, quota=quota) == threads


def test_the_quota_of_cgroup_v2_is_read_at_every_level(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "cpu.max").write_text("50000 100000\n")
    (tmp_path / "a" / "b" / "cpu.max").write_text("max 100000\n")
    (tmp_path / "self").write_text("0::/a/b\n")
    assert sizing.cpu_quota(tmp_path, tmp_path / "self") == 0.5


def test_the_quota_of_cgroup_v1_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "cpu,cpuacct" / "docker"
    folder.mkdir(parents=True)
    (folder / "cpu.cfs_quota_us").write_text("25000\n")
    (folder / "cpu.cfs_period_us").write_text("100000\n")
    (tmp_path / "self").write_text("4:cpu,cpuacct:/docker\n")
    assert sizing.cpu_quota(tmp_path, tmp_path / "self") == 0.25


def test_no_quota_is_the_affinity(tmp_path: Path) -> None:
    assert sizing.cpu_quota(tmp_path, tmp_path / "none") >= 1.0


def test_the_memory_limit_counts_only_below_the_machine(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("1048576\n")
    assert sizing.memory_bytes(tmp_path) == 1 << 20
    (tmp_path / "memory.max").write_text("max\n")
    assert sizing.memory_bytes(tmp_path) > 1 << 20
