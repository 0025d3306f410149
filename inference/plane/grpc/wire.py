"""ModelInfer on the wire, where a general parser would copy every tensor twice: fields are found and written by hand.

Protocol Buffers encoding: a field is a tag, here one byte, the length as a varint and so many bytes. A request's raw
tensors come last, in the order of fields, so everything before them is a head that clients send again and again.
"""

from collections.abc import Sequence
from functools import lru_cache

from inference.plane.batcher import Piece
from inference.plane.datatypes import BY_CODE
from inference.plane.packing import Buffer
from inference.plane.refusals import RefusedError

_ID, _RAW = 0x1A, 0x3A  # fields 3 and 7 of ModelInferRequest, each of wire type 2
LARGE = 64 << 10


class Split:
    """A request taken apart. head: without id and raw tensors. raw: where each tensor begins and ends."""

    __slots__ = ("head", "id", "raw")

    def __init__(self, head: bytes, identity: bytes, raw: list[tuple[int, int]]) -> None:
        self.head = head
        self.id = identity
        self.raw = raw


def split(data: bytes) -> Split | None:
    """None when fields stand in an unusual order or form, or the data is broken: the general parser tells which."""
    at, end = 0, len(data)
    raw: list[tuple[int, int]] = []
    begin_id = end_id = body_id = 0
    head_end = end
    try:
        while at < end:
            tag, size = data[at], data[at + 1]
            body = at + 2
            if size > 127:
                size, shift = size & 127, 7
                while True:
                    byte = data[body]
                    body += 1
                    size |= (byte & 127) << shift
                    if byte < 128:
                        break
                    shift += 7
                    if shift > 35:
                        return None
            stop = body + size
            if stop > end or tag & 0x87 != 2:
                return None
            if tag == _RAW:
                if not raw:
                    head_end = at
                raw.append((body, stop))
            elif raw:
                return None
            elif tag == _ID:
                if end_id:
                    return None
                begin_id, body_id, end_id = at, body, stop
            at = stop
    except IndexError:
        return None
    if end_id:
        return Split(data[:begin_id] + data[end_id:head_end], data[body_id:end_id], raw)
    return Split(data[:head_end], b"", raw)


def cut(data: bytes, span: tuple[int, int]) -> Buffer:
    """A tensor of a request; a large one is not copied."""
    begin, end = span
    return data[begin:end] if end - begin < LARGE else memoryview(data)[begin:end]


def opening(service: str, version: str) -> bytes:
    """The first fields of every answer of a version: its names."""
    return _field(0x0A, service.encode()) + _field(0x12, version.encode())


def answer(
    start: bytes, identity: bytes, names: Sequence[str], outputs: Sequence[Piece], *, final: bool = False
) -> bytes:
    """A whole ModelInferResponse. start: `opening`. final: with Triton's mark of the last response in a stream.

    Every output has a raw part, an empty one where the data went into the client's shared memory: clients count them.
    """
    parts: list[Buffer] = [start]
    if identity:
        parts.append(_field(0x1A, identity))
    if final:
        parts.append(_FINAL)
    parts += [_output(name, code, dims) for name, (code, dims, _) in zip(names, outputs, strict=True)]
    for _, _, data in outputs:
        parts.append(b"\x32" + varint(len(data)))
        parts.append(data)
    # Joined, that is copied, at once: the data may lie in a slot that the next batch will take.
    return b"".join(parts)


def stream_answer(result: bytes | RefusedError) -> bytes:
    """A ModelStreamInferResponse; a refusal travels inside it and the stream goes on, as in Triton."""
    if isinstance(result, RefusedError):
        return _field(0x0A, str(result).encode())
    return _field(0x12, result)


def varint(number: int) -> bytes:
    """number: not negative."""
    if number < 128:
        return b"%c" % number
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def _field(tag: int, data: bytes) -> bytes:
    return b"%c%s%s" % (tag, varint(len(data)), data)


# An entry of `parameters`: the key, and an InferParameter whose bool is true.
_FINAL = _field(0x22, _field(0x0A, b"triton_final_response") + _field(0x12, b"\x08\x01"))


@lru_cache(4096)
def _output(name: str, code: int, dims: tuple[int, ...]) -> bytes:
    """Name, datatype and shape, as an InferOutputTensor."""
    shape = _field(0x1A, b"".join([varint(dim) for dim in dims])) if dims else b""
    return _field(0x2A, _field(0x0A, name.encode()) + _field(0x12, BY_CODE[code].name.encode()) + shape)
