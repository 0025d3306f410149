"""ONNX Runtime, on the provider asked for and no other."""

import ctypes
import importlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from inference.graph import Signature, Tensor
from inference.plane.datatypes import BY_ONNX, Array, Datatype
from inference.plane.runtimes import LoadError, Options, without_folders

# Neither wheel of onnxruntime has types for what it exports.
onnxruntime: Any = importlib.import_module("onnxruntime")

PROVIDERS = {
    "cpu": "CPUExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
    "xnnpack": "XnnpackExecutionProvider",
    "qnn": "QNNExecutionProvider",
    "cann": "CANNExecutionProvider",
    "rocm": "ROCMExecutionProvider",
    "directml": "DmlExecutionProvider",
    "coreml": "CoreMLExecutionProvider",
}

WEIGHTS_FILE = "weights.bin"
# Weights beside the graph, in the order in which kernels read them: processes map them and share the pages.
_EXTERNAL = {
    "session.optimized_model_external_initializers_file_name": WEIGHTS_FILE,
    "session.optimized_model_external_initializers_min_size_in_bytes": "1024",
    "session.save_external_prepacked_constant_initializers": "1",
}
_BINDINGS = 64

_NEED_CUDA = frozenset({"CUDAExecutionProvider", "TensorrtExecutionProvider"})


def load(path: Path, options: Options, phase: Callable[[str], None]) -> "OnnxRuntime":
    """Raises LoadError. Calls phase(name) as each of read, session and provider ends."""
    name = PROVIDERS.get(options.provider.lower(), options.provider)
    installed = onnxruntime.get_available_providers()
    if name not in installed:
        raise LoadError(
            f"provider {options.provider} was asked for, but this onnxruntime has only {', '.join(installed)}"
        )
    if name in _NEED_CUDA:
        onnxruntime.preload_dlls(directory="")  # NVIDIA's own wheels beside ours; else those of the system
    _prefetch(path, whole_folder=not options.mapped)
    phase("read")
    try:
        session = onnxruntime.InferenceSession(
            str(path),
            session_options(options, name),
            providers=[(name, provider_options(options, name))],
            enable_fallback=0,
        )
    except Exception as error:  # pybind raises many classes of its own, none of them public
        why = " ".join(without_folders(str(error), path.parent).split())[:400]
        raise LoadError(f"onnxruntime cannot load {path.name} on {name}: {why}") from None
    phase("session")
    verify(name, session.get_providers())
    runtime = OnnxRuntime(session)
    phase("provider")
    return runtime


def verify(wanted: str, got: Sequence[str]) -> None:
    """onnxruntime lists and accepts a provider whose libraries are missing, then quietly uses the CPU."""
    if not got or got[0] != wanted:
        raise LoadError(
            f"provider {wanted} was asked for, but the session runs on {', '.join(got) or 'none'}"
        )


def session_options(options: Options, provider: str) -> Any:
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = max(1, options.threads)
    settings.inter_op_num_threads = 1
    settings.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    settings.log_severity_level = 3
    if options.mapped:
        # It was optimised when it was saved, for this very kind of CPU and release.
        settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    if options.save_to is not None:
        settings.optimized_model_filepath = str(options.save_to)
        for entry, value in _EXTERNAL.items():
            settings.add_session_config_entry(entry, value)
    # Patterns pay when shapes repeat; with free dimensions they only keep memory.
    settings.enable_mem_pattern = options.fixed_shapes
    # A spinning thread takes the core from the plane next to it: half the neighbours' rate, measured.
    settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
    settings.add_session_config_entry("session.inter_op.allow_spinning", "0")
    if provider != "CPUExecutionProvider":
        settings.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    return settings


def provider_options(options: Options, provider: str) -> dict[str, str]:
    if provider == "CUDAExecutionProvider":
        settings = {
            "device_id": str(options.gpu_id),
            "arena_extend_strategy": "kSameAsRequested",
            # The default, EXHAUSTIVE, spends 300 to 1300 ms on each new shape.
            "cudnn_conv_algo_search": "HEURISTIC",
        }
        if options.gpu_memory_bytes:
            settings["gpu_mem_limit"] = str(options.gpu_memory_bytes)
        return settings
    if provider == "TensorrtExecutionProvider":
        return {"device_id": str(options.gpu_id)}
    return {}


class OnnxRuntime:
    def __init__(self, session: Any) -> None:
        self._session = session
        self._run = session.run
        self._usual, self._shrinking = _run_options(), _run_options()
        self._shrinking.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        self._options = self._usual
        self._bindings: dict[Any, Any] = {}
        self.providers: tuple[str, ...] = tuple(session.get_providers())
        self.signature = _signature(session)
        kinds = [*self.signature.inputs, *self.signature.outputs]
        self._words = any(tensor.datatype == "BF16" for tensor in kinds)

    def run(self, outputs: Sequence[str], feeds: dict[str, tuple[Datatype, Array]]) -> list[Array]:
        if self._words:
            return self._run_words(outputs, feeds)
        given = {name: array for name, (_, array) in feeds.items()}
        arrays: list[Array] = self._run(outputs, given, self._options)
        return arrays

    def run_into(
        self,
        outputs: Sequence[str],
        feeds: dict[str, tuple[Datatype, Array]],
        targets: dict[str, Array],
    ) -> list[Array]:
        if self._words or not all(kind.size for kind, _ in feeds.values()):
            return self.run(outputs, feeds)
        given = [
            (name, array.ctypes.data, array.shape, array.dtype.type) for name, (_, array) in feeds.items()
        ]
        made = [(name, array.ctypes.data, array.shape, array.dtype.type) for name, array in targets.items()]
        rest = [name for name in outputs if name not in targets]
        key = (*given, *made)
        # A binding keeps what the runtime itself made for it, so one with such outputs serves only once.
        binding = None if rest else self._bindings.get(key)
        if binding is None:
            binding = self._bind(given, made, rest)
            if not rest:
                self._remember(key, binding)
        try:
            self._session.run_with_iobinding(binding, self._options)
        except Exception:  # pybind's own classes; perhaps only the shape was another than the graph promised
            self._bindings.clear()
            if self._options.terminate:
                raise
            return self.run(outputs, feeds)
        if rest:
            targets = targets | dict(zip(rest, map(_numpy, binding.get_outputs()[len(made) :]), strict=True))
        return [targets[name] for name in outputs]

    def _remember(self, key: Any, binding: Any) -> None:
        """Addresses in a slab come again and again, so a binding is made once for each set of them."""
        if len(self._bindings) >= _BINDINGS:
            self._bindings.clear()
        self._bindings[key] = binding

    def _bind(self, given: list[Any], made: list[Any], rest: list[str]) -> Any:
        binding = self._session.io_binding()
        for name, address, shape, kind in given:
            binding.bind_input(name, "cpu", 0, kind, shape, address)
        for name, address, shape, kind in made:
            binding.bind_output(name, "cpu", 0, kind, shape, address)
        for name in rest:
            binding.bind_output(name, "cpu")
        return binding

    def shrinking(self, on: bool) -> None:
        self._options = self._shrinking if on else self._usual

    def stop(self) -> None:
        self._options.terminate = True

    def resume(self) -> None:
        self._options.terminate = False

    def _run_words(self, outputs: Sequence[str], feeds: dict[str, tuple[Datatype, Array]]) -> list[Array]:
        """With BF16, which numpy does not have: values go in as typed 16-bit words and come out by address."""
        make = onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type
        values = {
            name: make(array, 16)
            if datatype.name == "BF16"
            else onnxruntime.OrtValue.ortvalue_from_numpy(array)
            for name, (datatype, array) in feeds.items()
        }
        return [_numpy(value) for value in self._session.run_with_ort_values(outputs, values, self._options)]


def _run_options() -> Any:
    options = onnxruntime.RunOptions()
    # Without an entry each bound run looks for it in vain, which raises inside: 50 us.
    options.add_run_config_entry("gpu_graph_id", "-1")
    return options


def _numpy(value: Any) -> Array:
    if value.data_type() != "tensor(bfloat16)":
        array: Array = value.numpy()
        return array
    raw = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes())
    return np.frombuffer(raw, dtype="<u2").reshape(value.shape())


def _signature(session: Any) -> Signature:
    inputs, outputs = session.get_inputs(), session.get_outputs()
    firsts = [tensor.shape[0] if tensor.shape else 0 for tensor in (*inputs, *outputs)]
    named = {first for first in firsts if isinstance(first, str) and not first.startswith("unk__")}
    return Signature(
        inputs=tuple(_tensor(node) for node in inputs),
        outputs=tuple(_tensor(node) for node in outputs),
        opset=0,
        parameters=0,
        size=0,
        quantization="",
        batches=not any(isinstance(first, int) for first in firsts) and len(named) <= 1,
        nodes=0,
        domains=(),
    )


def _tensor(node: Any) -> Tensor:
    datatype = BY_ONNX.get(node.type.removeprefix("tensor(").removesuffix(")"))
    if datatype is None:
        raise LoadError(f"{node.name} is a {node.type}, which the protocol does not know")
    shape = tuple(dim if isinstance(dim, int) else -1 for dim in node.shape)
    return Tensor(name=node.name, datatype=datatype.name, shape=shape)


def _prefetch(path: Path, *, whole_folder: bool) -> None:
    """Ask the kernel for the pages of the graph and its external data before the session waits for each."""
    for file in [path, *path.parent.iterdir()] if whole_folder else [path, path.parent / WEIGHTS_FILE]:
        if file.is_file():
            fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_WILLNEED)
            finally:
                os.close(fd)
