"""The commonest request read in one go: JSON with flat numbers for float inputs and nothing else in it.

msgspec checks types while it parses, so what it lets through needs no second look; everything it does not let through,
right or wrong, is left to the general way.
"""

from array import array
from typing import Any

import msgspec

from inference.plane.packing import Buffer, check_range
from inference.plane.plans import Parsed, Plan

FLOATS = frozenset({"FP32", "FP64"})
MAX_BYTES = 65_536
MAX_LOOKS = 256
MAX_ID = 512


class Tensor(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    name: str
    datatype: str
    shape: list[int]
    data: list[float]  # no boolean, no text and no null is a float here


class Request(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    inputs: list[Tensor]
    id: str = ""


_decode = msgspec.json.Decoder(Request).decode

# Names, datatypes and dims without rows, in the order they came.
Look = tuple[str | int, ...]


def read(body: bytes) -> tuple[Request, Look, int] | None:
    """The request, its look and its rows; None when it is not of the plain kind."""
    try:
        told = _decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    inputs = told.inputs
    if len(inputs) == 1:
        tensor = inputs[0]
        shape = tensor.shape
        if not shape:
            return None
        return told, (tensor.name, tensor.datatype, *shape[1:]), shape[0]
    if not inputs or not all(tensor.shape for tensor in inputs):
        return None
    rows = inputs[0].shape[0]
    look: list[str | int] = []
    for tensor in inputs:
        if tensor.shape[0] != rows:
            return None
        look += (tensor.name, tensor.datatype, *tensor.shape[1:])
    return told, tuple(look), rows


class Shelf:
    """The looks that may be read plainly, of one Codec whose requests are batched."""

    def __init__(self, max_rows: int) -> None:
        self.max_rows = max_rows
        self._plans: dict[Look, Plan] = {}

    def find(self, body: bytes) -> Parsed | None:
        """None: the general way says what is wrong, or reads it. Raises RefusedError for values out of range."""
        if not self._plans or len(body) > MAX_BYTES:
            return None
        found = read(body)
        if found is None:
            return None
        told, look, rows = found
        plan = self._plans.get(look)
        if plan is None or not 0 <= rows <= self.max_rows or len(told.id) > MAX_ID:
            return None
        buffers = _pack(plan, told, rows)
        return None if buffers is None else (plan, rows, buffers, told.id, None)

    def learn(self, message: Any, plan: Plan) -> None:
        """After the general way let a message through: whether the next like it may be read plainly."""
        if message.keys() - {"inputs", "id"} or any(part.datatype.name not in FLOATS for part in plan.parts):
            return
        look: list[str | int] = []
        for tensor in message["inputs"]:
            if tensor.keys() != {"name", "datatype", "shape", "data"}:
                return
            look += (tensor["name"], tensor["datatype"], *tensor["shape"][1:])
        if len(self._plans) >= MAX_LOOKS:
            self._plans.clear()
        self._plans[tuple(look)] = plan


def _pack(plan: Plan, told: Request, rows: int) -> list[Buffer] | None:
    """Packed data in the wire's order; None when a length is wrong."""
    buffers: list[Buffer] = [b""] * len(plan.parts)
    for part, position, tensor in zip(plan.parts, plan.order, told.inputs, strict=True):
        data = tensor.data
        if len(data) != part.elements * rows:
            return None
        packed = array(part.datatype.array, data).tobytes()
        if part.looked_at:
            check_range(part, packed)
        buffers[position] = packed
    return buffers
