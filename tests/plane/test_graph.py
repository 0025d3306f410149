import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from inference.graph import GraphError, read_signature, signature_from_json, signature_to_json
from tests.plane import models
from tests.plane.conftest import MAGIKA


def identity(folder: Path, domain: str = "", operator: str = "Identity") -> onnx.ModelProto:
    node = helper.make_node(operator, ["x"], ["y"], domain=domain)
    graph = helper.make_graph([node], "g", [models.tensor("x", 1, ["N"])], [models.tensor("y", 1, ["N"])])
    sets = [helper.make_opsetid("", 17)] + ([helper.make_opsetid(domain, 1)] if domain else [])
    folder.mkdir(parents=True, exist_ok=True)
    return helper.make_model(graph, opset_imports=sets, ir_version=8)


def with_external(folder: Path, location: str, length: int = 16) -> Path:
    model = identity(folder)
    weight = numpy_helper.from_array(np.zeros(4, "f4"), "w")
    weight.ClearField("raw_data")
    weight.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", "0"), ("length", str(length))):
        entry = weight.external_data.add()
        entry.key, entry.value = key, value
    model.graph.initializer.append(weight)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return folder


def test_a_real_models_signature_is_read() -> None:
    signature = read_signature(MAGIKA)
    assert [(t.name, t.datatype, t.shape) for t in signature.inputs] == [("bytes", "INT32", (-1, 2048))]
    assert [(t.name, t.datatype, t.shape) for t in signature.outputs] == [("target_label", "FP32", (-1, 214))]
    assert signature.batches and signature.opset == 15 and signature.quantization == "none"
    assert signature.parameters == 784_511 and signature.size == (MAGIKA / "model.onnx").stat().st_size
    assert signature_from_json(signature_to_json(signature)) == signature


@pytest.mark.parametrize("content", [b"", b"\x00" * 64, b"not a model at all", b"PK\x03\x04" + b"x" * 400])
def test_what_is_no_onnx_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.onnx").write_bytes(content)
    with pytest.raises(GraphError, match=r"not an ONNX|bytes; a graph has"):
        read_signature(tmp_path)


def test_a_missing_file_and_a_link_are_refused(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match="cannot be read"):
        read_signature(tmp_path)
    (tmp_path / "model.onnx").symlink_to(MAGIKA / "model.onnx")
    with pytest.raises(GraphError, match="not a regular file"):
        read_signature(tmp_path)


def test_operators_of_unknown_domains_are_refused(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(identity(tmp_path, "evil.example", "Steal").SerializeToString())
    with pytest.raises(GraphError, match=r"evil\.example"):
        read_signature(tmp_path)


@pytest.mark.parametrize("location", ["../secret", "/etc/hostname", "sub/file", ".hidden", ""])
def test_external_data_outside_the_folder_is_refused(tmp_path: Path, location: str) -> None:
    with pytest.raises(GraphError, match="outside the model's folder"):
        read_signature(with_external(tmp_path / "m", location))


def test_external_data_must_be_plain_files_of_the_right_size(tmp_path: Path) -> None:
    folder = with_external(tmp_path / "m", "weights.bin")
    with pytest.raises(GraphError, match="missing"):
        read_signature(folder)
    (tmp_path / "secret").write_bytes(b"s" * 16)
    (folder / "weights.bin").symlink_to(tmp_path / "secret")
    with pytest.raises(GraphError, match="not a regular file"):
        read_signature(folder)
    (folder / "weights.bin").unlink()
    os.link(tmp_path / "secret", folder / "weights.bin")
    with pytest.raises(GraphError, match="linked from elsewhere"):
        read_signature(folder)
    (folder / "weights.bin").unlink()
    (folder / "weights.bin").write_bytes(b"s" * 8)
    with pytest.raises(GraphError, match="shorter"):
        read_signature(folder)
    (folder / "weights.bin").write_bytes(b"\0" * 16)
    signature = read_signature(folder)
    assert signature.size == (folder / "model.onnx").stat().st_size + 16


def test_graphs_nested_too_deeply_are_refused(tmp_path: Path) -> None:
    value = models.tensor("y", 1, ["N"])
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "leaf", [], [value])
    for _ in range(12):
        node = helper.make_node("If", ["c"], ["y"], then_branch=graph, else_branch=graph)
        # Only one branch grows, or the file would double each time.
        leaf = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "leaf", [], [value])
        node.attribute[1].g.CopyFrom(leaf)
        graph = helper.make_graph([node], "inner", [], [value])
    outer = helper.make_graph(
        graph.node, "g", [models.tensor("x", 1, ["N"]), models.tensor("c", 9, [])], [value]
    )
    model = helper.make_model(outer, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(GraphError, match="nested deeper"):
        read_signature(tmp_path)


def test_a_model_without_tensors_for_answers_is_refused(tmp_path: Path) -> None:
    node = helper.make_node("SequenceConstruct", ["x"], ["y"])
    out = helper.make_tensor_sequence_value_info("y", 1, ["N"])
    graph = helper.make_graph([node], "g", [models.tensor("x", 1, ["N"])], [out])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(GraphError, match="no tensor"):
        read_signature(tmp_path)


def test_quantization_is_recognised(tmp_path: Path) -> None:
    half = models.save(
        tmp_path / "half",
        [helper.make_node("Add", ["x", "w"], ["y"])],
        [models.tensor("x", 10, ["N", 64])],
        [models.tensor("y", 10, ["N", 64])],
        [numpy_helper.from_array(np.ones((1, 64), "f2"), "w")],
    )
    assert read_signature(half).quantization == "fp16"
    scale = numpy_helper.from_array(np.array(0.1, "f4"), "s")
    zero = numpy_helper.from_array(np.array(128, "u1"), "z")
    linear = models.save(
        tmp_path / "qdq",
        [
            helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
            helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
        ],
        [models.tensor("x", 1, ["N", 4])],
        [models.tensor("y", 1, ["N", 4])],
        [scale, zero],
    )
    assert read_signature(linear).quantization == "int8"


@pytest.mark.parametrize(
    ("domain", "version"), [("", 999), ("", 0), ("", 2**62), ("ai.onnx.ml", 99), ("com.microsoft", 2)]
)
def test_operator_sets_the_runtime_does_not_know_are_refused(
    tmp_path: Path, domain: str, version: int
) -> None:
    model = identity(tmp_path)
    if domain:
        model.opset_import.add().domain = domain
    model.opset_import[-1].version = version
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(GraphError, match=rf"opset_import: {domain or 'ai.onnx'} is {version}"):
        read_signature(tmp_path)


def test_the_newest_operator_set_that_is_let_in_is_the_newest_that_loads(tmp_path: Path) -> None:
    model = identity(tmp_path)
    newest = onnx.defs.onnx_opset_version()
    model.opset_import[0].version = newest
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    assert read_signature(tmp_path).opset == newest
    models.onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    model.opset_import[0].version = newest + 1
    with pytest.raises(Exception, match="opset"):
        models.onnxruntime.InferenceSession(model.SerializeToString())


@pytest.mark.parametrize("size", [-5, -2, 2**31, 2**62, -(2**63)])
@pytest.mark.parametrize("role", ["input", "output"])
def test_sizes_that_no_tensor_has_are_refused(tmp_path: Path, role: str, size: int) -> None:
    model = identity(tmp_path)
    value = (model.graph.input if role == "input" else model.graph.output)[0]
    value.type.tensor_type.shape.dim[0].dim_value = size
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(GraphError, match=rf"{role} .: shape\[0\] is {size};"):
        read_signature(tmp_path)


@pytest.mark.parametrize("size", [-1, 0, 1, 2**31 - 1])
def test_sizes_up_to_the_last_are_read(tmp_path: Path, size: int) -> None:
    model = identity(tmp_path)
    for value in (model.graph.input[0], model.graph.output[0]):
        value.type.tensor_type.shape.dim[0].dim_value = size
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    assert read_signature(tmp_path).inputs[0].shape == (size,)
