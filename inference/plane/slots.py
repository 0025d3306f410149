"""Shared memory between a plane and one worker: two slots, each with room for a request and its answer.

The plane makes a sealed memfd for each connection and hands it over with the greeting, so it has no name, no length
that could change under a reader (SIGBUS), and dies with the last of its two users. A slot belongs to one batch in
flight: the plane fills its request half before RUN, the worker its answer half before RESULT; then it is free.
"""

import contextlib
import fcntl
import mmap
import os

SLOTS = 2
AREA = 256 << 20  # address space only: memory is taken page by page as it is touched
LARGE = 64 << 10  # smaller tensors travel in the frame; above this a copy into shared memory is cheaper
_ALIGN = 64


class Slab:
    def __init__(self, fd: int) -> None:
        """Takes the descriptor over. Raises OSError or ValueError when it is not a slab."""
        try:
            if os.fstat(fd).st_size != 2 * SLOTS * AREA:
                raise ValueError("not a slab")
            self._map = mmap.mmap(fd, 2 * SLOTS * AREA)
        finally:
            os.close(fd)
        self._view = memoryview(self._map)

    def request(self, slot: int) -> memoryview:
        return self._view[2 * slot * AREA : (2 * slot + 1) * AREA]

    def answer(self, slot: int) -> memoryview:
        return self._view[(2 * slot + 1) * AREA : (2 * slot + 2) * AREA]

    def trim(self) -> None:
        """Give the touched pages back; only while no slot is in use."""
        self._map.madvise(mmap.MADV_REMOVE)

    def close(self) -> None:
        self._view.release()
        # While an array still looks into it the mapping stays, and goes with that array.
        with contextlib.suppress(BufferError):
            self._map.close()


def create() -> tuple[Slab, int]:
    """A new slab and a descriptor to hand to the worker, which the caller closes after that."""
    fd = os.memfd_create("pilothouse", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, 2 * SLOTS * AREA)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        return Slab(os.dup(fd)), fd
    except BaseException:
        os.close(fd)
        raise


def aligned(offset: int) -> int:
    return (offset + _ALIGN - 1) & -_ALIGN
