"""How a request of one look is read and answered: studied once, used for all that look the same."""

from dataclasses import dataclass

from inference.plane.datatypes import Datatype
from inference.plane.extensions import Wish
from inference.plane.packing import Buffer, Part


@dataclass(eq=False, slots=True)
class Wire:
    """What requests must share to be joined; compared by identity, one for each combination in a Codec.

    dims: without rows when the model batches, else whole shapes.
    """

    batched: bool
    inputs: tuple[tuple[str, Datatype, tuple[int, ...]], ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """How to read a request of this look and how to answer it. binary, heads: for each output of the wire.

    binary is None for data that goes into the client's shared memory.
    wishes: the same, where an output is wished as classes or in shared memory; else empty.
    """

    wire: Wire
    order: tuple[int, ...]
    parts: tuple[Part, ...]
    binary: tuple[bool | None, ...]
    heads: tuple[bytes, ...]
    wishes: tuple[Wish | None, ...] = ()


# Plan, rows (-1 when the model does not batch), buffers in the wire's order, the client's id ("" for none) and the
# client's timeout in seconds, if any. A tuple, because one is made for each request.
Parsed = tuple[Plan, int, list[Buffer], str, float | None]
