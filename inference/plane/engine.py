"""Inside a worker: a loaded model with its contract's hooks, from packed tensors to packed tensors."""

import re
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np

from inference.contract import Contract, check_against, infer_contract, read_labels
from inference.graph import Signature
from inference.plane.datatypes import DATATYPES, Array, Datatype, pack_bytes, unpack_bytes
from inference.plane.frames import INLINE, Layout
from inference.plane.refusals import RefusedError
from inference.plane.runtimes import RUNTIMES, LoadError, Options, Runtime
from inference.plane.samples import made_up
from inference.plane.slots import LARGE, aligned


@dataclass(frozen=True, slots=True)
class Output:
    """offset: where in the room the data lies already, or INLINE."""

    datatype: Datatype
    dims: tuple[int, ...]
    data: memoryview | bytes
    offset: int = INLINE


@dataclass(frozen=True, slots=True)
class Timing:
    """Nanoseconds."""

    input: int
    run: int
    output: int


class Engine:
    """folder: of the version; the graph `model` may be elsewhere. `phases` are seconds.

    Raises LoadError or ContractError while it is made.
    """

    def __init__(
        self, folder: Path, model: Path, contract: Contract | None, name: str, options: Options
    ) -> None:
        self.phases: dict[str, float] = {}
        self._mark = time.perf_counter()
        platform = contract.spec.platform if contract else "onnx"
        if platform not in RUNTIMES:
            raise LoadError(f"no runtime for platform {platform} is installed here")
        self.runtime: Runtime = RUNTIMES[platform](model, options, self.phase)
        self.contract = contract or infer_contract(self.runtime.signature, name)
        check_against(self.contract, self.runtime.signature, folder)
        self._before = self.contract.spec.hooks.preprocess
        self._after = self.contract.spec.hooks.postprocess
        self._labels = read_labels(folder / self._after.labels) if self._after else []
        self._declared = {tensor.name: DATATYPES[tensor.datatype] for tensor in self.contract.public_outputs}
        self._fixed = _fixed_outputs(self.contract, self.runtime.signature)

    @property
    def on_cpu(self) -> bool:
        return self.runtime.providers[:1] == ("CPUExecutionProvider",)

    def phase(self, name: str) -> None:
        now = time.perf_counter()
        self.phases[name] = round(now - self._mark, 6)
        self._mark = now

    def first_run(self) -> None:
        """Ends the phase `first`; nothing at any later call."""
        if "first" not in self.phases:
            self.phase("first")

    def shrink(self) -> None:
        """A run that makes the runtime give unused memory back; where made-up rows do not run, nothing is given."""
        sample = made_up(self.contract, 1)
        self.runtime.shrinking(True)
        try:
            with suppress(RefusedError):
                self.run(sample.layout, sample.rows, sample.buffers)
        finally:
            self.runtime.shrinking(False)

    def run(
        self,
        layout: Layout,
        rows: int,
        buffers: Sequence[memoryview],
        room: memoryview | None = None,
    ) -> tuple[list[Output], Timing]:
        """room: shared memory where large outputs are made, when their size is known. Raises RefusedError."""
        start = time.perf_counter_ns()
        feeds = {}
        for (name, kind, dims), data in zip(layout.inputs, buffers, strict=True):
            shape = (rows, *dims) if layout.batched else dims
            target, datatype, array = self._feed(name, DATATYPES[kind], shape, data)
            feeds[target] = (datatype, array)
        wanted = self._graph_outputs(layout.outputs)
        places = self._places(wanted, layout, rows, room) if room is not None and self._fixed else {}
        fed = time.perf_counter_ns()
        try:
            if places:
                arrays = self.runtime.run_into(wanted, feeds, {name: at[1] for name, at in places.items()})
            else:
                arrays = self.runtime.run(wanted, feeds)
        except Exception as error:  # whatever a runtime raises is this request's failure, not the worker's
            raise RefusedError(500, f"the model failed: {_told(error)}") from None
        ran = time.perf_counter_ns()
        outputs = self._outputs(layout.outputs, dict(zip(wanted, arrays, strict=True)), places)
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

    def _places(
        self, wanted: Sequence[str], layout: Layout, rows: int, room: memoryview
    ) -> dict[str, tuple[int, Array]]:
        """Offset and array in the room for each large output whose shape is known before the run."""
        if not layout.batched and layout.inputs[0][2]:
            rows = layout.inputs[0][2][0]
        places: dict[str, tuple[int, Array]] = {}
        free = 0
        for name in wanted:
            inner = self._fixed.get(name)
            if inner is None:
                continue
            datatype, dims, batches = inner
            shape = (rows, *dims) if batches else dims
            size = prod(shape) * datatype.size
            if LARGE <= size <= len(room) - free:
                area = np.frombuffer(room[free : free + size], dtype=datatype.dtype).reshape(shape)
                places[name] = free, area
                free = aligned(free + size)
        return places

    def _outputs(
        self, public: Sequence[str], arrays: dict[str, Array], places: dict[str, tuple[int, Array]]
    ) -> list[Output]:
        best: dict[str, Output] = {}
        if self._after is not None and (self._after.label in public or self._after.score in public):
            labels, scores = self._after.run(arrays[self._after.input], self._labels)
            best[self._after.label] = Output(DATATYPES["BYTES"], (len(labels), 1), pack_bytes(labels))
            best[self._after.score] = _packed(DATATYPES["FP32"], scores)
        return [
            best.get(name) or _packed(self._declared[name], arrays[name], places.get(name)) for name in public
        ]


def _fixed_outputs(
    contract: Contract, signature: Signature
) -> dict[str, tuple[Datatype, tuple[int, ...], bool]]:
    """Outputs of the graph of which at most the rows are open: datatype, inner dimensions and whether rows lead.

    The rows of an output are those of the inputs only where the model batches.
    """
    fixed = {}
    for tensor in signature.outputs:
        datatype, shape = DATATYPES[tensor.datatype], tensor.shape
        batches = bool(shape) and shape[0] == -1
        if not datatype.size or -1 in shape[1:] or (batches and not signature.batches):
            continue
        if batches and contract.max_batch_size == 1:
            continue
        fixed[tensor.name] = datatype, shape[1:] if batches else shape, batches
    return fixed


def _packed(datatype: Datatype, array: Array, place: tuple[int, Array] | None = None) -> Output:
    if datatype.size and place is not None and array is place[1]:
        return Output(datatype, array.shape, array.reshape(-1).view(np.uint8).data, place[0])
    if datatype.size:
        flat = np.ascontiguousarray(array)
        return Output(datatype, array.shape, flat.reshape(-1).view(np.uint8).data if flat.size else b"")
    elements = (str(element).encode() for element in array.reshape(-1))
    return Output(datatype, array.shape, pack_bytes(elements))


def _told(error: Exception) -> str:
    """The runtime's own words without paths of the machine that built it."""
    words = " ".join(str(error).split())
    return re.sub(r"(\S*/)+\S+", "", words)[:400]
