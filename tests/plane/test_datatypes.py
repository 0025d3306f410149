"""Every datatype there and back through plane and worker."""

import json
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from tritonclient import http as triton

from inference.plane.datatypes import DATATYPES, bytes_offsets, pack_bytes, unpack_bytes
from inference.plane.packing import Part, check_packed
from inference.plane.refusals import RefusedError
from tests.plane import models
from tests.plane.parts import OWNER, Node

VALUES: dict[str, NDArray[np.generic]] = {
    "BOOL": np.array([[True, False, True]]),
    "UINT8": np.array([[0, 1, 255]], dtype=np.uint8),
    "UINT16": np.array([[0, 1, 65535]], dtype=np.uint16),
    "UINT32": np.array([[0, 1, 2**32 - 1]], dtype=np.uint32),
    "UINT64": np.array([[0, 1, 2**64 - 1]], dtype=np.uint64),
    "INT8": np.array([[-128, 0, 127]], dtype=np.int8),
    "INT16": np.array([[-(2**15), 0, 2**15 - 1]], dtype=np.int16),
    "INT32": np.array([[-(2**31), 0, 2**31 - 1]], dtype=np.int32),
    "INT64": np.array([[-(2**63), 0, 2**63 - 1]], dtype=np.int64),
    "FP16": np.array([[-0.0, 1.5, 6e-8]], dtype=np.float16),
    "FP32": np.array([[-0.0, 0.1, 1e-40]], dtype=np.float32),
    "FP64": np.array([[-0.0, 0.1, 5e-324]], dtype=np.float64),
    "BF16": np.array([[-0.0, 1.5, 3.0]], dtype=ml_dtypes.bfloat16),
    "BYTES": np.array([[b"", "é€".encode(), b"a\0b"]], dtype=object),
}

BIN, HALF = {"binary_data_size": 0}, {"binary_data_size": 2}


@pytest.fixture(scope="module")
def echoes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    base = tmp_path_factory.mktemp("echo")
    most = [kind for kind in DATATYPES if kind != "BF16"]
    versions = {
        ("echo", 1): models.echo(base / "echo", most),
        ("echo-bf16", 1): models.echo(base / "echo-bf16", ["BF16", "FP16", "INT64"]),
    }
    node = Node(tmp_path_factory.mktemp("echo-node"), versions)
    try:
        yield node.start()
    finally:
        node.stop()


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("service", ["echo", "echo-bf16"])
def test_every_datatype_returns_as_it_went(echoes: Node, service: str, binary: bool) -> None:
    client = triton.InferenceServerClient(f"127.0.0.1:{echoes.port}")
    kinds = ["BF16", "FP16", "INT64"] if service == "echo-bf16" else [k for k in DATATYPES if k != "BF16"]
    tensors, wanted = [], []
    for kind in kinds:
        as_binary = binary or kind in ("FP16", "BF16")
        tensor = triton.InferInput(f"in_{kind}", list(VALUES[kind].shape), kind)
        tensor.set_data_from_numpy(VALUES[kind], binary_data=as_binary)
        tensors.append(tensor)
        wanted.append(triton.InferRequestedOutput(f"out_{kind}", binary_data=as_binary))
    answer: Any = client.infer(service, tensors, outputs=wanted, headers={"Authorization": f"Bearer {OWNER}"})
    for kind in kinds:
        got = answer.as_numpy(f"out_{kind}")
        if kind == "BYTES":
            texts = [text if isinstance(text, bytes) else text.encode() for text in got.reshape(-1)]
            assert texts == VALUES[kind].reshape(-1).tolist()
        else:
            assert got.tobytes() == VALUES[kind].tobytes(), (kind, got)


def bf16_request(**of: Any) -> list[dict[str, Any]]:
    """JSON inputs of echo-bf16, which are refused unless `of` makes the half ones empty or binary."""
    return [
        {"name": f"in_{kind}", "shape": [0, 4], "datatype": kind, "data": [], **of.get(kind, {})}
        for kind in ("BF16", "FP16", "INT64")
    ]


def test_what_json_cannot_carry_is_refused_by_name(echoes: Node) -> None:
    half = {"FP16": {"shape": [1, 1], "data": [1.0]}}
    answer = echoes.infer("echo-bf16", bf16_request(**half), key=OWNER)
    assert (answer.status, answer.json["error"]) == (
        400,
        "input in_BF16: receiving BF16 data via JSON is not supported",
    )
    head = json.dumps(
        {"inputs": bf16_request(BF16={"parameters": BIN}, FP16={"shape": [1, 1], "parameters": HALF})}
    ).replace('"data": [], "parameters"', '"parameters"')
    told = {"Inference-Header-Content-Length": str(len(head))}
    asked = echoes.request(
        "POST", "/v2/models/echo-bf16/infer", head.encode() + b"\0\0", key=OWNER, headers=told
    )
    assert asked.status == 400 and "ask for binary_data" in asked.json["error"]


def test_empty_tensors_are_legal(echoes: Node) -> None:
    head = json.dumps({"inputs": bf16_request(BF16={"parameters": BIN}, FP16={"parameters": BIN})})
    head = head.replace('"data": [], "parameters"', '"parameters"')
    told = {"Inference-Header-Content-Length": str(len(head))}
    answer = echoes.request("POST", "/v2/models/echo-bf16/infer", head, key=OWNER, headers=told)
    assert answer.status == 200, answer.body
    assert [output["shape"] for output in answer.json["outputs"]] == [[0, 4]] * 3
    assert all(output["data"] == [] for output in answer.json["outputs"])


def test_text_for_the_graph_must_be_utf8() -> None:
    part = Part("x", DATATYPES["BYTES"], 1, None, None, utf8=True, looked_at=False)
    check_packed(part, pack_bytes(["é".encode()]), 1)
    with pytest.raises(RefusedError, match="UTF-8"):
        check_packed(part, pack_bytes([b"\xff\xfe"]), 1)


def test_packed_bytes_are_read_back_exactly_or_refused() -> None:
    packed = pack_bytes([b"", b"abc", b"\0"])
    assert unpack_bytes(packed, 3) == [b"", b"abc", b"\0"]
    assert bytes_offsets(packed, [1, 2]) == [4, len(packed)]
    for data, count in ((packed, 2), (packed, 4), (packed[:-1], 3), (b"\xff\xff\xff\xff", 1), (b"", 1)):
        with pytest.raises(ValueError, match=r"."):
            unpack_bytes(data, count)
