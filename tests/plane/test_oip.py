"""The public tritonclient against a real plane; answers compared with ONNX Runtime's own on the same bytes."""

import json
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from magika import Magika
from numpy.typing import NDArray
from tritonclient import http as triton
from tritonclient.utils import InferenceServerException

from tests.plane import models
from tests.plane.parts import ACME, GLOBEX, Node

ROOT = Path(__file__).resolve().parents[2]
# A row of a joined batch may go through another kernel than a row alone; on the same kernel answers are bit-equal.
TOLERANCE = 1e-6


@pytest.fixture
def client(shared_node: Node) -> Any:
    return triton.InferenceServerClient(f"127.0.0.1:{shared_node.port}")


def key(secret: str = ACME) -> dict[str, str]:
    """A fresh dictionary each time: tritonclient writes its own headers into it."""
    return {"Authorization": f"Bearer {secret}"}


def given(name: str, values: NDArray[Any], kind: str, *, binary: bool) -> Any:
    tensor = triton.InferInput(name, list(values.shape), kind)
    tensor.set_data_from_numpy(values, binary_data=binary)
    return tensor


@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False, None])
@pytest.mark.parametrize("rows", [1, 5, 32])
def test_answers_equal_the_runtimes_own(
    shared_node: Node, client: Any, binary_in: bool, binary_out: bool | None, rows: int
) -> None:
    x = np.random.default_rng(rows).standard_normal((rows, 16)).astype("f4")
    wanted = None if binary_out is None else [triton.InferRequestedOutput("y", binary_data=binary_out)]
    tensor = given("x", x, "FP32", binary=binary_in)
    answer = client.infer("mlp", [tensor], outputs=wanted, headers=key(), request_id="r1")
    assert answer.get_response()["id"] == "r1"
    assert answer.get_response()["model_version"] == "1"
    np.testing.assert_array_equal(
        answer.as_numpy("y"), models.raw(shared_node.versions["mlp", 1], {"x": x})[0]
    )


def test_answers_with_neighbours_in_the_batch_equal_the_runtimes_own(shared_node: Node) -> None:
    x = np.random.default_rng(9).standard_normal((200, 16)).astype("f4")
    expected = models.raw(shared_node.versions["mlp", 1], {"x": x})[0]

    def one(row: int) -> NDArray[Any]:
        tensor = {"name": "x", "shape": [1, 16], "datatype": "FP32", "data": x[row].tolist()}
        answer = shared_node.infer("mlp", [tensor])
        assert answer.status == 200, answer.body
        return np.array(answer.json["outputs"][0]["data"], dtype="f4")

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(one, range(200)))
    np.testing.assert_allclose(np.stack(answers), expected, rtol=0, atol=TOLERANCE)
    stats = shared_node.request("GET", "/v2/models/mlp/stats").json["model_stats"][0]
    assert max(entry["batch_size"] for entry in stats["batch_stats"]) > 1


def test_several_inputs_may_mix_json_and_binary(shared_node: Node, client: Any) -> None:
    a, b = np.array([[1, 2], [3, 4]], "f4"), np.array([[0.5, 0.5], [1, 1]], "f4")
    c = np.array([[7], [2**62]], dtype=np.int64)
    inputs = [
        given("c", c, "INT64", binary=False),
        given("b", b, "FP32", binary=True),
        given("a", a, "FP32", binary=False),
    ]
    wanted = [
        triton.InferRequestedOutput("echoed", binary_data=False),
        triton.InferRequestedOutput("sum", binary_data=True),
    ]
    answer = client.infer("three", inputs, outputs=wanted, headers=key())
    np.testing.assert_array_equal(answer.as_numpy("sum"), a + b)
    np.testing.assert_array_equal(answer.as_numpy("echoed"), c)
    only = client.infer("three", inputs, outputs=[triton.InferRequestedOutput("sum")], headers=key())
    assert [output["name"] for output in only.get_response()["outputs"]] == ["sum"]


def test_large_tensors_cross_in_shared_memory_unharmed(shared_node: Node, client: Any) -> None:
    x = np.random.default_rng(2).standard_normal((3, 3, 96, 96)).astype("f4")
    for rows in (1, 2, 3, 1):
        tensor = given("x", x[:rows], "FP32", binary=True)
        answer = client.infer("image", [tensor], headers=key())
        np.testing.assert_array_equal(answer.as_numpy("y"), x[:rows] * 2)


def test_large_tensors_of_many_clients_do_not_mix(shared_node: Node) -> None:
    def one(value: int) -> bool:
        client = triton.InferenceServerClient(f"127.0.0.1:{shared_node.port}")
        x = np.full((1, 3, 96, 96), value, dtype="f4")
        answer = client.infer("image", [given("x", x, "FP32", binary=True)], headers=key())
        return bool((answer.as_numpy("y") == 2 * value).all())

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(one, range(48)))


@pytest.mark.parametrize("compression", ["gzip", "deflate"])
@pytest.mark.parametrize("binary", [True, False])
def test_compressed_requests_are_read(shared_node: Node, client: Any, compression: str, binary: bool) -> None:
    x = np.ones((2, 16), dtype="f4")
    tensor = given("x", x, "FP32", binary=binary)
    answer = client.infer("mlp", [tensor], headers=key(), request_compression_algorithm=compression)
    np.testing.assert_array_equal(
        answer.as_numpy("y"), models.raw(shared_node.versions["mlp", 1], {"x": x})[0]
    )


def test_the_questions_clients_ask_at_start(shared_node: Node, client: Any) -> None:
    assert client.is_server_live() and client.is_server_ready()
    assert client.is_model_ready("mlp", headers=key()) and client.is_model_ready("mlp", "1", headers=key())
    assert not client.is_model_ready("mlp", "2", headers=key())
    assert not client.is_model_ready("nothing", headers=key())
    server = client.get_server_metadata()
    assert server["name"] == "pilothouse" and "binary_tensor_data" in server["extensions"]
    assert not {"system_shared_memory", "sequence"} & set(server["extensions"])
    metadata = client.get_model_metadata("mlp", headers=key())
    assert metadata["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 16]}]
    assert metadata["outputs"] == [{"name": "y", "datatype": "FP32", "shape": [-1, 4]}]
    assert metadata["versions"] == ["1"]
    config = client.get_model_config("mlp", headers=key())
    assert config["max_batch_size"] == 32
    assert config["input"][0]["dims"] == [16] and config["input"][0]["data_type"] == "TYPE_FP32"
    index = client.get_model_repository_index(headers=key())
    assert {"name": "mlp", "version": "1", "state": "READY", "reason": ""} in index
    assert client.get_system_shared_memory_status(headers=key()) == []
    assert client.get_cuda_shared_memory_status(headers=key()) == []
    client.unregister_system_shared_memory(headers=key())
    client.unregister_cuda_shared_memory(headers=key())
    with pytest.raises(InferenceServerException, match="disabled"):
        client.register_system_shared_memory("r", "/r", 64, headers=key())
    with pytest.raises(InferenceServerException, match="by the console"):
        client.load_model("mlp", headers=key())


def test_another_tenant_sees_nothing_of_it(shared_node: Node, client: Any) -> None:
    assert client.get_model_repository_index(headers=key(GLOBEX)) == []
    assert client.get_inference_statistics(headers=key(GLOBEX)) == {"model_stats": []}
    with pytest.raises(InferenceServerException, match="is not found"):
        client.get_model_metadata("mlp", headers=key(GLOBEX))


def test_statistics_add_up(shared_node: Node, client: Any) -> None:
    def read() -> Any:
        return client.get_inference_statistics("three", headers=key())["model_stats"][0]

    before = read()
    inputs = [
        given("a", np.ones((3, 2), "f4"), "FP32", binary=True),
        given("b", np.ones((3, 2), "f4"), "FP32", binary=True),
        given("c", np.ones((3, 1), "i8"), "INT64", binary=True),
    ]
    for _ in range(4):
        client.infer("three", inputs, headers=key())
    after = read()
    assert after["inference_count"] - before["inference_count"] == 12
    assert after["execution_count"] - before["execution_count"] == 4
    assert after["inference_stats"]["success"]["count"] - before["inference_stats"]["success"]["count"] == 4
    runs = sum(entry["compute_infer"]["count"] for entry in after["batch_stats"])
    rows = sum(entry["batch_size"] * entry["compute_infer"]["count"] for entry in after["batch_stats"])
    assert (runs, rows) == (after["execution_count"], after["inference_count"])
    assert set(after["inference_stats"]) >= {
        "queue",
        "compute_input",
        "compute_output",
        "cache_hit",
        "cache_miss",
    }


def test_files_get_the_labels_that_magika_gives(shared_node: Node) -> None:
    magika = Magika()
    suffixes = (".py", ".md", ".toml", ".json", ".onnx", ".pyc", ".so")
    files = [next(path for path in _files() if path.suffix == suffix) for suffix in suffixes]
    files.append(Path("/usr/bin/env"))
    made = [
        b"<html><body><p>hello</p></body></html>" * 9,
        b"  \n\t#!/bin/sh\necho hello\n",
        b"\x89PNG\r\n\x1a\n" * 40,
    ]
    contents = [path.read_bytes() for path in files] + made
    expected = [magika.identify_bytes(content).prediction for content in contents]
    for content, prediction in zip(contents, expected, strict=True):
        answer = shared_node.request(
            "POST", "/v2/models/file-type/infer", content, headers={"Inference-Header-Content-Length": "0"}
        )
        assert answer.status == 200, answer.body[:300]
        outputs = _binary(answer.body, int(answer.headers["inference-header-content-length"]))
        assert outputs["label"][4:].decode() == prediction.dl.label
        (score,) = struct.unpack("<f", outputs["score"])
        assert score == pytest.approx(prediction.score, abs=1e-5)


def test_files_may_be_batched_and_only_the_label_asked_for(shared_node: Node, client: Any) -> None:
    files = np.array([[b"import os\nprint(os.getcwd())\n" * 20], [b'{"a": [1, 2, 3]}' * 30]], dtype=object)
    wanted = [triton.InferRequestedOutput("label", binary_data=False)]
    answer = client.infer(
        "file-type", [given("file", files, "BYTES", binary=True)], outputs=wanted, headers=key()
    )
    assert answer.as_numpy("label").tolist() == [["python"], ["json"]]
    own = np.full((1, 2048), 256, dtype=np.int32)
    with_tensor = client.infer("file-type", [given("bytes", own, "INT32", binary=True)], headers=key())
    expected = models.raw(shared_node.versions["file-type", 1], {"bytes": own})[0]
    np.testing.assert_allclose(with_tensor.as_numpy("target_label"), expected, rtol=0, atol=TOLERANCE)


def _files() -> list[Path]:
    site = Path(np.__file__).parent.parent
    return sorted([*(site / "magika").rglob("*"), *(site / "numpy").rglob("*.so"), *ROOT.glob("*.*")])


def _binary(body: bytes, head: int) -> dict[str, bytes]:
    found, at = {}, head
    for output in json.loads(body[:head])["outputs"]:
        size = output["parameters"]["binary_data_size"]
        found[output["name"]] = body[at : at + size]
        at += size
    assert at == len(body)
    return found
