"""What a client may wish of an output beyond its data: the best classes of it, or that it lands in shared memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from inference.plane.datatypes import BY_CODE, DATATYPES, pack_bytes
from inference.plane.packing import Buffer, bad
from inference.plane.refusals import RefusedError
from inference.plane.regions import Place, Shared, TenantRegions

if TYPE_CHECKING:
    from inference.plane.plans import Plan

# One output: datatype code, dims, packed data.
Piece = tuple[int, tuple[int, ...], Buffer]
MAX_CLASSES = 100_000
_BYTES = DATATYPES["BYTES"].code
_REGION = ("shared_memory_region", "shared_memory_byte_size", "shared_memory_offset")


@dataclass(frozen=True, slots=True)
class Wish:
    """classes: how many of the best, 0 for the data itself. region: the parameters that name shared memory, or None."""

    classes: int = 0
    region: tuple[tuple[str, Any], ...] | None = None


def wish_of(name: str, datatype: str, parameters: Mapping[str, Any]) -> Wish | None:
    """None: only the data is wanted, in the answer. Raises RefusedError."""
    region = tuple((key, parameters[key]) for key in _REGION if key in parameters) or None
    classes = parameters.get("classification", 0)
    if type(classes) is not int or classes < 0 or classes > MAX_CLASSES:
        raise bad(f"classification of output {name} must be a number of classes")
    if region is not None:
        if "shared_memory_region" not in parameters:
            raise bad(f"output {name} names no shared_memory_region")
        if classes:
            raise bad(f"output {name}: shared memory and classification exclude each other")
        if parameters.get("binary_data"):
            raise bad(f"output {name}: shared memory and binary_data exclude each other")
    if classes and (datatype in ("BYTES", "BOOL")):
        raise bad(f"output {name} is {datatype}, which has no best classes")
    return Wish(classes, region) if classes or region else None


def places(
    own: TenantRegions | None, names: Sequence[str], wishes: Sequence[Wish | None]
) -> list[Place | None]:
    """The regions that outputs go to, held from now on, also when a client unregisters one. Raises RefusedError."""
    found: list[Place | None] = []
    for name, wish in zip(names, wishes, strict=True):
        if wish is None or wish.region is None:
            found.append(None)
        elif own is None:
            raise bad(f"output {name}: client shared memory is disabled")
        else:
            found.append(Place(*own.find(f"output {name}", dict(wish.region))))
    return found


def check_whole(buffers: Sequence[Buffer]) -> None:
    """Raises RefusedError when an input's file was shortened while it was read."""
    for buffer in buffers:
        if isinstance(buffer, Shared) and buffer.broken:
            raise bad(f"region {buffer.region.name} has been shortened by its owner")


class Source(Protocol):
    """The version that answered. labels: of its outputs' classes, by name."""

    @property
    def labels(self) -> Mapping[str, Sequence[str]]: ...


def granted(
    version: Source, plan: "Plan", held: Sequence[Place | None], outputs: Sequence[Piece]
) -> list[Piece]:
    """The outputs as wished; data that went to shared memory is empty. Raises RefusedError."""
    told: list[Piece] = []
    wire = plan.wire
    for name, wish, place, piece in zip(wire.outputs, plan.wishes, held, outputs, strict=True):
        if wish is not None and wish.classes:
            labels = version.labels.get(name, ())
            piece = _best(name, wish.classes, piece, batched=wire.batched, labels=labels)
        if place is not None:
            code, dims, data = piece
            place.write(name, data)
            piece = code, dims, b""
        told.append(piece)
    return told


def _best(name: str, classes: int, piece: Piece, *, batched: bool, labels: Sequence[str]) -> Piece:
    """Triton's classification: `value:index:label` of the highest values, best first, for each row."""
    code, dims, data = piece
    datatype = BY_CODE[code]
    values: Any = np.frombuffer(data, datatype.dtype)
    if datatype.name == "BF16":
        values = (values.astype("<u4") << 16).view("<f4")
    rows = dims[0] if batched and dims else 1
    width = prod(dims[1:]) if batched else prod(dims)
    if not width:
        raise RefusedError(400, f"output {name} has no values to classify")
    count = min(classes, width)
    table = values.reshape(rows, width)
    # Stable on the negated order: of equal values the first index comes first.
    order = np.argsort(-table.astype("f8"), axis=1, kind="stable")[:, :count]
    texts = []
    for row, indices in zip(table, order, strict=True):
        for index in indices:
            text = f"{float(row[index]):f}:{index}" if row.dtype.kind == "f" else f"{row[index]}:{index}"
            texts.append(f"{text}:{labels[index]}" if index < len(labels) else text)
    return _BYTES, (rows, count) if batched else (count,), pack_bytes(text.encode() for text in texts)
