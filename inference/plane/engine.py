"""Inside a worker: a loaded model with its contract's hooks, from packed tensors to packed tensors."""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np

from inference.contract import Contract, TensorSpec, check_against, infer_contract, read_labels
from inference.plane.datatypes import DATATYPES, Array, Datatype, pack_bytes, unpack_bytes
from inference.plane.frames import Layout
from inference.plane.refusals import RefusedError
from inference.plane.runtimes import RUNTIMES, LoadError, Options, Runtime


@dataclass(frozen=True, slots=True)
class Output:
    datatype: Datatype
    dims: tuple[int, ...]
    data: memoryview | bytes


@dataclass(frozen=True, slots=True)
class Timing:
    """Nanoseconds."""

    input: int
    run: int
    output: int


class Engine:
    """Raises LoadError or ContractError while it is made; `phases` are seconds."""

    def __init__(
        self, folder: Path, model: str, contract: Contract | None, name: str, options: Options
    ) -> None:
        self.phases: dict[str, float] = {}
        self.batch_seconds: dict[str, float] = {}
        self.row_bytes = 0
        self._mark = time.perf_counter()
        platform = contract.spec.platform if contract else "onnx"
        if platform not in RUNTIMES:
            raise LoadError(f"no runtime for platform {platform} is installed here")
        self.runtime: Runtime = RUNTIMES[platform](folder / model, options, self.phase)
        self.contract = contract or infer_contract(self.runtime.signature, name)
        check_against(self.contract, self.runtime.signature, folder)
        self._before = self.contract.spec.hooks.preprocess
        self._after = self.contract.spec.hooks.postprocess
        self._labels = read_labels(folder / self._after.labels) if self._after else []
        self._declared = {tensor.name: DATATYPES[tensor.datatype] for tensor in self.contract.public_outputs}

    def phase(self, name: str) -> None:
        now = time.perf_counter()
        self.phases[name] = round(now - self._mark, 6)
        self._mark = now

    def run(self, layout: Layout, rows: int, buffers: Sequence[memoryview]) -> tuple[list[Output], Timing]:
        """Raises RefusedError."""
        start = time.perf_counter_ns()
        feeds = {}
        for (name, kind, dims), data in zip(layout.inputs, buffers, strict=True):
            shape = (rows, *dims) if layout.batched else dims
            target, datatype, array = self._feed(name, DATATYPES[kind], shape, data)
            feeds[target] = (datatype, array)
        wanted = self._graph_outputs(layout.outputs)
        fed = time.perf_counter_ns()
        try:
            arrays = self.runtime.run(wanted, feeds)
        except Exception as error:  # whatever a runtime raises is this request's failure, not the worker's
            raise RefusedError(500, f"the model failed: {_told(error)}") from None
        ran = time.perf_counter_ns()
        outputs = self._outputs(layout.outputs, dict(zip(wanted, arrays, strict=True)))
        return outputs, Timing(fed - start, ran - fed, time.perf_counter_ns() - ran)

    def _feed(
        self, name: str, datatype: Datatype, shape: tuple[int, ...], data: memoryview
    ) -> tuple[str, Datatype, Array]:
        if datatype.size:
            return name, datatype, np.frombuffer(data, dtype=datatype.dtype).reshape(shape)
        try:
            elements = unpack_bytes(data, prod(shape))
            if self._before is not None and name == self._before.input:
                return self._before.output, DATATYPES["INT32"], self._before.run(elements)
            texts = np.empty(len(elements), dtype=object)
            texts[:] = [element.decode() for element in elements]
        except ValueError as error:
            raise RefusedError(400, f"input {name}: {error}") from None
        return name, datatype, texts.reshape(shape)

    def _graph_outputs(self, public: Sequence[str]) -> list[str]:
        if self._after is None:
            return list(public)
        added = {self._after.label, self._after.score}
        names = [name for name in public if name not in added]
        if len(names) < len(public) and self._after.input not in names:
            names.append(self._after.input)
        return names

    def _outputs(self, public: Sequence[str], arrays: dict[str, Array]) -> list[Output]:
        best: dict[str, Output] = {}
        if self._after is not None and (self._after.label in public or self._after.score in public):
            labels, scores = self._after.run(arrays[self._after.input], self._labels)
            best[self._after.label] = Output(DATATYPES["BYTES"], (len(labels), 1), pack_bytes(labels))
            best[self._after.score] = _packed(DATATYPES["FP32"], scores)
        return [best.get(name) or _packed(self._declared[name], arrays[name]) for name in public]

    def warm_up(self, samples: Sequence[tuple[Layout, int, Sequence[memoryview]]]) -> tuple[bool, str]:
        """First runs, before a client pays for them: the contract's samples, else made-up rows.

        Returns whether joined rows give the answers of single ones, and a note when that could not be tried.
        """
        for layout, rows, buffers in samples:
            try:
                self.run(layout, rows, buffers)
            except RefusedError as error:
                raise LoadError(f"a warm-up sample fails: {error}") from None
        if samples:
            self.phase("first")
        single, double = self._made_up(1), self._made_up(2)
        try:
            one = self._run_made_up(single)
            if not samples:
                self.phase("first")
            if self.contract.max_batch_size == 1:
                self.phase("warmup")
                return True, ""
            two = self._run_made_up(double)
            self.phase("warmup")
        except RefusedError as error:
            self.phase("warmup")
            return True, f"made-up rows do not run, so batching was not tried at load: {error}"
        return _same_first_row(one, two), ""

    def _made_up(self, rows: int) -> dict[str, Array]:
        return {tensor.name: _made_up(tensor, rows) for tensor in self.contract.spec.inputs}

    def _run_made_up(self, arrays: dict[str, Array]) -> list[Output]:
        kinds = {tensor.name: tensor.datatype for tensor in self.contract.spec.inputs}
        layout = Layout(
            id=0,
            batched=False,
            inputs=tuple((name, kinds[name], tuple(array.shape)) for name, array in arrays.items()),
            outputs=tuple(tensor.name for tensor in self.contract.spec.outputs),
        )
        packed = [_packed(DATATYPES[kinds[name]], array).data for name, array in arrays.items()]
        return self.run(layout, -1, [memoryview(data) for data in packed])[0]


def _made_up(tensor: TensorSpec, rows: int) -> Array:
    """Rows that differ; the first row is the same for every count. Small numbers, inside the contract's range."""
    shape = tuple(dim if dim >= 0 else 8 for dim in tensor.shape)
    if tensor.shape[:1] == (-1,):
        shape = (rows, *shape[1:])
    if tensor.datatype == "BYTES":
        texts = np.empty(shape, dtype=object)
        texts.fill("a")
        return texts
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


def _packed(datatype: Datatype, array: Array) -> Output:
    if datatype.size:
        flat = np.ascontiguousarray(array)
        return Output(datatype, array.shape, flat.reshape(-1).view(np.uint8).data if flat.size else b"")
    elements = (str(element).encode() for element in array.reshape(-1))
    return Output(datatype, array.shape, pack_bytes(elements))


def _told(error: Exception) -> str:
    """The runtime's own words without paths of the machine that built it."""
    words = " ".join(str(error).split())
    return re.sub(r"(\S*/)+\S+", "", words)[:400]
