"""Landlock through ctypes: which files a thread, and those that it starts, may still open (linux/landlock.h)."""

import ctypes
import errno
import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from inference.plane.seccomp import KernelRefused

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446  # the same on every architecture
_VERSION_FLAG, _PATH_BENEATH = 1, 1

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_ALL_BY_VERSION = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
_TRUNCATE, _IOCTL_DEVICE = 1 << 14, 1 << 15
_FOR_FILES = EXECUTE | WRITE_FILE | READ_FILE | _TRUNCATE | _IOCTL_DEVICE
_NET_TCP = 3  # bind and connect, version 4
_SCOPES = 3  # abstract Unix sockets and signals to processes outside, version 6


def version() -> int:
    """Of the kernel's Landlock; 0 without."""
    found = _syscall(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION_FLAG))
    return max(0, found)


def restrict(
    reading: Iterable[Path], writing: Iterable[Path] = (), *, deny_tcp: bool = True, scope: bool = True
) -> int:
    """From now on this thread may only read below `reading` and do anything below `writing`. The version used.

    Paths that do not exist are left out. Raises KernelRefused.
    """
    level = version()
    if level < 1:
        raise KernelRefused("this kernel has no Landlock")
    handled = max(rights for since, rights in _ALL_BY_VERSION.items() if since <= level)

    class Ruleset(ctypes.Structure):
        _fields_ = (("files", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))

    rules = Ruleset(
        handled, _NET_TCP if deny_tcp and level >= 4 else 0, _SCOPES if scope and level >= 6 else 0
    )
    size = 24 if level >= 6 else 16 if level >= 4 else 8
    ruleset = _checked(_CREATE, ctypes.byref(rules), ctypes.c_size_t(size), ctypes.c_uint32(0))
    try:
        for path in reading:
            _allow(ruleset, path, EXECUTE | READ_FILE | READ_DIR)
        for path in writing:
            _allow(ruleset, path, handled)
        _checked(_RESTRICT, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    finally:
        os.close(ruleset)
    return level


def _allow(ruleset: int, path: Path, rights: int) -> None:
    class Beneath(ctypes.Structure):
        _pack_ = 1
        _fields_ = (("rights", ctypes.c_uint64), ("parent", ctypes.c_int32))

    with suppress(FileNotFoundError, PermissionError, NotADirectoryError):
        parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            if not stat.S_ISDIR(os.fstat(parent).st_mode):
                rights &= _FOR_FILES
            rule = Beneath(rights, parent)
            _checked(
                _ADD_RULE,
                ctypes.c_int(ruleset),
                ctypes.c_int(_PATH_BENEATH),
                ctypes.byref(rule),
                ctypes.c_uint32(0),
            )
        finally:
            os.close(parent)


def _checked(number: int, *arguments: object) -> int:
    found = _syscall(number, *arguments)
    if found < 0:
        raise KernelRefused(f"Landlock: {errno.errorcode.get(ctypes.get_errno(), '?')}")
    return found


def _syscall(number: int, *arguments: object) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    found: int = libc.syscall(ctypes.c_long(number), *arguments)
    return found
