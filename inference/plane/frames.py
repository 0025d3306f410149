"""The language between plane and worker: frames on a Unix stream socket, written and read by hand.

A frame is `<u32 length of what follows><u8 kind>` and a body. HELLO, STATUS and LAYOUT bodies are JSON; RUN, RESULT and
FAILED are fixed binary headers and tensor bytes. Both ends are our own processes, yet lengths are checked before use.

    plane                       worker
    HELLO {as: plane} + memfd ->
                              <- STATUS (now, and again at each change of state)
    LAYOUT {id, inputs, outputs} ->          once for each combination of inputs and outputs
    RUN batch ->
                              <- RESULT | FAILED
"""

import socket
import struct
import time
from collections.abc import Sequence
from enum import IntEnum
from functools import cache

import msgspec

LIMIT = 512 << 20
HEAD = struct.Struct("<IB")

# RUN: slot, layout, batch, rows (-1: the shape is in the layout whole), microseconds after its beginning at which the
# run is ended (0: never), then for each input `PLACE`.
RUN = struct.Struct("<BHIiI")
LONGEST_RUN_US = (1 << 32) - 1
# One tensor: bytes, offset in the slot or INLINE. Inline tensors follow the header in order.
PLACE = struct.Struct("<QQ")
INLINE = (1 << 64) - 1
# RESULT: batch, nanoseconds for input, run and output, number of outputs; for each an OUTPUT and its dims
# as `<q`, then the inline bytes.
RESULT = struct.Struct("<IQQQB")
OUTPUT = struct.Struct("<BBQQ")  # datatype code, rank, then as PLACE
# FAILED: batch, HTTP status that fits, then a UTF-8 sentence.
FAILED = struct.Struct("<IH")
DIM = struct.Struct("<q")


class Layout(msgspec.Struct, frozen=True):
    """What the requests of one batch have in common. dims: without rows when `batched`, else the whole shape.

    outputs: public names, in the order of the answer.
    """

    id: int
    batched: bool
    inputs: tuple[tuple[str, str, tuple[int, ...]], ...]
    outputs: tuple[str, ...]


class Kind(IntEnum):
    HELLO = 1
    STATUS = 2
    LAYOUT = 3
    RUN = 4
    RESULT = 5
    FAILED = 6


def inline_start(inputs: int) -> int:
    """Where the first inline tensor of a RUN body begins; aligned, because runtimes read it in place."""
    return padded(RUN.size + inputs * PLACE.size)


def padded(offset: int) -> int:
    return (offset + 15) & -16


@cache
def run_struct(inputs: int) -> struct.Struct:
    """A whole RUN frame up to its inline tensors: length, kind, RUN, a PLACE for each input, padding."""
    used = RUN.size + inputs * PLACE.size
    return struct.Struct(f"<IBBHIiI{2 * inputs}Q{padded(used) - used}x")


def read_dims(data: bytes, at: int, rank: int) -> tuple[int, ...]:
    return struct.unpack_from(f"<{rank}q", data, at)


def dims(sizes: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(sizes)}q", *sizes)


def pack(kind: Kind, body: bytes) -> bytes:
    return HEAD.pack(len(body) + 1, kind) + body


def receive(sock: socket.socket, *, deadline: float | None = None) -> tuple[Kind, bytearray]:
    """One whole frame from a blocking socket. Raises EOFError, ValueError, TimeoutError."""
    size, kind = HEAD.unpack(receive_exactly(sock, HEAD.size, deadline=deadline))
    if not 1 <= size <= LIMIT:
        raise ValueError("frame length out of bounds")
    return Kind(kind), receive_exactly(sock, size - 1, deadline=deadline)


def receive_exactly(sock: socket.socket, size: int, *, deadline: float | None = None) -> bytearray:
    received = bytearray(size)
    rest = memoryview(received)
    while rest:
        if deadline is not None:
            sock.settimeout(max(0.001, deadline - time.monotonic()))
        got = sock.recv_into(rest)
        if not got:
            raise EOFError("the other side closed")
        rest = rest[got:]
    return received
