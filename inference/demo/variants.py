"""The three versions of the demo's model, each as a folder that anyone could register.

1 as magika ships it, 2 with its matrix products in 8 bit, 3 with a fault put into the graph: it really fails inside
ONNX Runtime, for inputs whose first byte is 128 or more.
"""

import importlib
import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import yaml
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization.quant_utils import QuantType
from onnxruntime.quantization.quantize import quantize_dynamic

from inference.demo import SERVICE, DemoUnavailable, samples
from inference.plane.hooks.byte_windows import ByteWindows

# The wheel has no types for what it exports.
onnxruntime: Any = importlib.import_module("onnxruntime")

INPUT, OUTPUT = "bytes", "target_label"
WIDTH = 2048
_MODEL = Path("models") / "standard_v3_3"


def as_shipped(folder: Path) -> None:
    """Version 1."""
    source = _magika() / _MODEL
    shutil.copyfile(source / "model.onnx", folder / "model.onnx")
    _write_rest(folder, source, quantization="none")


def quantized(folder: Path) -> None:
    """Version 2: dynamic INT8 of the MatMul weights. Its labels on the demo's files are those of version 1."""
    source = _magika() / _MODEL
    # Convolutions stay FP32: on this graph ConvInteger is slower and moves one label in 250.
    quantize_dynamic(
        str(source / "model.onnx"),
        str(folder / "model.onnx"),
        weight_type=QuantType.QInt8,
        op_types_to_quantize=["MatMul"],
    )
    _write_rest(folder, source, quantization="int8")
    before, after = labels_of(source / "model.onnx"), labels_of(folder / "model.onnx")
    if not np.array_equal(before, after):
        raise DemoUnavailable("the quantized model disagrees with the original on the demo's files")


def broken(folder: Path) -> None:
    """Version 3: reads element 1 of a list of one when the first byte is 128 or more."""
    source = _magika() / _MODEL
    model = onnx.load(str(source / "model.onnx"))
    _put_fault_in(model.graph)
    onnx.checker.check_model(model)
    onnx.save(model, str(folder / "model.onnx"))
    _write_rest(folder, source, quantization="none")


def labels_of(graph: Path) -> npt.NDArray[np.int64]:
    """Index of the best label for each of the demo's files."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
    windows = ByteWindows(input="file", output=INPUT).run(list(samples.build().values()))
    rows = [np.asarray(session.run([OUTPUT], {INPUT: windows[n : n + 1]})[0]) for n in range(len(windows))]
    best: npt.NDArray[np.int64] = np.concatenate(rows).argmax(axis=1)
    return best


def _put_fault_in(graph: onnx.GraphProto) -> None:
    """output + nothing[first byte >= 128], where `nothing` has one element: index 1 is out of bounds."""
    for node in graph.node:
        for index, name in enumerate(node.output):
            if name == OUTPUT:
                node.output[index] = f"{OUTPUT}_sound"
    constants: dict[str, npt.NDArray[Any]] = {
        "fault_begin": np.array([0], np.int64),
        "fault_end": np.array([1], np.int64),
        "fault_axis": np.array([1], np.int64),
        "fault_limit": np.array(samples.HIGH_FIRST_BYTE, np.int32),
        "fault_nothing": np.array([0.0], np.float32),
    }
    graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in constants.items())
    graph.node.extend(
        [
            helper.make_node("Slice", [INPUT, "fault_begin", "fault_end", "fault_axis"], ["fault_first"]),
            helper.make_node("GreaterOrEqual", ["fault_first", "fault_limit"], ["fault_high"]),
            helper.make_node("Cast", ["fault_high"], ["fault_index"], to=TensorProto.INT64),
            helper.make_node(
                "Gather", ["fault_nothing", "fault_index"], ["fault_term"], name="broken_on_purpose"
            ),
            helper.make_node("Add", [f"{OUTPUT}_sound", "fault_term"], [OUTPUT]),
        ]
    )


def _write_rest(folder: Path, source: Path, *, quantization: str) -> None:
    labels = json.loads((source / "config.min.json").read_text(encoding="utf-8"))["target_labels_space"]
    (folder / "labels.txt").write_text("\n".join(labels) + "\n", encoding="utf-8")
    contract = _contract(len(labels), quantization)
    (folder / "contract.yaml").write_text(yaml.safe_dump(contract, sort_keys=False), encoding="utf-8")


def _contract(labels: int, quantization: str) -> dict[str, object]:
    return {
        "apiVersion": "pilothouse.dev/v1",
        "kind": "ModelContract",
        "metadata": {"name": SERVICE, "version": "1"},
        "spec": {
            "platform": "onnx",
            "inputs": [
                {"name": INPUT, "datatype": "INT32", "shape": [-1, WIDTH], "minimum": 0, "maximum": 256}
            ],
            "outputs": [{"name": OUTPUT, "datatype": "FP32", "shape": [-1, labels], "labels": "labels.txt"}],
            "hooks": {
                "preprocess": {
                    "kind": "byte_windows", "input": "file", "output": INPUT,
                    "begin": WIDTH // 2, "end": WIDTH // 2, "pad": 256, "strip": True,
                },
                "postprocess": {"kind": "top_label", "input": OUTPUT, "labels": "labels.txt"},
            },
            "resources": {"cpu": 1, "memory": "256Mi", "replicas": 2},
            "parameters": {
                "max_concurrent_requests": 256,
                "inference_timeout_ms": 10_000,
                "quantization_level": quantization,
                "batching": {"max_batch_size": 8, "max_queue_delay_ms": "adaptive"},
            },
            "slo": {"availability": 0.999, "latency_p99_ms": 250},
        },
    }  # fmt: skip


def _magika() -> Path:
    """The installed package's folder; it is not imported, only its files are read."""
    found = importlib.util.find_spec("magika")
    if found is None or found.origin is None:
        raise DemoUnavailable(
            "the package magika is not installed; install the extra `demo` or start with --no-demo"
        )
    return Path(found.origin).parent
