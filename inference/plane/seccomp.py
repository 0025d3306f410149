"""A seccomp filter as BPF, built and installed through ctypes: which system calls a process may no longer make.

Formats: linux/seccomp.h, linux/filter.h, linux/bpf_common.h; numbers: arch/x86/entry/syscalls/syscall_64.tbl and
include/uapi/asm-generic/unistd.h. A denied call fails with EPERM: libraries that only probe for something go on.
"""

import ctypes
import errno
import platform
import struct
from collections.abc import Iterable

_PR_SET_NO_NEW_PRIVS = 38
_SET_MODE_FILTER, _FLAG_TSYNC = 1, 1
_LOAD, _JUMP_EQUAL, _JUMP_ABOVE, _JUMP_BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER, _ARCH, _FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data, little-endian
_CLONE_THREAD = 0x00010000
_AF_UNIX = 1
_X32 = 0x40000000

_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_SECCOMP = {"x86_64": 317, "aarch64": 277}
# name: (x86_64, aarch64); None where the architecture has no such call.
CALLS: dict[str, tuple[int | None, int | None]] = {
    "socket": (41, 198), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201), "socketpair": (53, 199),
    "execve": (59, 221), "execveat": (322, 281), "fork": (57, None), "vfork": (58, None),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_open": (434, 434), "pidfd_getfd": (438, 438), "process_madvise": (440, 440),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "setns": (308, 268),
    "unshare": (272, 97), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsmount": (432, 432), "mount_setattr": (442, 442),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "bpf": (321, 280), "perf_event_open": (298, 241),
    "userfaultfd": (323, 282), "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "open_by_handle_at": (304, 265), "personality": (135, 92), "ioperm": (173, None), "iopl": (172, None),
    "swapon": (167, 224), "swapoff": (168, 225), "reboot": (169, 142), "acct": (163, 89), "quotactl": (179, 60),
    "sethostname": (170, 161), "setdomainname": (171, 162), "settimeofday": (164, 170), "clock_settime": (227, 112),
    "adjtimex": (159, 171), "clock_adjtime": (305, 266), "syslog": (103, 116),
    "setuid": (105, 146), "setgid": (106, 144), "setreuid": (113, 145), "setregid": (114, 143),
    "setresuid": (117, 147), "setresgid": (119, 149), "setgroups": (116, 159), "capset": (126, 91),
    "link": (86, None), "linkat": (265, 37), "symlink": (88, None), "symlinkat": (266, 36), "rename": (82, None),
    "renameat": (264, 38), "renameat2": (316, 276), "unlink": (87, None), "unlinkat": (263, 35), "mkdir": (83, None),
    "mkdirat": (258, 34), "rmdir": (84, None), "mknod": (133, None), "mknodat": (259, 33), "truncate": (76, 45),
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452), "chown": (92, None),
    "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54),
}  # fmt: skip
_CLONE = {"x86_64": 56, "aarch64": 220}
_CLONE3 = 435

_FILES = frozenset(
    {
        "link", "linkat", "symlink", "symlinkat", "rename", "renameat", "renameat2", "unlink", "unlinkat", "mkdir",
        "mkdirat", "rmdir", "mknod", "mknodat", "truncate", "chmod", "fchmod", "fchmodat", "fchmodat2", "chown",
        "fchown", "lchown", "fchownat",
    }
)  # fmt: skip
_LOCAL = frozenset({"connect", "socketpair", "bind", "listen"})


class KernelRefused(Exception):
    """The kernel, or this machine, cannot do it; the message says why."""


def denied(*, writes: bool, local_sockets: bool) -> frozenset[str]:
    """Calls to deny. writes: leave changing files alone. local_sockets: leave AF_UNIX alone, which drivers use."""
    names = set(CALLS) - {"socket"}
    if writes:
        names -= _FILES
    if local_sockets:
        names -= _LOCAL
    return frozenset(names)


def program(names: Iterable[str], *, machine: str, local_sockets: bool) -> bytes:
    """The filter as an array of struct sock_filter. Raises KernelRefused for a machine that it does not know."""
    if machine not in _AUDIT_ARCH:
        raise KernelRefused(f"no list of system calls for {machine}")
    column = 0 if machine == "x86_64" else 1
    no = _ERRNO | errno.EPERM
    code = [
        (_LOAD, 0, 0, _ARCH),
        (_JUMP_EQUAL, 1, 0, _AUDIT_ARCH[machine]),
        (_RETURN, 0, 0, _KILL_PROCESS),  # another table of numbers would get around every line below
        (_LOAD, 0, 0, _NUMBER),
    ]
    if machine == "x86_64":
        code += [(_JUMP_ABOVE, 0, 1, _X32), (_RETURN, 0, 0, no)]
    for name in sorted(names):
        number = CALLS[name][column]
        if number is not None:
            code += [(_JUMP_EQUAL, 0, 1, number), (_RETURN, 0, 0, no)]
    # glibc falls back to clone, whose flags a filter can read.
    code += [(_JUMP_EQUAL, 0, 1, _CLONE3), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]
    code += [
        (_JUMP_EQUAL, 0, 4, _CLONE[machine]),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_JUMP_BITS, 1, 0, _CLONE_THREAD),
        (_RETURN, 0, 0, no),
        (_RETURN, 0, 0, _ALLOW),
    ]
    socket = CALLS["socket"][column]
    assert socket is not None
    if local_sockets:
        code += [
            (_JUMP_EQUAL, 0, 3, socket),
            (_LOAD, 0, 0, _FIRST_ARGUMENT),
            (_JUMP_EQUAL, 1, 0, _AF_UNIX),
            (_RETURN, 0, 0, no),
        ]
    else:
        code += [(_JUMP_EQUAL, 0, 1, socket), (_RETURN, 0, 0, no)]
    code.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("<HBBI", *line) for line in code)


def no_new_privileges() -> None:
    """Raises KernelRefused."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise KernelRefused(f"no_new_privs: {errno.errorcode.get(ctypes.get_errno(), '?')}")


def install(code: bytes) -> None:
    """For every thread of this process, for ever. Raises KernelRefused."""
    machine = platform.machine()
    if machine not in _SECCOMP:
        raise KernelRefused(f"no list of system calls for {machine}")

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))

    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(code, len(code))
    given = Program(len(code) // 8, ctypes.addressof(buffer))
    done = libc.syscall(
        ctypes.c_long(_SECCOMP[machine]),
        ctypes.c_ulong(_SET_MODE_FILTER),
        ctypes.c_ulong(_FLAG_TSYNC),
        ctypes.byref(given),
    )
    if done > 0:
        raise KernelRefused("a thread could not take the filter over")
    if done:
        raise KernelRefused(errno.errorcode.get(ctypes.get_errno(), "?"))
