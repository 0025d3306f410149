"""What a process that runs strangers' models may still do: read its model, answer on its open sockets, compute.

Limits on files, descriptors and core dumps; no new privileges; a seccomp filter without network, new programs, new
processes, tracing and kernel surface; Landlock, so that nothing but the model, the cache and the libraries can be read
and nothing written. What the kernel refuses is told in words, never left out silently. There is no limit on address
space: mapped weights and reserved arenas make it meaningless; private memory is limited (RLIMIT_DATA) and watched
instead. Nor one on processes: Linux counts those of the whole user, and the filter allows no new one at all.
"""

import platform
import resource
import site
import sys
from collections.abc import Iterable
from pathlib import Path

from inference.plane import landlock, seccomp
from inference.plane.seccomp import KernelRefused

LOG_BYTES = 256 << 20
# Libraries, time zones and what a runtime asks about the machine. Of /proc only what is our own (/proc/self/fd is how
# onnxruntime checks its files): the environment of other processes of this user lies there too.
_SYSTEM = (
    "/usr", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/localtime", "/proc/self", "/proc/cpuinfo", "/proc/meminfo",
    "/proc/stat", "/proc/sys/vm", "/sys/devices/system", "/sys/fs/cgroup", "/dev/urandom", "/dev/random",
)  # fmt: skip
_OPEN = ("/dev/null", "/dev/zero")
# CUDA: its devices, and what the driver asks and keeps about them.
_DEVICE_READ = ("/proc", "/sys", "/etc/nvidia", "/opt", "/var/lib/nvidia")
_DEVICE_OPEN = ("shm", "dri", "kfd")


def lower(limit: int, value: int) -> None:
    """Both ends of a limit, never above what is allowed already."""
    hard = resource.getrlimit(limit)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(limit, (value, value))


def enter(reading: Iterable[Path], *, writing: Iterable[Path] = (), device: bool = False) -> str:
    """For good, also for threads started from now on by this one. What is in force, and what the kernel refused.

    device: a GPU is used, whose driver opens devices, writes to them and talks over local sockets.
    """
    held, refused = [], []
    lower(resource.RLIMIT_CORE, 0)
    lower(resource.RLIMIT_NOFILE, 4096 if device else 256)
    if not writing:
        lower(resource.RLIMIT_FSIZE, LOG_BYTES)
    held.append("limits")
    try:
        seccomp.no_new_privileges()
        held.append("no_new_privs")
    except KernelRefused as error:
        refused.append(str(error))
    try:
        level = landlock.restrict(
            [*map(Path, _SYSTEM), *_python(), *reading, *map(Path, _DEVICE_READ if device else ())],
            [*map(Path, _OPEN), *writing, *(_devices() if device else ())],
        )
        held.append(f"landlock {level}")
    except KernelRefused as error:
        refused.append(str(error))
    try:
        names = seccomp.denied(writes=bool(list(writing)), local_sockets=device)
        seccomp.install(seccomp.program(names, machine=platform.machine(), local_sockets=device))
        held.append("seccomp")
    except KernelRefused as error:
        refused.append(f"seccomp: {error}")
    told = ", ".join(held)
    return f"{told}; WITHOUT {'; '.join(refused)}" if refused else told


def _python() -> list[Path]:
    """Where modules that are imported later come from; never the current folder."""
    places = [sys.prefix, sys.base_prefix, *site.getsitepackages()]
    if site.ENABLE_USER_SITE:
        places.append(site.getusersitepackages())
    return [Path(__file__).resolve().parents[1], *map(Path, places)]


def _devices() -> list[Path]:
    root = Path("/dev")
    return [*(root / name for name in _DEVICE_OPEN), *root.glob("nvidia*"), Path("/run/nvidia-persistenced")]
