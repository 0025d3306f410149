"""What an ONNX file says of itself, read where it can do no harm: a disposable process with limits.

`read_signature` is the way in. The file is hostile until then: size, depth, counts, operator domains and external data
are checked before anything else of the product touches it.
"""

import re
import resource
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from inference.plane.datatypes import BY_ONNX, DatatypeName

if TYPE_CHECKING:
    import onnx

MODEL_FILE = "model.onnx"
MAX_MODEL_BYTES = 2 << 30  # protobuf's own limit for one message
MAX_NODES = 500_000
MAX_DEPTH = 8
MAX_TENSORS = 256
MAX_DIM = 2**31 - 1
READ_SECONDS = 60
# com.ms.internal.nhwc is what ONNX Runtime writes into its own optimised files.
DOMAINS = {"", "ai.onnx", "ai.onnx.ml", "com.microsoft", "com.ms.internal.nhwc"}
_PLAIN_NAME = re.compile(r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,254}$")


class GraphError(Exception):
    """The file is not a model that may be served; the message is a sentence for a person."""


class Tensor(msgspec.Struct, frozen=True):
    """shape: -1 where the graph leaves the size open."""

    name: str
    datatype: DatatypeName
    shape: tuple[int, ...]


class Signature(msgspec.Struct, frozen=True):
    """size: bytes of the graph and its external data. batches: rows of several requests may be joined.

    quantization: none, fp16, bf16, int8 (QDQ or integer operators), int8_dynamic, int4 or fp8.
    """

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    opset: int
    parameters: int
    size: int
    quantization: str
    batches: bool
    nodes: int
    domains: tuple[str, ...]
    producer: str = ""


def read_signature(folder: Path, model: str = MODEL_FILE) -> Signature:
    """The signature of folder/model. Raises GraphError."""
    path = folder / model
    try:
        size = _regular(path).st_size
    except OSError as error:
        raise GraphError(f"{model} cannot be read: {error.strerror}") from None
    if not 0 < size <= MAX_MODEL_BYTES:
        raise GraphError(f"{model} has {size} bytes; a graph has 1 to {MAX_MODEL_BYTES >> 30} GiB")
    # A bare environment: what parses hostile bytes knows no secret of ours.
    root = str(Path(__file__).resolve().parent.parent)
    command = [sys.executable, "-m", "inference.graph", str(path.resolve())]
    try:
        done = subprocess.run(
            command,
            cwd=root,
            env={"PYTHONPATH": root},
            capture_output=True,
            timeout=READ_SECONDS * 2,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise GraphError(f"{model} took longer than {READ_SECONDS * 2} s to read") from None
    if done.returncode == 0:
        return msgspec.json.decode(done.stdout, type=Signature)
    if done.returncode == 1:
        raise GraphError(done.stderr.decode(errors="replace").strip()[-500:])
    raise GraphError(f"{model} needs more memory or time to read than a model of its size may take")


def external_files(path: Path) -> tuple[str, ...]:
    """Names of the files beside `path` that hold its weights; only for a process that may die of it.

    Raises GraphError.
    """
    import onnx
    from google.protobuf.message import DecodeError

    try:
        model = onnx.load_model(str(path), format="protobuf", load_external_data=False)
    except (DecodeError, ValueError, TypeError):
        raise GraphError(f"{path.name} is not an ONNX file") from None
    tally = _Tally(path.parent, set())
    tally.walk(model)
    return tuple(sorted(tally.external))


def signature_to_json(signature: Signature) -> dict[str, Any]:
    tree = msgspec.json.decode(msgspec.json.encode(signature))  # lists, as a JSON column gives them back
    assert isinstance(tree, dict)
    return tree


def signature_from_json(tree: Any) -> Signature:
    """Raises ValueError."""
    return msgspec.convert(tree, Signature)


def _regular(path: Path) -> Any:
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode):
        raise GraphError(f"{path.name} is not a regular file")
    return found


def _main(path: Path) -> int:
    size = _regular(path).st_size
    memory = (2 << 30) + 4 * size
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (READ_SECONDS, READ_SECONDS))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        signature = _inspect(path)
    except GraphError as error:
        sys.stderr.write(str(error))
        return 1
    sys.stdout.buffer.write(msgspec.json.encode(signature))
    return 0


def _inspect(path: Path) -> Signature:
    import onnx
    from google.protobuf.message import DecodeError

    try:
        model = onnx.load_model(str(path), format="protobuf", load_external_data=False)
    except (DecodeError, ValueError, TypeError):
        raise GraphError(f"{path.name} is not an ONNX file") from None
    if not model.HasField("graph") or not model.opset_import or not model.graph.output:
        raise GraphError(f"{path.name} is not an ONNX model: it has no graph, operator set or output")
    domains = {entry.domain for entry in model.opset_import}
    domains |= {entry.domain for function in model.functions for entry in function.opset_import}
    own = {function.domain for function in model.functions}
    tally = _Tally(path.parent, own)
    tally.walk(model)
    strangers = (domains | tally.domains) - DOMAINS - own
    if strangers:
        raise GraphError(
            f"{path.name} needs operators of {', '.join(sorted(strangers))[:200]}, which are not installed"
        )
    for entry in (
        *model.opset_import,
        *(one for function in model.functions for one in function.opset_import),
    ):
        _check_opset(entry)
    try:
        onnx.checker.check_model(str(path))
    except onnx.checker.ValidationError as error:
        raise GraphError(f"{path.name} is not a valid model: {' '.join(str(error).split())[:300]}") from None
    given = {tensor.name for tensor in model.graph.initializer}
    inputs = tuple(_tensor(value, "input") for value in model.graph.input if value.name not in given)
    outputs = tuple(_tensor(value, "output") for value in model.graph.output)
    if not inputs or len(inputs) > MAX_TENSORS or len(outputs) > MAX_TENSORS:
        raise GraphError(
            f"{path.name} has {len(inputs)} inputs and {len(outputs)} outputs, not 1 to {MAX_TENSORS}"
        )
    opset = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0)
    return Signature(
        inputs=inputs,
        outputs=outputs,
        opset=opset,
        parameters=tally.parameters,
        size=path.stat().st_size + sum(tally.external.values()),
        quantization=tally.quantization(),
        batches=_batches(model),
        nodes=tally.nodes,
        domains=tuple(sorted((domains | tally.domains) - {""})),
        producer=f"{model.producer_name} {model.producer_version}".strip()[:100],
    )


def _tensor(value: "onnx.ValueInfoProto", role: str) -> Tensor:
    import onnx

    if not value.type.HasField("tensor_type"):
        raise GraphError(
            f"{role} {value.name[:100]} is no tensor: sequences, maps and sparse tensors are not served"
        )
    kind = value.type.tensor_type
    name = onnx.helper.tensor_dtype_to_string(kind.elem_type).removeprefix("TensorProto.").lower()
    datatype = BY_ONNX.get(name)
    if datatype is None:
        raise GraphError(f"{role} {value.name[:100]} has datatype {name}, which the protocol does not know")
    if not kind.HasField("shape"):
        raise GraphError(f"{role} {value.name[:100]} has no declared rank")
    dims = tuple(dim.dim_value if dim.HasField("dim_value") else -1 for dim in kind.shape.dim)
    for index, dim in enumerate(dims):
        if not -1 <= dim <= MAX_DIM:
            raise GraphError(
                f"{role} {value.name[:100]}: shape[{index}] is {dim}; a size is 0 to {MAX_DIM}, or open"
            )
    return Tensor(name=value.name, datatype=datatype.name, shape=dims)


def _check_opset(entry: "onnx.OperatorSetIdProto") -> None:
    """onnxruntime loads no operator set that is newer than its release of ONNX, which is the installed one's."""
    import onnx

    newest = {
        "": onnx.defs.onnx_opset_version(),
        "ai.onnx": onnx.defs.onnx_opset_version(),
        "ai.onnx.ml": onnx.helper.VERSION_TABLE[-1][3],
        "com.microsoft": 1,
        "com.ms.internal.nhwc": onnx.defs.onnx_opset_version(),
    }.get(entry.domain)
    if newest is not None and not 1 <= entry.version <= newest:
        raise GraphError(
            f"opset_import: {entry.domain or 'ai.onnx'} is {entry.version}; 1 to {newest} are known here"
        )


def _batches(model: "onnx.ModelProto") -> bool:
    """Every first dimension is open, and none is known to be another one than the rest."""
    given = {tensor.name for tensor in model.graph.initializer}
    values = [value for value in model.graph.input if value.name not in given] + list(model.graph.output)
    names = set()
    for value in values:
        dims = value.type.tensor_type.shape.dim
        if not dims or dims[0].HasField("dim_value"):
            return False
        names.add(dims[0].dim_param)
    named = {name for name in names if name and not name.startswith("unk__")}
    return len(named) <= 1


class _Tally:
    """One walk over graph, subgraphs and functions: counts, domains and external data, each bounded."""

    def __init__(self, folder: Path, own: set[str]) -> None:
        self.folder = folder
        self.own = own
        self.nodes = 0
        self.parameters = 0
        self.domains: set[str] = set()
        self.operators: set[str] = set()
        self.weights: dict[int, int] = {}
        self.external: dict[str, int] = {}

    def walk(self, model: "onnx.ModelProto") -> None:
        self._graph(model.graph, 0)
        for function in model.functions:
            self._nodes(function.node, 0)
        for training in model.training_info:
            self._graph(training.initialization, 0)
            self._graph(training.algorithm, 0)

    def quantization(self) -> str:
        import onnx

        kinds = onnx.TensorProto
        if (
            self.operators & {"MatMulNBits", "GatherBlockQuantized"}
            or self._share(kinds.INT4, kinds.UINT4) > 0
        ):
            return "int4"
        if any(self.weights.get(kind) for kind in range(kinds.FLOAT8E4M3FN, kinds.FLOAT8E5M2FNUZ + 1)):
            return "fp8"
        if self.operators & {"DynamicQuantizeLinear", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM"}:
            return "int8_dynamic"
        integer = {
            "QLinearConv",
            "QLinearMatMul",
            "ConvInteger",
            "MatMulInteger",
            "QuantizeLinear",
            "DequantizeLinear",
        }
        if self.operators & integer:
            return "int8"
        if self._share(kinds.FLOAT16) > 0.5:
            return "fp16"
        return "bf16" if self._share(kinds.BFLOAT16) > 0.5 else "none"

    def _share(self, *kinds: int) -> float:
        total = sum(self.weights.values())
        return sum(self.weights.get(kind, 0) for kind in kinds) / total if total else 0.0

    def _graph(self, graph: "onnx.GraphProto", depth: int) -> None:
        if depth > MAX_DEPTH:
            raise GraphError(f"graphs are nested deeper than {MAX_DEPTH}")
        for tensor in self._tensors_of(graph):
            self._tensor(tensor)
        self._nodes(graph.node, depth)

    @staticmethod
    def _tensors_of(graph: "onnx.GraphProto") -> Iterator["onnx.TensorProto"]:
        yield from graph.initializer
        for sparse in graph.sparse_initializer:
            yield sparse.values
            yield sparse.indices

    def _nodes(self, nodes: Any, depth: int) -> None:
        self.nodes += len(nodes)
        if self.nodes > MAX_NODES:
            raise GraphError(f"the graph has more than {MAX_NODES} nodes")
        for node in nodes:
            self.domains.add(node.domain)
            self.operators.add(node.op_type)
            for attribute in node.attribute:
                self._attribute(attribute, depth)

    def _attribute(self, attribute: "onnx.AttributeProto", depth: int) -> None:
        for tensor in (
            attribute.t,
            *attribute.tensors,
            attribute.sparse_tensor.values,
            attribute.sparse_tensor.indices,
        ):
            self._tensor(tensor)
        for sparse in attribute.sparse_tensors:
            self._tensor(sparse.values)
            self._tensor(sparse.indices)
        graphs = [attribute.g] if attribute.HasField("g") else []
        for graph in (*graphs, *attribute.graphs):
            self._graph(graph, depth + 1)

    def _tensor(self, tensor: "onnx.TensorProto") -> None:
        count = 1
        for dim in tensor.dims:
            if dim < 0:
                raise GraphError(f"tensor {tensor.name[:100]} has a negative dimension")
            count *= dim
        if tensor.dims:
            self.parameters += count
            self.weights[tensor.data_type] = self.weights.get(tensor.data_type, 0) + count
        if tensor.data_location == tensor.EXTERNAL or tensor.external_data:
            self._external(tensor)

    def _external(self, tensor: "onnx.TensorProto") -> None:
        told = {entry.key: entry.value for entry in tensor.external_data}
        unknown = told.keys() - {"location", "offset", "length", "checksum"}
        location = told.get("location", "")
        if unknown or len(told) != len(tensor.external_data) or not _PLAIN_NAME.match(location):
            raise GraphError(f"tensor {tensor.name[:100]} keeps its data outside the model's folder")
        file = self.folder / location
        try:
            found = _regular(file)
        except OSError:
            raise GraphError(f"the external data file {location} is missing") from None
        if found.st_nlink != 1:
            raise GraphError(f"{location} is linked from elsewhere")
        offset, length = _number(told.get("offset", "0")), _number(told.get("length", "0"))
        if offset + length > found.st_size:
            raise GraphError(f"{location} is shorter than the graph says")
        self.external[location] = found.st_size


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise GraphError("an external data offset or length is not a number")
    return int(text)


if __name__ == "__main__":
    sys.exit(_main(Path(sys.argv[1])))
