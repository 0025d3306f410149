"""Inputs to try a model with: the contract's warm-up samples (bodies as a client would post them), or made-up rows."""

import json
from collections.abc import Iterator, Sequence
from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy as np

from inference.contract import Contract, TensorSpec, from_json, parse_contract
from inference.plane.datatypes import DATATYPES, Array, bytes_offsets, pack_bytes
from inference.plane.frames import Layout
from inference.plane.refusals import RefusedError
from inference.plane.requests import Codec
from inference.plane.runtimes import LoadError

OPEN_SIZE = 8  # of a dimension that graph and contract leave open


class Sample(NamedTuple):
    """What a RUN frame carries. rows: -1 where the layout has the whole shape."""

    layout: Layout
    rows: int
    buffers: Sequence[memoryview]


def read_contract(given: Path | None, folder: Path) -> Contract | None:
    """The contract at `given`, else the one in the version's folder, if any. Raises ContractError, OSError."""
    for path in [given] if given else [folder / "contract.json", folder / "contract.yaml"]:
        if given or path.is_file():
            raw = path.read_bytes()
            return from_json(json.loads(raw)) if path.suffix == ".json" else parse_contract(raw)
    return None


def read_samples(contract: Contract, folder: Path) -> list[Sample]:
    """Raises LoadError for a sample outside the contract, OSError for none."""
    codec = Codec(contract, batched=contract.max_batch_size > 1)
    samples: list[Sample] = []
    for name in contract.spec.warmup:
        try:
            plan, rows, buffers, _, _ = codec.parse((folder / name).read_bytes(), None)
        except RefusedError as error:
            raise LoadError(f"warm-up sample {name}: {error}") from None
        wire = plan.wire
        layout = Layout(
            id=0,
            batched=wire.batched,
            inputs=tuple((tensor, datatype.name, dims) for tensor, datatype, dims in wire.inputs),
            outputs=wire.outputs,
        )
        samples.append(Sample(layout, rows, [memoryview(buffer) for buffer in buffers]))
    return samples


def buckets(most: int) -> Iterator[int]:
    """1, 2, 4, ... and `most` itself."""
    rows = 1
    while rows < most:
        yield rows
        rows *= 2
    yield most


def stretched(sample: Sample, rows: int) -> Sample:
    """The sample's rows again and again until there are `rows` of them; only where the layout is batched."""
    layout, have, buffers = sample
    times = -(-rows // have)
    result = []
    for (_, kind, dims), data in zip(layout.inputs, buffers, strict=True):
        size = DATATYPES[kind].size * prod(dims)
        repeated = bytes(data) * times
        end = size * rows or bytes_offsets(repeated, [rows * prod(dims)])[-1]
        result.append(memoryview(repeated[:end]))
    return Sample(layout, rows, result)


def made_up(contract: Contract, rows: int) -> Sample:
    """Small numbers inside the contract's range. Rows differ; the first one is the same for every count."""
    tensors = contract.spec.inputs
    arrays = [_values(tensor, rows) for tensor in tensors]
    layout = Layout(
        id=0,
        batched=False,
        inputs=tuple(
            (tensor.name, tensor.datatype, tuple(array.shape))
            for tensor, array in zip(tensors, arrays, strict=True)
        ),
        outputs=tuple(tensor.name for tensor in contract.spec.outputs),
    )
    buffers = [
        memoryview(np.ascontiguousarray(array).tobytes())
        if DATATYPES[tensor.datatype].size
        else memoryview(pack_bytes([b"a"] * array.size))
        for tensor, array in zip(tensors, arrays, strict=True)
    ]
    return Sample(layout, -1, buffers)


def _values(tensor: TensorSpec, rows: int) -> Array:
    shape = tuple(dim if dim >= 0 else OPEN_SIZE for dim in tensor.shape)
    if tensor.shape[:1] == (-1,):
        shape = (rows, *shape[1:])
    if tensor.datatype == "BYTES":
        return np.zeros(shape, dtype="?")  # only its size counts
    low = 0.0 if tensor.minimum is None else tensor.minimum
    high = low + 1.0 if tensor.maximum is None else min(tensor.maximum, low + 1.0)
    values = np.random.default_rng(7).random(shape) * (high - low) + low
    datatype = DATATYPES[tensor.datatype]
    if datatype.name == "BF16":
        return (values.astype("<f4").view("<u4") >> 16).astype("<u2")
    return (
        np.rint(values).astype(datatype.dtype)
        if datatype.dtype[1:2] in "iu"
        else values.astype(datatype.dtype)
    )
