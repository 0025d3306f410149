"""First runs of a loaded model, before a client pays for them: every batch size once, measured."""

import time
from collections.abc import Callable, Sequence

import numpy as np

from inference.contract import Contract
from inference.plane.engine import Engine, Output
from inference.plane.memory import private_bytes
from inference.plane.refusals import RefusedError
from inference.plane.runtimes import LoadError
from inference.plane.samples import Sample, buckets, made_up, stretched
from inference.plane.warmth import Warmth

# On a CPU a first run of a new size costs little more than a later one: what does not fit here is only not measured.
CPU_SECONDS = 1.0
# A device searches algorithms and captures graphs for each size, which no client should wait for.
DEVICE_SECONDS = 60.0


def warm_up(
    engine: Engine, samples: Sequence[Sample], *, limit_seconds: float, known: Warmth | None = None
) -> Warmth:
    """Raises LoadError when a sample fails. known: what an earlier process found with the same files.

    The engine's phases `first` and `warmup` are the first run alone and the rest.
    """
    warmth = Warmth()
    for layout, rows, buffers in samples:
        try:
            engine.run(layout, rows, buffers)
        except RefusedError as error:
            raise LoadError(f"a warm-up sample fails: {error}") from None
        engine.first_run()
    contract = engine.contract
    most = contract.max_batch_size
    try:
        one = _run(engine, made_up(contract, 1))
        engine.first_run()
        if known is not None:
            warmth.batch_safe = known.batch_safe
        elif most > 1:
            warmth.batch_safe = _same_first_row(one, _run(engine, made_up(contract, 2)))
    except RefusedError as error:
        engine.first_run()
        if most > 1:
            warmth.note = f"made-up rows do not run, so batching was not tried at load: {error}"
    make = _maker(contract, samples)
    if known is None or engine.phases["first"] < limit_seconds:
        _measure(engine, make, most if warmth.batch_safe else 1, limit_seconds, warmth)
    for rows, seconds in known.seconds.items() if known else ():
        warmth.seconds.setdefault(rows, seconds)
    if known is not None:
        warmth.row_bytes = max(warmth.row_bytes, known.row_bytes)
    engine.phase("warmup")
    return warmth


def _maker(contract: Contract, samples: Sequence[Sample]) -> Callable[[int], Sample]:
    """Rows of the first sample that has some, else made-up ones."""
    for sample in samples:
        if sample.layout.batched and sample.rows > 0:
            return lambda rows: stretched(sample, rows)
    if samples and contract.max_batch_size == 1:
        return lambda rows: samples[0]
    return lambda rows: made_up(contract, rows)


def _measure(
    engine: Engine, make: Callable[[int], Sample], most: int, limit_seconds: float, warmth: Warmth
) -> None:
    began = time.perf_counter()
    base, last, largest = private_bytes(), 0.0, 0
    for rows in buckets(most):
        left = limit_seconds - (time.perf_counter() - began)
        if rows > 1 and left < 4 * last:  # twice the rows, two runs
            break
        try:
            sample = make(rows)
            first = _timed(engine, sample)
            again = _timed(engine, sample)
            if again < left / 8:
                again = min(again, _timed(engine, sample))
        except RefusedError:
            break
        last = min(first, again)
        warmth.seconds[rows] = last
        largest = rows
    if largest:
        warmth.row_bytes = max(0, private_bytes() - base) // largest


def _timed(engine: Engine, sample: Sample) -> float:
    timing = engine.run(sample.layout, sample.rows, sample.buffers)[1]
    return (timing.input + timing.run + timing.output) / 1e9


def _run(engine: Engine, sample: Sample) -> list[Output]:
    return engine.run(sample.layout, sample.rows, sample.buffers)[0]


def _same_first_row(one: list[Output], two: list[Output]) -> bool:
    for single, double in zip(one, two, strict=True):
        if single.dims[:1] != (1,) or double.dims[:1] != (2,) or single.dims[1:] != double.dims[1:]:
            return False
        if not single.datatype.size or single.datatype.name == "BF16":
            continue
        first = np.frombuffer(single.data, dtype=single.datatype.dtype).astype("f8")
        joined = np.frombuffer(double.data, dtype=double.datatype.dtype).astype("f8")[: first.size]
        if not np.allclose(first, joined, rtol=1e-2, atol=1e-3, equal_nan=True):
            return False
    return True
