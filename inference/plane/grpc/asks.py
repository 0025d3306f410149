"""gRPC requests as the codec knows requests: the same form, the same rules, the same sentences as over HTTP."""

from array import array
from collections.abc import Sequence
from typing import Any

from google.protobuf.message import DecodeError

from inference.plane import regions
from inference.plane.datatypes import pack_bytes
from inference.plane.fields import timeout_of
from inference.plane.grpc import wire
from inference.plane.grpc.messages import CLASSES
from inference.plane.packing import Buffer, Part, bad, check_packed, check_range
from inference.plane.plans import Plan
from inference.plane.refusals import RefusedError
from inference.plane.regions import TenantRegions
from inference.plane.requests import Codec

MAX_KNOWN = 512
MAX_KNOWN_BYTES = 4096
# Triton's own parameter of requests in a stream: whether the last response is marked.
FINAL = "triton_enable_empty_final_response"
# The field of InferTensorContents that each datatype uses; FP16 and BF16 travel raw only.
_CONTENTS = {
    "BOOL": "bool_contents", "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents",
    "INT64": "int64_contents", "UINT8": "uint_contents", "UINT16": "uint_contents", "UINT32": "uint_contents",
    "UINT64": "uint64_contents", "FP32": "fp32_contents", "FP64": "fp64_contents", "BYTES": "bytes_contents",
}  # fmt: skip
_Request = CLASSES["ModelInferRequest"]


class Ask:
    """What a head says. fits: for each codec that met it the plan, the rows and the bytes of each raw tensor.

    tensors: the parsed inputs, when data may be in them; else None. shared: some input lies in shared memory.
    """

    __slots__ = ("final", "fits", "message", "number", "service", "shared", "tensors", "timeout")

    def __init__(self, request: Any, *, raw: bool) -> None:
        """Raises RefusedError."""
        self.service: str = request.model_name
        self.number = _number(request.model_version)
        parameters = _parameters(request.parameters)
        self.final = parameters.pop(FINAL, False) is True
        self.timeout = timeout_of(parameters)
        inputs = [
            {
                "name": tensor.name,
                "datatype": tensor.datatype,
                "shape": list(tensor.shape),
                "parameters": _parameters(tensor.parameters),
            }
            for tensor in request.inputs
        ]
        outputs = [
            {"name": output.name, "parameters": _parameters(output.parameters)} for output in request.outputs
        ]
        self.shared = any("shared_memory_region" in tensor["parameters"] for tensor in inputs)
        filled = next((tensor.name for tensor in request.inputs if tensor.HasField("contents")), None)
        if raw and filled is not None:
            raise bad(f"input {filled}: contents must be empty when raw_input_contents are used")
        self.tensors = None if raw else list(request.inputs)
        self.message: dict[str, Any] = {"inputs": inputs}
        if outputs:
            self.message["outputs"] = outputs
        self.fits: dict[Codec, tuple[Plan, int, tuple[int, ...]]] = {}


class Request:
    """One request, read as far as it can be without knowing its version."""

    __slots__ = ("ask", "data", "identity", "raw")

    def __init__(self, ask: Ask, identity: bytes, data: bytes, raw: Sequence[tuple[int, int]]) -> None:
        self.ask = ask
        self.identity = identity
        self.data = data
        self.raw = raw


class Reader:
    """Remembers the heads it has read; emptied when routes change, because versions mean other codecs then."""

    def __init__(self) -> None:
        self._known: dict[bytes, Ask] = {}

    def forget(self) -> None:
        self._known.clear()

    def read(self, data: bytes) -> Request:
        """Raises RefusedError."""
        found = wire.split(data)
        if found is None:
            return _unusual(data)
        identity = found.id
        ask = self._known.get(found.head)
        if ask is None:
            ask = Ask(_parsed(found.head), raw=bool(found.raw))
            if found.raw and len(found.head) <= MAX_KNOWN_BYTES:
                if len(self._known) >= MAX_KNOWN:
                    self._known.clear()
                self._known[found.head] = ask
        if identity:
            _check_identity(identity)
        return Request(ask, identity, data, found.raw)


def fit(codec: Codec, request: Request, own: TenantRegions | None) -> tuple[Plan, int, list[Buffer]]:
    """Plan, rows and packed inputs for a version. own: the tenant's shared memory, None where none is taken.

    Raises RefusedError.
    """
    ask, raw = request.ask, request.raw
    known = ask.fits.get(codec)
    if known is None:
        plan, rows = codec.fit(ask.message)
        if ask.tensors is None and not ask.shared:
            if len(raw) != len(plan.parts):
                raise bad(f"{len(raw)} raw_input_contents do not pair with {len(plan.parts)} inputs")
            sizes = tuple([part.elements * max(rows, 1) * part.datatype.size for part in plan.parts])
            if rows == 0:
                sizes = (0,) * len(sizes)
            ask.fits[codec] = plan, rows, sizes
    else:
        plan, rows, sizes = known
        if len(raw) != len(sizes):
            raise bad(f"{len(raw)} raw_input_contents do not pair with {len(sizes)} inputs")
        if len(sizes) == 1 and raw[0][1] - raw[0][0] == sizes[0] and not plan.parts[0].looked_at and sizes[0]:
            return plan, rows, [wire.cut(request.data, raw[0])]
    buffers: list[Buffer] = [b""] * len(plan.parts)
    spans = iter(raw)
    tensors = ask.tensors
    for index, (part, position) in enumerate(zip(plan.parts, plan.order, strict=True)):
        elements = part.elements * rows if rows >= 0 else part.elements
        parameters = ask.message["inputs"][index]["parameters"]
        if "shared_memory_region" in parameters:
            if tensors is not None and tensors[index].HasField("contents"):
                raise bad(f"input {part.name} has contents and a shared memory region")
            buffer: Buffer = regions.source(own, part, parameters, elements)
        elif tensors is None:
            span = next(spans, None)
            if span is None:
                raise bad(f"raw_input_contents has nothing for input {part.name}")
            buffer = wire.cut(request.data, span)
            check_packed(part, buffer, elements)
        else:
            buffer = _typed(part, tensors[index].contents, elements)
        if part.looked_at:
            check_range(part, buffer)
        buffers[position] = buffer
    if next(spans, None) is not None:
        raise bad("raw_input_contents has more entries than there are inputs without shared memory")
    return plan, rows, buffers


def _parsed(data: bytes) -> Any:
    try:
        return _Request.FromString(data)
    except DecodeError:
        raise bad("the message is no ModelInferRequest") from None


def _unusual(data: bytes) -> Request:
    """A request whose fields stand in another order; its raw tensors are copied out by the general parser."""
    request = _parsed(data)
    tensors = list(request.raw_input_contents)
    ask = Ask(request, raw=bool(tensors))
    identity = request.id.encode()
    _check_identity(identity)
    spans, at = [], 0
    for tensor in tensors:
        spans.append((at, at + len(tensor)))
        at += len(tensor)
    return Request(ask, identity, b"".join(tensors), spans)


def _check_identity(identity: bytes) -> None:
    try:
        if len(identity.decode()) > 512:
            raise bad("id must be a string of at most 512 characters")
    except UnicodeDecodeError:
        raise bad("id must be UTF-8") from None


def _number(told: str) -> int | None:
    if not told:
        return None
    if not (told.isascii() and told.isdigit()) or len(told) > 9:
        raise RefusedError(404, f"version {told[:50]} is not found: versions are numbers")
    return int(told)


def _parameters(told: Any) -> dict[str, Any]:
    """The values of a map of InferParameter. Raises RefusedError for one without a value."""
    values: dict[str, Any] = {}
    for name, parameter in told.items():
        arm = parameter.WhichOneof("choice")
        if arm is None:
            raise bad(f"parameter {name[:100]} has no value")
        values[name] = getattr(parameter, arm)
    return values


def _typed(part: Part, contents: Any, elements: int) -> bytes:
    """An input given in the typed fields of InferTensorContents. Raises RefusedError."""
    kind = part.datatype.name
    name = _CONTENTS.get(kind)
    if name is None:
        raise bad(f"input {part.name}: {kind} data travels in raw_input_contents only")
    for field, _ in contents.ListFields():
        if field.name != name:
            raise bad(f"input {part.name}: {kind} data belongs in {name}, not in {field.name}")
    values = getattr(contents, name)
    if len(values) != elements:
        raise bad(f"input {part.name} has {len(values)} values, its shape needs {elements}")
    if kind == "BYTES":
        packed = pack_bytes(values)
        check_packed(part, packed, elements)
        return packed
    try:
        return array(part.datatype.array, values).tobytes()
    except OverflowError:
        raise bad(f"input {part.name} has a value that is no {kind}") from None
