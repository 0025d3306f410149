"""How many cores this process may really use."""

import os
from pathlib import Path


def available(root: Path = Path("/sys/fs/cgroup")) -> float:
    """The least of affinity and cgroup quota; runtimes see only the host's cores and start too many threads."""
    cores = float(len(os.sched_getaffinity(0)))
    try:
        quota, period = (root / "cpu.max").read_text().split()
        return cores if quota == "max" else min(cores, int(quota) / int(period))
    except (OSError, ValueError):
        pass
    try:  # cgroup version 1
        quota_us = int((root / "cpu" / "cpu.cfs_quota_us").read_text())
        period_us = int((root / "cpu" / "cpu.cfs_period_us").read_text())
    except (OSError, ValueError):
        return cores
    return min(cores, quota_us / period_us) if quota_us > 0 else cores


def threads_for(replicas: int) -> int:
    """Threads of each of `replicas` workers that share this machine."""
    return max(1, int(available()) // max(1, replicas))
