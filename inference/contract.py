"""Model contracts: the YAML file a model may come with, checked, and what it promises about every request.

The JSON form (`to_json`, kept in rows and snapshots) has the same shape as the file, with defaults written out.
"""

import math
import re
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import yaml
from msgspec import Meta

from inference.graph import Signature, Tensor
from inference.plane.datatypes import DatatypeName
from inference.plane.hooks.byte_windows import ByteWindows
from inference.plane.hooks.top_label import TopLabel

MAX_BYTES = 128 << 10
MAX_NODES = 10_000
MAX_DEPTH = 16
INFERRED_MAX_BATCH = 32

# Exporters name tensors freely (`serving_default_x:0`, `a/b`); only control characters are never meant.
Name = Annotated[str, Meta(pattern=r"^[^\x00-\x1f\x7f]{1,512}$")]
# A relative path of plain segments; `..` and hidden files cannot be written in it.
_SEGMENT = r"[A-Za-z0-9_-][A-Za-z0-9._-]*"
File = Annotated[str, Meta(pattern=rf"^{_SEGMENT}(/{_SEGMENT}){{0,7}}$", max_length=255)]
Dim = Annotated[int, Meta(ge=-1, le=1 << 40)]
Size = (
    Annotated[str, Meta(pattern=r"^[0-9]{1,12}(\.[0-9]{1,6})?(Ki|Mi|Gi|k|M|G)?$")]
    | Annotated[int, Meta(ge=0)]
)
_UNITS = {"": 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "k": 1000, "M": 10**6, "G": 10**9}


class ContractError(Exception):
    """fields: what is wrong by path, such as {"spec.inputs[0].shape": "sentence"}."""

    def __init__(self, fields: dict[str, str]) -> None:
        self.fields = fields
        super().__init__("; ".join(f"{path}: {why}" if path else why for path, why in fields.items()))


class Metadata(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,254}$")]
    version: Annotated[str, Meta(max_length=63)] = "1"


class TensorSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """shape: -1 is any size; the first dimension of a model that batches is its rows. labels: a file of the version."""

    name: Name
    datatype: DatatypeName
    shape: Annotated[tuple[Dim, ...], Meta(max_length=32)]
    minimum: float | None = None
    maximum: float | None = None
    labels: File | None = None


class Hooks(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    preprocess: ByteWindows | None = None
    postprocess: TopLabel | None = None


class Resources(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    cpu: Annotated[float, Meta(gt=0, le=1024)] = 1.0
    memory: Size = "512Mi"
    gpu_memory: Size = 0
    replicas: Annotated[int, Meta(ge=1, le=256)] = 1

    @property
    def memory_bytes(self) -> int:
        return _bytes(self.memory)

    @property
    def gpu_memory_bytes(self) -> int:
        return _bytes(self.gpu_memory)


class Batching(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """max_batch_size counts rows; 1 keeps every request alone."""

    max_batch_size: Annotated[int, Meta(ge=1, le=65536)] = 1
    max_queue_delay_ms: Literal["adaptive"] | Annotated[float, Meta(ge=0, le=10_000)] = "adaptive"


class KvCache(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    reuse: bool = True
    share: Annotated[float, Meta(ge=0, le=1)] = 0.0


class Parameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """max_concurrent_requests: in the queue and in workers together, for each plane. Timeouts begin on arrival."""

    max_concurrent_requests: Annotated[int, Meta(ge=1, le=100_000)] = 256
    inference_timeout_ms: Annotated[int, Meta(ge=1, le=3_600_000)] = 10_000
    tensor_parallel_size: Annotated[int, Meta(ge=1, le=64)] = 1
    quantization_level: Literal["none", "fp16", "int8", "int4", "fp8"] = "none"
    batching: Batching = Batching()
    kv_cache: KvCache = KvCache()
    memory_pool_mb: Annotated[int, Meta(ge=0, le=1 << 20)] = 256


class Slo(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    availability: Annotated[float, Meta(gt=0, lt=1)] = 0.999
    latency_p99_ms: Annotated[float, Meta(gt=0, le=3_600_000)] | None = None


class Lifecycle(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    on_load: File | None = None
    on_drain: File | None = None


class Spec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    platform: Literal["onnx", "onnx-genai", "remote-oip", "remote-openai", "graph"] = "onnx"
    inputs: Annotated[tuple[TensorSpec, ...], Meta(min_length=1, max_length=256)]
    outputs: Annotated[tuple[TensorSpec, ...], Meta(min_length=1, max_length=256)]
    hooks: Hooks = Hooks()
    resources: Resources = Resources()
    qos: Literal["guaranteed", "burstable", "best_effort"] = "burstable"
    parameters: Parameters = Parameters()
    slo: Slo = Slo()
    warmup: Annotated[tuple[File, ...], Meta(max_length=16)] = ()
    lifecycle: Lifecycle = Lifecycle()


class Contract(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    kw_only=True,
    rename={"api_version": "apiVersion"},
):
    api_version: Literal["pilothouse.dev/v1"]
    kind: Literal["ModelContract"]
    metadata: Metadata
    spec: Spec

    @property
    def public_inputs(self) -> tuple[TensorSpec, ...]:
        """What a client may send: the graph's inputs, and what a preprocessing step takes in the place of one."""
        hook = self.spec.hooks.preprocess
        extra = (TensorSpec(name=hook.input, datatype="BYTES", shape=(-1, 1)),) if hook else ()
        return self.spec.inputs + extra

    @property
    def public_outputs(self) -> tuple[TensorSpec, ...]:
        hook = self.spec.hooks.postprocess
        if hook is None:
            return self.spec.outputs
        return (
            *self.spec.outputs,
            TensorSpec(name=hook.label, datatype="BYTES", shape=(-1, 1), labels=hook.labels),
            TensorSpec(name=hook.score, datatype="FP32", shape=(-1, 1)),
        )

    @property
    def max_batch_size(self) -> int:
        return self.spec.parameters.batching.max_batch_size


def parse_contract(text: str | bytes) -> Contract:
    """A contract from YAML (or JSON, which is YAML). Raises ContractError."""
    if len(text) > MAX_BYTES:
        raise ContractError({"": f"a contract has at most {MAX_BYTES >> 10} KiB"})
    try:
        tree = yaml.load(text, Loader=_Loader)  # noqa: S506 - a subclass of the safe loader
    except (yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError) as error:
        # The last three are how the loader's constructors fail on a tag that does not fit its value: `!!bool maybe`.
        raise ContractError({"": f"not YAML: {' '.join(str(error).split())[:300]}"}) from None
    except RecursionError:
        raise ContractError({"": "nested too deeply"}) from None
    return from_json(tree)


def from_json(tree: Any) -> Contract:
    """A contract from its JSON form. Raises ContractError."""
    try:
        contract = msgspec.convert(tree, Contract)
    except msgspec.ValidationError as error:
        sentence, _, path = str(error).partition(" - at `$")
        raise ContractError({path.rstrip("`").lstrip("."): sentence}) from None
    except UnicodeEncodeError:
        raise ContractError({"": "holds half of a surrogate pair, which is no text"}) from None
    problems = _own_contradictions(contract)
    if problems:
        raise ContractError(problems)
    return contract


def to_json(contract: Contract) -> dict[str, Any]:
    tree = msgspec.json.decode(msgspec.json.encode(contract))  # lists, as a JSON column gives them back
    assert isinstance(tree, dict)
    return tree


def infer_contract(signature: Signature, name: str) -> Contract:
    """What can be promised from the graph alone; rows are batched when every first dimension is free."""
    batch = INFERRED_MAX_BATCH if signature.batches else 1
    return Contract(
        api_version="pilothouse.dev/v1",
        kind="ModelContract",
        metadata=Metadata(name=name),
        spec=Spec(
            inputs=tuple(_spec_of(tensor) for tensor in signature.inputs),
            outputs=tuple(_spec_of(tensor) for tensor in signature.outputs),
            parameters=Parameters(batching=Batching(max_batch_size=batch)),
        ),
    )


def check_against(contract: Contract, signature: Signature, folder: Path | None = None) -> None:
    """Raises ContractError where the contract contradicts the graph, or names files that `folder` lacks."""
    problems: dict[str, str] = {}
    spec = contract.spec
    _compare("spec.inputs", spec.inputs, signature.inputs, problems, complete=True)
    _compare("spec.outputs", spec.outputs, signature.outputs, problems, complete=False)
    if contract.max_batch_size > 1 and not signature.batches:
        problems["spec.parameters.batching.max_batch_size"] = (
            "the graph cannot batch: not every input and output has a free first dimension"
        )
    if folder is not None:
        _check_files(contract, folder, problems)
    if problems:
        raise ContractError(problems)


def output_labels(contract: Contract, folder: Path) -> dict[str, tuple[str, ...]]:
    """Labels of the classes of each output that has a file of them."""
    return {
        tensor.name: tuple(label.decode(errors="replace") for label in read_labels(folder / tensor.labels))
        for tensor in contract.spec.outputs
        if tensor.labels
    }


def read_labels(path: Path) -> list[bytes]:
    """One label a line; a last empty line does not count."""
    lines = path.read_bytes().splitlines()
    return lines[:-1] if lines and not lines[-1] else lines


def _own_contradictions(contract: Contract) -> dict[str, str]:
    problems: dict[str, str] = {}
    for path, tensors in (("spec.inputs", contract.spec.inputs), ("spec.outputs", contract.spec.outputs)):
        for index, tensor in enumerate(tensors):
            at = f"{path}[{index}]"
            if any(other.name == tensor.name for other in tensors[:index]):
                problems[f"{at}.name"] = f"`{tensor.name}` is named twice"
            ranged = [bound for bound in (tensor.minimum, tensor.maximum) if bound is not None]
            if ranged and tensor.datatype in ("BYTES", "BOOL"):
                problems[f"{at}.minimum"] = f"{tensor.datatype} has no range"
            if not all(map(math.isfinite, ranged)):
                problems[f"{at}.minimum"] = "a bound is a finite number"
            if len(ranged) == 2 and ranged[0] > ranged[1]:
                problems[f"{at}.minimum"] = "the minimum is above the maximum"
    # What nothing here would act on is refused rather than silently kept.
    if contract.spec.platform != "onnx":
        problems["spec.platform"] = "only onnx is served"
    if contract.spec.parameters.tensor_parallel_size != 1:
        problems["spec.parameters.tensor_parallel_size"] = "onnx models run on one device"
    if contract.spec.lifecycle != Lifecycle():
        problems["spec.lifecycle"] = "no lifecycle step is run"
    before, after = contract.spec.hooks.preprocess, contract.spec.hooks.postprocess
    if before is not None:
        target = _named(contract.spec.inputs, before.output)
        if target is None or target.datatype != "INT32" or target.shape[-1:] != (before.width,):
            problems["spec.hooks.preprocess.output"] = f"names no INT32 input that is {before.width} wide"
        if _named(contract.spec.inputs, before.input):
            problems["spec.hooks.preprocess.input"] = "is already an input of the graph"
    if after is not None:
        source = _named(contract.spec.outputs, after.input)
        if source is None or len(source.shape) != 2:
            problems["spec.hooks.postprocess.input"] = "names no output of two dimensions"
        for field in ("label", "score"):
            if _named(contract.spec.outputs, getattr(after, field)) or after.label == after.score:
                problems[f"spec.hooks.postprocess.{field}"] = "is already an output"
        if re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", after.labels) is None:
            problems["spec.hooks.postprocess.labels"] = "is not the name of a file in the version's folder"
    return problems


def _compare(
    path: str,
    told: tuple[TensorSpec, ...],
    real: tuple[Tensor, ...],
    problems: dict[str, str],
    *,
    complete: bool,
) -> None:
    found = {tensor.name: tensor for tensor in real}
    for index, tensor in enumerate(told):
        at, graph = f"{path}[{index}]", found.get(tensor.name)
        if graph is None:
            names = ", ".join(sorted(found))[:300]
            problems[f"{at}.name"] = f"the graph has no `{tensor.name}`; it has {names}"
        elif graph.datatype != tensor.datatype:
            problems[f"{at}.datatype"] = f"the graph says {graph.datatype}, the contract {tensor.datatype}"
        elif len(graph.shape) != len(tensor.shape) or any(
            dim not in (-1, limit) if limit != -1 else False
            for dim, limit in zip(tensor.shape, graph.shape, strict=True)
        ):
            problems[f"{at}.shape"] = f"the graph says {list(graph.shape)}, the contract {list(tensor.shape)}"
    missing = found.keys() - {tensor.name for tensor in told}
    if complete and missing:
        problems[path] = f"lacks the graph's {', '.join(sorted(missing))[:300]}"


def _check_files(contract: Contract, folder: Path, problems: dict[str, str]) -> None:
    named: dict[str, str] = {}
    spec = contract.spec
    for path, tensors in (("spec.inputs", spec.inputs), ("spec.outputs", spec.outputs)):
        named |= {f"{path}[{i}].labels": tensor.labels for i, tensor in enumerate(tensors) if tensor.labels}
    named |= {f"spec.warmup[{index}]": name for index, name in enumerate(spec.warmup)}
    if spec.hooks.postprocess:
        named["spec.hooks.postprocess.labels"] = spec.hooks.postprocess.labels
    for path, name in named.items():
        file = folder / name
        if file.is_symlink() or not file.is_file() or file.stat().st_size > 16 << 20:
            problems[path] = f"`{name}` is not a file of the version, or above 16 MiB"
    hook = spec.hooks.postprocess
    if hook is not None and "spec.hooks.postprocess.labels" not in problems:
        source = _named(spec.outputs, hook.input)
        count = len(read_labels(folder / hook.labels))
        if source is not None and source.shape[-1] != count:
            problems["spec.hooks.postprocess.labels"] = f"has {count} labels for {source.shape[-1]} scores"


def _named(tensors: tuple[TensorSpec, ...], name: str) -> TensorSpec | None:
    return next((tensor for tensor in tensors if tensor.name == name), None)


def _spec_of(tensor: Tensor) -> TensorSpec:
    return TensorSpec(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)


def _bytes(size: str | int) -> int:
    if isinstance(size, int):
        return size
    unit = size.lstrip("0123456789.")
    return int(float(size.removesuffix(unit)) * _UNITS[unit])


class _Loader(yaml.SafeLoader):
    """The safe loader without aliases (a small file could stand for a huge tree), double keys and endless files."""

    nodes = depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self.nodes += 1
        self.depth += 1
        if self.nodes > MAX_NODES or self.depth > MAX_DEPTH:
            raise yaml.YAMLError("too many nodes, or nested too deeply")
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not taken")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        keys = [child.value for child, _ in node.value]
        if len(keys) != len({str(key) for key in keys}):
            raise yaml.YAMLError("a key is written twice")
        return super().construct_mapping(node, deep=deep)
