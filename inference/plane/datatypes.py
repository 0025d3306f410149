"""The datatypes of the Open Inference Protocol, once for every module that meets them."""

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

DatatypeName = Literal[
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64",
    "FP16", "FP32", "FP64", "BF16", "BYTES",
]  # fmt: skip

# `np.bool` and the numbers, or objects: what a session takes and gives.
Array = NDArray[np.generic]


@dataclass(frozen=True, slots=True)
class Datatype:
    """code: its byte on the worker's socket. array: array.array's type code for JSON numbers,
    "" where JSON brings none.

    dtype: numpy's name; BF16 has none and travels as its 16 bits. size: bytes of an element, 0 for BYTES.
    """

    name: DatatypeName
    code: int
    size: int
    dtype: str
    array: str
    onnx: str


_ROWS: tuple[tuple[DatatypeName, int, str, str, str], ...] = (
    ("BOOL", 1, "?", "b", "bool"),
    ("UINT8", 1, "<u1", "B", "uint8"),
    ("UINT16", 2, "<u2", "H", "uint16"),
    ("UINT32", 4, "<u4", "I", "uint32"),
    ("UINT64", 8, "<u8", "Q", "uint64"),
    ("INT8", 1, "<i1", "b", "int8"),
    ("INT16", 2, "<i2", "h", "int16"),
    ("INT32", 4, "<i4", "i", "int32"),
    ("INT64", 8, "<i8", "q", "int64"),
    ("FP16", 2, "<f2", "", "float16"),
    ("FP32", 4, "<f4", "f", "float"),
    ("FP64", 8, "<f8", "d", "double"),
    ("BF16", 2, "<u2", "", "bfloat16"),
    ("BYTES", 0, "O", "", "string"),
)
DATATYPES: dict[str, Datatype] = {
    name: Datatype(name, code, size, dtype, array, onnx)
    for code, (name, size, dtype, array, onnx) in enumerate(_ROWS, start=1)
}
BY_CODE = {datatype.code: datatype for datatype in DATATYPES.values()}
BY_ONNX = {datatype.onnx: datatype for datatype in DATATYPES.values()}

_LENGTH = struct.Struct("<I")


def pack_bytes(elements: Iterable[bytes]) -> bytes:
    """BYTES on the wire: each element behind its little-endian length."""
    parts = []
    for element in elements:
        parts.append(_LENGTH.pack(len(element)))
        parts.append(element)
    return b"".join(parts)


def unpack_bytes(data: bytes | bytearray | memoryview, count: int) -> list[bytes]:
    """Exactly `count` elements that use `data` up. Raises ValueError with a sentence."""
    elements: list[bytes] = []
    at, end = 0, len(data)
    view = memoryview(data)
    if count * 4 > end:
        raise ValueError(f"{end} bytes cannot hold {count} elements")
    for _ in range(count):
        if at + 4 > end:
            raise ValueError(f"the data ends before element {len(elements)}")
        (size,) = _LENGTH.unpack_from(view, at)
        at += 4
        if size > end - at:
            raise ValueError(f"element {len(elements)} is said to have {size} bytes, {end - at} are there")
        elements.append(bytes(view[at : at + size]))
        at += size
    if at != end:
        raise ValueError(f"{end - at} bytes follow the last of {count} elements")
    return elements


def bytes_offsets(data: bytes | memoryview, counts: Iterable[int]) -> list[int]:
    """Where each group of `counts` elements ends in packed BYTES."""
    ends, at = [], 0
    for count in counts:
        for _ in range(count):
            at += 4 + _LENGTH.unpack_from(data, at)[0]
        ends.append(at)
    return ends
