"""Warm-up samples of a version: infer bodies as a client would post them."""

from collections.abc import Sequence
from pathlib import Path

from inference.contract import Contract
from inference.plane.frames import Layout
from inference.plane.refusals import RefusedError
from inference.plane.requests import Codec
from inference.plane.runtimes import LoadError


def read_samples(contract: Contract, folder: Path) -> list[tuple[Layout, int, Sequence[memoryview]]]:
    """Raises LoadError for a sample outside the contract, OSError for none."""
    codec = Codec(contract, batched=contract.max_batch_size > 1)
    samples: list[tuple[Layout, int, Sequence[memoryview]]] = []
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
        samples.append((layout, rows, [memoryview(buffer) for buffer in buffers]))
    return samples
