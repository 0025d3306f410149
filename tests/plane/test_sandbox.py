"""What a worker may not do: each thing is tried from inside, and the filter is run by hand for both architectures."""

import errno
import os
import struct
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from inference.plane import frames, landlock, seccomp
from inference.plane.memory import MemoryWatch
from inference.plane.probe import ask_worker
from inference.plane.seccomp import KernelRefused
from tests.plane import models
from tests.plane.parts import ROOT
from tests.plane.test_worker import Plane, Running, environment
from tests.services.process import wait_until

ALLOW, KILL, NO = 0x7FFF0000, 0x80000000, 0x00050000 | errno.EPERM


def inside(code: str, *, reading: Path, writing: Path | None = None, device: bool = False) -> str:
    """What `code` prints in a process that entered the sandbox."""
    prefix = f"""
        import os, socket, sys, threading
        from pathlib import Path
        from inference.plane import sandbox
        told = sandbox.enter([Path({str(reading)!r})], writing={[writing] if writing else []!r}, device={device})
    """.replace("PosixPath", "Path")
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(prefix) + textwrap.dedent(code)],
        cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize(
    "attempt",
    [
        "socket.socket(socket.AF_INET)",
        "socket.socket(socket.AF_INET6)",
        "socket.socket(socket.AF_UNIX)",
        "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
        "socket.socketpair()",
        "os.execv('/bin/true', ['true'])",
        "os.fork()",
        "os.posix_spawn('/bin/true', ['true'], {})",
        "open('/etc/passwd')",
        "open('/proc/1/environ')",
        "os.listdir('/tmp')",
        "os.listdir('/home')",
        "open('written', 'w')",
        "open(folder / 'written', 'w')",
        "open(folder / 'model.onnx', 'r+b')",
        "os.truncate(folder / 'model.onnx', 0)",
        "os.unlink(folder / 'model.onnx')",
        "os.rename(folder / 'model.onnx', folder / 'b')",
        "os.symlink('/etc/passwd', folder / 'b')",
        "os.link(folder / 'model.onnx', folder / 'b')",
        "os.chmod(folder / 'model.onnx', 0o777)",
        "os.mkdir(folder / 'b')",
        "os.mkfifo(folder / 'b')",
        "os.setuid(os.getuid())",
        "os.pidfd_open(os.getpid())",
    ],
)
def test_inside_the_sandbox_this_is_refused(tmp_path: Path, attempt: str) -> None:
    (tmp_path / "model.onnx").write_bytes(b"m")
    code = f"""
        folder = Path({str(tmp_path)!r})
        try:
            {attempt}
        except PermissionError:
            print("refused")
        else:
            print("done")
    """
    assert inside(code, reading=tmp_path) == "refused"
    assert (tmp_path / "model.onnx").read_bytes() == b"m"


def test_inside_the_sandbox_a_model_can_be_read_and_threads_started(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"m")
    code = f"""
        seen = []
        thread = threading.Thread(target=lambda: seen.append((Path({str(tmp_path)!r}) / 'model.onnx').read_bytes()))
        thread.start()
        thread.join()
        import wave  # a module that nobody has loaded yet
        print(seen, len(os.listdir('/proc/self/fd')) > 0, told)
    """
    told = inside(code, reading=tmp_path)
    assert told.startswith("[b'm'] True limits, no_new_privs")


def test_threads_of_the_sandbox_are_inside_too(tmp_path: Path) -> None:
    code = """
        def tried():
            try:
                open("/etc/passwd")
            except PermissionError:
                print("refused", end=" ")
            try:
                socket.socket()
            except PermissionError:
                print("refused")
        thread = threading.Thread(target=tried)
        thread.start()
        thread.join()
    """
    assert inside(code, reading=tmp_path) == "refused refused"


def test_a_preparation_may_write_in_the_cache_only(tmp_path: Path) -> None:
    for name in ("model", "cache"):
        (tmp_path / name).mkdir()
    code = f"""
        base = Path({str(tmp_path)!r})
        (base / "cache" / "a").write_text("x")
        (base / "cache" / "a").rename(base / "cache" / "b")
        (base / "cache" / "b").unlink()
        try:
            (base / "model" / "a").write_text("x")
        except PermissionError:
            print("refused")
    """
    assert inside(code, reading=tmp_path / "model", writing=tmp_path / "cache") == "refused"


def test_drivers_may_use_local_sockets_and_nothing_more(tmp_path: Path) -> None:
    code = """
        socket.socket(socket.AF_UNIX).close()
        for family in (socket.AF_INET, socket.AF_INET6):
            try:
                socket.socket(family)
            except PermissionError:
                print("refused", end=" ")
    """
    assert inside(code, reading=tmp_path, device=True) == "refused refused"


def judge(code: bytes, arch: int, number: int, first: int = 0) -> int:
    """Runs a filter as the kernel does."""
    data = struct.pack("<iIQ6Q", number, arch, 0, first, 0, 0, 0, 0, 0)
    lines: list[tuple[int, int, int, int]] = [
        struct.unpack_from("<HBBI", code, at) for at in range(0, len(code), 8)
    ]
    at, value = 0, 0
    while True:
        kind, then, otherwise, k = lines[at]
        at += 1
        match kind:
            case 0x20:
                (value,) = struct.unpack_from("<I", data, k)
            case 0x15:
                at += then if value == k else otherwise
            case 0x35:
                at += then if value >= k else otherwise
            case 0x45:
                at += then if value & k else otherwise
            case 0x06:
                return k
            case _:
                raise AssertionError(kind)


ARCHITECTURES = [("x86_64", 0xC000003E, 0), ("aarch64", 0xC00000B7, 1)]
# read, write, mmap, exit_group, futex, epoll_pwait, accept4, recvmsg, sendto, openat
USUAL = {
    "x86_64": (0, 1, 9, 231, 202, 281, 288, 47, 44, 257),
    "aarch64": (63, 64, 222, 94, 98, 22, 242, 212, 206, 56),
}


@pytest.mark.parametrize(("machine", "arch", "column"), ARCHITECTURES)
def test_the_filter_denies_what_it_names_on_both_architectures(machine: str, arch: int, column: int) -> None:
    names = seccomp.denied(writes=False, local_sockets=False)
    code = seccomp.program(names, machine=machine, local_sockets=False)
    for name in names:
        number = seccomp.CALLS[name][column]
        if number is not None:
            assert judge(code, arch, number) == NO, name
    assert all(judge(code, arch, number) == ALLOW for number in USUAL[machine])
    socket_call = seccomp.CALLS["socket"][column]
    assert socket_call is not None
    assert {judge(code, arch, socket_call, family) for family in (1, 2, 10, 16)} == {NO}
    clone = {"x86_64": 56, "aarch64": 220}[machine]
    assert judge(code, arch, clone, 0x003D0F00) == ALLOW  # what pthread_create passes
    assert judge(code, arch, clone, 17) == NO  # a process
    assert judge(code, arch, 435, 0) == 0x00050000 | errno.ENOSYS
    for other in {0xC000003E, 0xC00000B7, 0x40000003} - {arch}:
        assert judge(code, other, 0) == KILL
    if machine == "x86_64":
        assert judge(code, arch, 0x40000000 | 1) == NO


@pytest.mark.parametrize(("machine", "arch", "column"), ARCHITECTURES)
def test_the_filter_for_devices_leaves_local_sockets_alone(machine: str, arch: int, column: int) -> None:
    names = seccomp.denied(writes=True, local_sockets=True)
    code = seccomp.program(names, machine=machine, local_sockets=True)
    number = seccomp.CALLS["socket"][column]
    assert number is not None
    assert [judge(code, arch, number, family) for family in (1, 2, 10)] == [ALLOW, NO, NO]
    for name in ("connect", "unlinkat", "renameat"):
        call = seccomp.CALLS[name][column]
        assert call is not None and judge(code, arch, call) == ALLOW


def test_a_machine_without_a_list_is_said_to_have_none() -> None:
    with pytest.raises(KernelRefused, match="riscv64"):
        seccomp.program((), machine="riscv64", local_sockets=False)


def test_what_the_kernel_refuses_is_told_loudly(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    code = """
        print(told)
    """
    blind = "from inference.plane import landlock; landlock.version = lambda: 0\n"
    prefix = f"""
        from pathlib import Path
        from inference.plane import sandbox, seccomp
        def no(*_):
            raise seccomp.KernelRefused("EINVAL")
        seccomp.install = no
        told = sandbox.enter([Path({str(tmp_path)!r})])
    """
    done = subprocess.run(
        [sys.executable, "-c", blind + textwrap.dedent(prefix) + textwrap.dedent(code)],
        cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=30, check=True,
    )  # fmt: skip
    told = done.stdout.strip()
    assert told == "limits, no_new_privs; WITHOUT this kernel has no Landlock; seccomp: EINVAL"


def test_a_real_worker_is_inside_before_it_reads_its_model(tmp_path: Path) -> None:
    running = Running(tmp_path, models.mlp(tmp_path / "mlp"))
    try:
        status = running.ready()
        fields = dict(
            line.split(":", 1) for line in Path(f"/proc/{running.child.pid}/status").read_text().splitlines()
        )
        assert fields["NoNewPrivs"].strip() == "1" and fields["Seccomp"].strip() == "2"
        expected = "limits, no_new_privs"
        expected += f", landlock {landlock.version()}" if landlock.version() else ""
        assert status.sandbox.startswith(expected) and "seccomp" in status.sandbox
        limits = Path(f"/proc/{running.child.pid}/limits").read_text()
        assert "Max core file size        0 " in limits and "Max open files            256 " in limits
        for task in Path(f"/proc/{running.child.pid}/task").iterdir():
            assert "Seccomp:\t2" in (task / "status").read_text()
    finally:
        running.stop()


def test_a_worker_that_grows_too_much_finishes_drains_and_says_so(tmp_path: Path) -> None:
    """x FP32 [N, M] -> y of the same shape, by way of something 64 times larger."""
    folder = hungry(tmp_path / "hungry")
    running = Running(tmp_path, folder)
    try:
        status = running.ready()
        assert status.memory_limit_bytes > status.private_bytes > 0
        plane = Plane(running.socket)
        plane.status()
        plane.define(
            frames.Layout(id=0, batched=False, inputs=(("x", "FP32", (1, 400_000)),), outputs=("y",))
        )
        data = np.ones(400_000, "f4").tobytes()
        plane.run(7, data, rows=-1)
        kind, body = plane.receive()
        assert kind is frames.Kind.RESULT and frames.RESULT.unpack_from(body)[0] == 7
        told = plane.status()
        assert told.state == "draining" and "MB are allowed" in told.detail
        plane.close()
        assert running.child.process.wait(20) == 10
    finally:
        running.stop()


def test_one_huge_allocation_fails_its_request_and_not_the_worker(tmp_path: Path) -> None:
    running = Running(tmp_path, hungry(tmp_path / "hungry"))
    try:
        running.ready()
        plane = Plane(running.socket)
        plane.status()
        plane.define(
            frames.Layout(id=0, batched=False, inputs=(("x", "FP32", (1, 4_000_000)),), outputs=("y",))
        )
        plane.run(1, np.ones(4_000_000, "f4").tobytes(), rows=-1)
        kind, body = plane.receive()
        assert kind is frames.Kind.FAILED and frames.FAILED.unpack_from(body)[1] == 500
        plane.define(frames.Layout(id=0, batched=False, inputs=(("x", "FP32", (1, 1)),), outputs=("y",)))
        plane.run(2, np.ones(1, "f4").tobytes(), rows=-1)
        assert plane.receive()[0] is frames.Kind.RESULT
        plane.close()
    finally:
        running.stop()


def hungry(folder: Path) -> Path:
    from onnx import helper, numpy_helper

    times = numpy_helper.from_array(np.array([64, 1], "i8"), "times")
    nodes = [
        helper.make_node("Tile", ["x", "times"], ["large"]),
        helper.make_node("ReduceMax", ["large"], ["y"], axes=[0], keepdims=1),
    ]
    shape: list[int | str] = [1, "M"]
    models.save(folder, nodes, [models.tensor("x", 1, shape)], [models.tensor("y", 1, shape)], [times])
    models.write_contract(
        folder,
        folder.name,
        "[{name: x, datatype: FP32, shape: [1, -1]}]",
        "[{name: y, datatype: FP32, shape: [1, -1]}]",
        batch=1,
    )
    text = (folder / "contract.yaml").read_text()
    text = text.replace(
        "  parameters:\n", "  resources: {memory: 64Mi}\n  parameters:\n    memory_pool_mb: 32\n"
    )
    (folder / "contract.yaml").write_text(text)
    return folder


def test_an_idle_worker_gives_back_what_odd_shapes_took(tmp_path: Path) -> None:
    folder = hungry(tmp_path / "hungry")
    text = (folder / "contract.yaml").read_text()
    (folder / "contract.yaml").write_text(text.replace("memory: 64Mi", "memory: 1Gi"))
    running = Running(tmp_path, folder)
    try:
        before = running.ready().private_bytes
        plane = Plane(running.socket)
        plane.status()
        plane.define(
            frames.Layout(id=0, batched=False, inputs=(("x", "FP32", (1, 400_000)),), outputs=("y",))
        )
        plane.run(7, np.ones(400_000, "f4").tobytes(), rows=-1)
        assert plane.receive()[0] is frames.Kind.RESULT
        grown = ask_worker(running.socket).private_bytes
        assert grown - before > 64 << 20
        wait_until(
            lambda: ask_worker(running.socket).private_bytes - before < 32 << 20,
            seconds=15,
            what="the memory to come back",
        )
    finally:
        running.stop()


def test_memory_that_cannot_be_waited_for_ends_the_worker_at_once() -> None:
    used, told = [50], list[str]()
    asked, gone = threading.Event(), threading.Event()

    def recycle(why: str) -> None:
        told.append(why)
        asked.set()

    MemoryWatch(
        100 << 20, recycle, give_up=lambda _: gone.set(), used=lambda: used[0] << 20, look_seconds=0.01
    )
    time.sleep(0.05)
    assert not told
    used[0] = 150
    assert asked.wait(5) and not gone.is_set()
    assert told == ["150 MB of private memory are in use, 100 MB are allowed"]
    used[0] = 201
    assert gone.wait(5) and len(told) == 1
    assert os.getpid() > 0
