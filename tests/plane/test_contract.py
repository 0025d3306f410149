from pathlib import Path
from typing import Any

import pytest
from onnx import helper

from inference.contract import (
    ContractError,
    check_against,
    from_json,
    infer_contract,
    parse_contract,
    read_labels,
    to_json,
)
from inference.graph import read_signature
from tests.plane import models

# The example of the product's public names, word for word but for the hooks, which name built-in kinds.
EXAMPLE = """\
apiVersion: pilothouse.dev/v1
kind: ModelContract
metadata: {name: file-type, version: "1"}
spec:
  platform: onnx
  inputs:
    - {name: bytes, datatype: INT32, shape: [-1, 2048], minimum: 0, maximum: 256}
  outputs:
    - {name: target_label, datatype: FP32, shape: [-1, 214], labels: labels.txt}
  hooks: {preprocess: {kind: byte_windows, input: file, output: bytes}, postprocess: null}
  resources: {cpu: 1, memory: 512Mi, gpu_memory: 0, replicas: 1}
  qos: guaranteed
  parameters:
    max_concurrent_requests: 64
    inference_timeout_ms: 500
    tensor_parallel_size: 1
    quantization_level: none
    batching: {max_batch_size: 32, max_queue_delay_ms: adaptive}
    kv_cache: {reuse: true, share: 0.0}
    memory_pool_mb: 256
  slo: {availability: 0.999, latency_p99_ms: 100}
  warmup: [samples/one.json]
  lifecycle: {on_load: null, on_drain: null}
"""


def test_the_documented_example_is_a_contract() -> None:
    contract = parse_contract(EXAMPLE)
    assert contract.metadata.name == "file-type" and contract.max_batch_size == 32
    assert contract.spec.resources.memory_bytes == 512 << 20
    assert [tensor.name for tensor in contract.public_inputs] == ["bytes", "file"]
    assert from_json(to_json(contract)) == contract


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ("qos: guaranteed", "qos: best", "spec.qos"),
        ("qos: guaranteed", "quality: best", "spec"),
        ("INT32", "INT33", "spec.inputs[0].datatype"),
        ("[-1, 2048]", "[-2, 2048]", "spec.inputs[0].shape[0]"),
        ("minimum: 0", "minimum: 300", "spec.inputs[0].minimum"),
        ("minimum: 0", "minimum: .nan", "spec.inputs[0].minimum"),
        ("minimum: 0", "smallest: 0", "spec.inputs[0]"),
        ("max_batch_size: 32", "max_batch_size: 0", "spec.parameters.batching.max_batch_size"),
        ("memory: 512Mi", "memory: lots", "spec.resources.memory"),
        ("samples/one.json", "../one.json", "spec.warmup[0]"),
        ("labels.txt", "/etc/passwd", "spec.outputs[0].labels"),
        ("kind: byte_windows", "kind: shell", "spec.hooks.preprocess.kind"),
        ("output: bytes", "output: text", "spec.hooks.preprocess.output"),
        ("input: file", "input: bytes", "spec.hooks.preprocess.input"),
        ("name: target_label", "name: [1]", "spec.outputs[0].name"),
        ("pilothouse.dev/v1", "v2", "apiVersion"),
        ("availability: 0.999", "availability: 1", "spec.slo.availability"),
        ("platform: onnx", "platform: remote-oip", "spec.platform"),
        ("on_load: null", "on_load: hook", "spec.lifecycle"),
    ],
)
def test_a_wrong_field_is_refused_by_its_path(old: str, new: str, path: str) -> None:
    with pytest.raises(ContractError) as refused:
        parse_contract(EXAMPLE.replace(old, new, 1))
    assert path in refused.value.fields, refused.value.fields


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1, 2]",
        "a: [",
        "a: &x 1\nb: *x\n",
        "kind: A\nkind: B\n",
        "!!python/object/apply:os.system ['true']",
        "[" * 5000,
        "x: " + "y" * 300_000,
        "a: " + "[" + "1," * 30_000 + "]",
        b"\xff\xfe\x00",
        "kind: !!bool maybe",
        'kind: !!int ""',
        "kind: !!timestamp soon",
        "kind: !!map [a]",
        "kind: !!set [a]",
        'kind: "\\ud800"',
    ],
)
def test_hostile_files_are_refused_as_a_whole(text: str | bytes) -> None:
    with pytest.raises(ContractError):
        parse_contract(text)


def test_a_contract_is_inferred_and_fits_the_graph(tmp_path: Path) -> None:
    signature = read_signature(models.mlp(tmp_path / "mlp"))
    contract = infer_contract(signature, "mlp")
    check_against(contract, signature, tmp_path)
    assert contract.max_batch_size > 1 and contract.spec.inputs[0].shape == (-1, 16)


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"name": "z"}, "spec.inputs[0].name"),
        ({"datatype": "INT32"}, "spec.inputs[0].datatype"),
        ({"shape": [-1, 17]}, "spec.inputs[0].shape"),
        ({"shape": [-1]}, "spec.inputs[0].shape"),
    ],
)
def test_a_contract_that_contradicts_the_graph_is_refused_with_the_field(
    tmp_path: Path, change: dict[str, Any], path: str
) -> None:
    signature = read_signature(models.mlp(tmp_path / "mlp"))
    tree = to_json(infer_contract(signature, "mlp"))
    tree["spec"]["inputs"][0] |= change
    with pytest.raises(ContractError) as refused:
        check_against(from_json(tree), signature)
    assert path in refused.value.fields


def test_batching_needs_a_graph_that_can(tmp_path: Path) -> None:
    folder = models.save(
        tmp_path / "fixed",
        [helper.make_node("Identity", ["x"], ["y"])],
        [models.tensor("x", 1, [1, 4])],
        [models.tensor("y", 1, [1, 4])],
    )
    signature = read_signature(folder)
    contract = infer_contract(signature, "fixed")
    assert contract.max_batch_size == 1
    tree = to_json(contract)
    tree["spec"]["parameters"]["batching"]["max_batch_size"] = 4
    with pytest.raises(ContractError) as refused:
        check_against(from_json(tree), signature)
    assert list(refused.value.fields) == ["spec.parameters.batching.max_batch_size"]


def test_named_files_must_be_in_the_versions_folder(tmp_path: Path) -> None:
    folder = models.mlp(tmp_path / "mlp")
    signature = read_signature(folder)
    tree = to_json(infer_contract(signature, "mlp"))
    tree["spec"]["outputs"][0]["labels"] = "labels.txt"
    tree["spec"]["hooks"]["postprocess"] = {"kind": "top_label", "input": "y", "labels": "labels.txt"}
    contract = from_json(tree)
    with pytest.raises(ContractError) as refused:
        check_against(contract, signature, folder)
    assert set(refused.value.fields) == {"spec.outputs[0].labels", "spec.hooks.postprocess.labels"}
    (folder / "labels.txt").write_text("a\nb\nc\n")
    with pytest.raises(ContractError, match="3 labels for 4 scores"):
        check_against(contract, signature, folder)
    (folder / "labels.txt").write_text("a\nb\nc\nd\n")
    check_against(contract, signature, folder)
    assert read_labels(folder / "labels.txt") == [b"a", b"b", b"c", b"d"]
