"""How much of the machine is ours: cores by quota and affinity, memory by limit, and threads for each worker.

ONNX Runtime's own default is every physical core of the host, whatever the container may use: four such processes on
two cores do half the work of four with one thread each.
"""

import math
import os
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

CGROUP = Path("/sys/fs/cgroup")
_FLAGS = (
    "avx",
    "avx2",
    "avx512f",
    "avx512_vnni",
    "avx_vnni",
    "amx_tile",
    "amx_int8",
    "f16c",
    "fma",
    "asimd",
    "sve",
)
_UNLIMITED_V1 = 1 << 60


def cpu_quota(root: Path = CGROUP, own: Path = Path("/proc/self/cgroup")) -> float:
    """Cores that this process group may use, from cgroup v2 or v1 and the affinity mask."""
    usable = float(len(os.sched_getaffinity(0)))
    limits = [limit for folder in _folders(root, own) if (limit := _limit_of(folder)) is not None]
    return min([usable, *limits])


def _folders(root: Path, own: Path) -> list[Path]:
    """Our cgroup and each above it, in both layouts; in a container the root is already ours."""
    folders = [root, root / "cpu", root / "cpu,cpuacct"]
    try:
        lines = own.read_text(encoding="ascii").splitlines()
    except OSError:
        return folders
    for line in lines:
        _, controllers, path = line.split(":", 2)
        base = root if controllers == "" else root / controllers
        if controllers == "" or "cpu" in controllers.split(","):
            parts = Path(path.lstrip("/")).parts
            folders += [base.joinpath(*parts[:depth]) for depth in range(1, len(parts) + 1)]
    return folders


def _limit_of(folder: Path) -> float | None:
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text(encoding="ascii").split()
        else:
            quota = (folder / "cpu.cfs_quota_us").read_text(encoding="ascii").strip()
            period = (folder / "cpu.cfs_period_us").read_text(encoding="ascii").strip()
        return None if quota in ("max", "-1") else int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None


def memory_bytes(root: Path = CGROUP) -> int:
    """The limit of our cgroup, else the machine's memory."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for path in (root / "memory.max", root / "memory" / "memory.limit_in_bytes"):
        try:
            limit = int(path.read_text(encoding="ascii"))
        except (OSError, ValueError):
            continue
        if limit < _UNLIMITED_V1:
            return min(physical, limit)
    return physical


def threads_for(contract: Mapping[str, Any], *, workers: int, quota: float) -> int:
    """Intra-op threads of one worker: what the contract asks for within the quota, else an even share of it."""
    most = max(1, math.floor(quota))
    spec = contract.get("spec", contract)
    resources = spec.get("resources") if isinstance(spec, Mapping) else None
    asked = resources.get("cpu") if isinstance(resources, Mapping) else None
    if isinstance(asked, int | float) and asked >= 1:
        return min(most, math.floor(asked))
    return max(1, min(most, math.floor(quota / max(1, workers))))


def profile() -> dict[str, Any]:
    """What the node tells about itself."""
    return {
        "cores": os.cpu_count() or 1,
        "cpu_quota": round(cpu_quota(), 2),
        "memory_bytes": memory_bytes(),
        "cpu_flags": cpu_flags(),
        "runtime": _runtime(),
        "providers": _providers(),
        "python": sys.version.split()[0],
    }


def cpu_flags(path: Path = Path("/proc/cpuinfo")) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            present = set(value.split())
            return [flag for flag in _FLAGS if flag in present]
    return []


def _runtime() -> str:
    for name in ("onnxruntime", "onnxruntime-gpu"):
        try:
            return f"{name} {metadata.version(name)}"
        except metadata.PackageNotFoundError:
            continue
    return ""


def _providers() -> list[str]:
    """Asked of a process of its own: the agent must not load what a broken driver can crash."""
    code = "import onnxruntime; print(*onnxruntime.get_available_providers())"
    try:
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.split() if done.returncode == 0 else []
