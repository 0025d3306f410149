"""Small ONNX models with one interesting property each."""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

onnxruntime: Any = importlib.import_module("onnxruntime")

CONTRACT = """\
apiVersion: pilothouse.dev/v1
kind: ModelContract
metadata: {{name: {name}}}
spec:
  inputs: {inputs}
  outputs: {outputs}
  parameters:
    inference_timeout_ms: {timeout_ms}
    max_concurrent_requests: {limit}
    batching: {{max_batch_size: {batch}}}
"""


def save(
    folder: Path,
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    weights: list[onnx.TensorProto] | None = None,
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    graph = helper.make_graph(nodes, "g", inputs, outputs, weights or [])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "model.onnx")
    return folder


def write_contract(
    folder: Path,
    name: str,
    inputs: str,
    outputs: str,
    *,
    batch: int,
    timeout_ms: int = 20_000,
    limit: int = 256,
) -> None:
    text = CONTRACT.format(
        name=name, inputs=inputs, outputs=outputs, batch=batch, timeout_ms=timeout_ms, limit=limit
    )
    (folder / "contract.yaml").write_text(text)


def tensor(name: str, kind: int, shape: list[int | str]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def mlp(folder: Path, *, width: int = 16, out: int = 4, batch: int = 32) -> Path:
    """x FP32 [N, width] -> y FP32 [N, out]; x within -10..10 by contract."""
    rng = np.random.default_rng(1)
    weights = [
        numpy_helper.from_array((rng.standard_normal((width, out)) / 4).astype("f4"), "w"),
        numpy_helper.from_array(rng.standard_normal(out).astype("f4"), "b"),
    ]
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["g"]),
        helper.make_node("Softmax", ["g"], ["y"], axis=-1),
    ]
    save(folder, nodes, [tensor("x", 1, ["N", width])], [tensor("y", 1, ["N", out])], weights)
    write_contract(
        folder,
        folder.name,
        f"[{{name: x, datatype: FP32, shape: [-1, {width}], minimum: -10, maximum: 10}}]",
        f"[{{name: y, datatype: FP32, shape: [-1, {out}]}}]",
        batch=batch,
    )
    return folder


KINDS = {
    "BOOL": TensorProto.BOOL, "UINT8": TensorProto.UINT8, "UINT16": TensorProto.UINT16,
    "UINT32": TensorProto.UINT32, "UINT64": TensorProto.UINT64, "INT8": TensorProto.INT8,
    "INT16": TensorProto.INT16, "INT32": TensorProto.INT32, "INT64": TensorProto.INT64,
    "FP16": TensorProto.FLOAT16, "FP32": TensorProto.FLOAT, "FP64": TensorProto.DOUBLE,
    "BF16": TensorProto.BFLOAT16, "BYTES": TensorProto.STRING,
}  # fmt: skip


def echo(folder: Path, kinds: Sequence[str]) -> Path:
    """in_<kind> -> out_<kind> for each datatype, the same values, any two dimensions; not batched."""
    nodes = [helper.make_node("Identity", [f"in_{kind}"], [f"out_{kind}"]) for kind in kinds]
    shape: list[int | str] = ["A", "B"]
    inputs = [tensor(f"in_{kind}", KINDS[kind], shape) for kind in kinds]
    save(folder, nodes, inputs, [tensor(f"out_{kind}", KINDS[kind], shape) for kind in kinds])
    specs = {
        role: "["
        + ", ".join(f"{{name: {role}_{kind}, datatype: {kind}, shape: [-1, -1]}}" for kind in kinds)
        + "]"
        for role in ("in", "out")
    }
    write_contract(folder, folder.name, specs["in"], specs["out"], batch=1)
    return folder


def three_inputs(folder: Path) -> Path:
    """a, b FP32 [N, 2] and c INT64 [N, 1] -> sum FP32 [N, 2], echoed INT64 [N, 1]."""
    nodes = [
        helper.make_node("Add", ["a", "b"], ["sum"]),
        helper.make_node("Identity", ["c"], ["echoed"]),
    ]
    inputs = [tensor("a", 1, ["N", 2]), tensor("b", 1, ["N", 2]), tensor("c", 7, ["N", 1])]
    save(folder, nodes, inputs, [tensor("sum", 1, ["N", 2]), tensor("echoed", 7, ["N", 1])])
    return folder


def lookup(folder: Path) -> Path:
    """index INT64 [N, 1] -> value FP32 [N, 1, 1]; fails inside the runtime for an index of 10 or more."""
    table = numpy_helper.from_array(np.arange(10, dtype="f4").reshape(10, 1), "table")
    node = helper.make_node("Gather", ["table", "index"], ["value"], axis=0)
    save(folder, [node], [tensor("index", 7, ["N", 1])], [tensor("value", 1, ["N", 1, 1])], [table])
    write_contract(
        folder,
        folder.name,
        "[{name: index, datatype: INT64, shape: [-1, 1]}]",
        "[{name: value, datatype: FP32, shape: [-1, 1, 1]}]",
        batch=16,
    )
    return folder


def slow(folder: Path, *, timeout_ms: int = 20_000, limit: int = 64, batch: int = 8) -> Path:
    """turns INT64 [N, 1] -> done INT64 [N, 1]: each turn multiplies two 96 x 96 matrices, about 30 us."""
    square = numpy_helper.from_array(np.eye(96, dtype="f4"), "square")
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["go_on"]),
            helper.make_node("MatMul", ["state", "square"], ["state_out"]),
        ],
        "body",
        [tensor("i", 7, []), tensor("go", 9, []), tensor("state", 1, [96, 96])],
        [tensor("go_on", 9, []), tensor("state_out", 1, [96, 96])],
    )
    nodes = [
        helper.make_node("ReduceMax", ["turns"], ["most"], keepdims=0),
        helper.make_node("Loop", ["most", "", "square"], ["state_end"], body=body),
        helper.make_node("ReduceSum", ["state_end"], ["total"], keepdims=0),
        helper.make_node("Cast", ["total"], ["whole"], to=TensorProto.INT64),
        helper.make_node("Mul", ["whole", "zero"], ["nothing"]),
        helper.make_node("Add", ["turns", "nothing"], ["done"]),
    ]
    zero = numpy_helper.from_array(np.array(0, dtype="i8"), "zero")
    save(folder, nodes, [tensor("turns", 7, ["N", 1])], [tensor("done", 7, ["N", 1])], [square, zero])
    write_contract(
        folder,
        folder.name,
        "[{name: turns, datatype: INT64, shape: [-1, 1]}]",
        "[{name: done, datatype: INT64, shape: [-1, 1]}]",
        batch=batch,
        timeout_ms=timeout_ms,
        limit=limit,
    )
    return folder


def image(folder: Path) -> Path:
    """x FP32 [N, 3, 96, 96] -> y of the same shape, doubled: tensors that travel in shared memory."""
    node = helper.make_node("Add", ["x", "x"], ["y"])
    shape: list[int | str] = ["N", 3, 96, 96]
    save(folder, [node], [tensor("x", 1, shape)], [tensor("y", 1, shape)])
    write_contract(
        folder,
        folder.name,
        "[{name: x, datatype: FP32, shape: [-1, 3, 96, 96]}]",
        "[{name: y, datatype: FP32, shape: [-1, 3, 96, 96]}]",
        batch=4,
    )
    return folder


def mean_over_rows(folder: Path) -> Path:
    """x FP32 [N, 2] -> y = x - mean of all rows: looks as if it batched, and must not."""
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["m"], axes=[0], keepdims=1),
        helper.make_node("Sub", ["x", "m"], ["y"]),
    ]
    return save(folder, nodes, [tensor("x", 1, ["N", 2])], [tensor("y", 1, ["N", 2])])


def raw(folder: Path, feeds: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
    """ONNX Runtime's own answer."""
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    answers: list[NDArray[Any]] = session.run(None, feeds)
    return answers
