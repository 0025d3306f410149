"""The data of one input: checked, and packed as the runtime reads it."""

from array import array
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from inference.plane.datatypes import Datatype, pack_bytes, unpack_bytes
from inference.plane.refusals import RefusedError

MAX_RANK = 32

Buffer = bytes | memoryview


def bad(sentence: str) -> RefusedError:
    return RefusedError(400, sentence)


@dataclass(frozen=True, slots=True)
class Part:
    """One input of a plan. elements: of one row, or of the whole tensor when the model does not batch.

    minimum and maximum: the contract's range. utf8: elements go into the graph as text.
    """

    name: str
    datatype: Datatype
    elements: int
    minimum: float | None
    maximum: float | None
    utf8: bool
    looked_at: bool  # the values themselves are checked: a range, or a datatype with impossible bytes


def binary_size(name: str, parameters: dict[str, Any], data: Any) -> int:
    """The bytes this input takes of the body's binary part."""
    size = parameters["binary_data_size"]
    if type(size) is not int or size < 0:
        raise bad(f"binary_data_size of input {name} must be a number of bytes")
    if data is not None:
        raise bad(f"input {name} needs exactly one of data and parameters.binary_data_size")
    return size


def check_packed(part: Part, data: Buffer, elements: int) -> None:
    """Raises RefusedError unless the data is exactly `elements` elements within the contract's range."""
    size = part.datatype.size
    if size:
        if len(data) != elements * size:
            raise bad(f"input {part.name} has {len(data)} bytes, its shape needs {elements * size}")
        if part.datatype.name == "BOOL" and bytes(data).translate(None, b"\0\1"):
            raise bad(f"input {part.name}: a BOOL is a byte 0 or 1")
        return
    try:
        texts = unpack_bytes(data, elements)
        if part.utf8:
            for text in texts:
                text.decode()
    except UnicodeDecodeError:
        raise bad(f"input {part.name}: the model takes text, which must be UTF-8") from None
    except ValueError as error:
        raise bad(f"input {part.name}: {error}") from None


def from_json(part: Part, data: list[Any], elements: int, *, booleans: bool = True) -> bytes:
    """JSON values, nested or flat, packed; array.array takes no text, no null and no 1.5 for an integer.

    booleans: there may be some, which only a BOOL takes and array.array would read as 0 and 1.
    """
    flat = _flat(part.name, data) if data and type(data[0]) is list else data
    if len(flat) != elements:
        raise bad(f"input {part.name} has {len(flat)} values, its shape needs {elements}")
    datatype = part.datatype
    if datatype.array:
        if booleans and datatype.name != "BOOL" and bool in map(type, flat):
            raise bad(f"input {part.name} has a boolean, which is no {datatype.name}")
        try:
            packed = array(datatype.array, flat)
        except (TypeError, OverflowError):
            raise bad(f"input {part.name} has a value that is no {datatype.name}") from None
        if datatype.name == "BOOL" and packed.tobytes().translate(None, b"\0\1"):
            raise bad(f"input {part.name} has a value that is no BOOL")
        return packed.tobytes()
    if datatype.name != "BYTES":
        raise bad(f"input {part.name}: receiving {datatype.name} data via JSON is not supported")
    if not all(type(text) is str for text in flat):
        raise bad(f"input {part.name} has a value that is no string")
    return pack_bytes(text.encode() for text in flat)


def _flat(name: str, data: list[Any]) -> list[Any]:
    for _ in range(MAX_RANK):
        if not data or type(data[0]) is not list:
            return data
        if not all(type(inner) is list and len(inner) == len(data[0]) for inner in data):
            raise bad(f"input {name} has rows of different lengths")
        data = list(chain.from_iterable(data))
    raise bad(f"input {name} is nested deeper than {MAX_RANK}")


def check_range(part: Part, data: Buffer) -> None:
    if part.minimum is None and part.maximum is None:
        return
    values = np.frombuffer(data, dtype=part.datatype.dtype)
    if part.datatype.name == "BF16":
        values = (values.astype("<u4") << 16).view("<f4")
    if not values.size:
        return
    low, high = values.min(), values.max()
    # Written so that NaN, which compares false with everything, is refused.
    if part.minimum is not None and not low >= part.minimum:
        raise bad(f"input {part.name} has {low}, below the contract's minimum of {part.minimum:g}")
    if part.maximum is not None and not high <= part.maximum:
        raise bad(f"input {part.name} has {high}, above the contract's maximum of {part.maximum:g}")
