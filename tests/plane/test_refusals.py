"""Each refusal of the public names: its status, its sentence, its headers. And after it the plane serves on."""

import json
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from inference.plane.probe import counters
from inference.protocol import QuotaSpec
from tests.plane import models
from tests.plane.parts import ACME, EXPIRED, GLOBEX, OWNER, Answer, Node
from tests.services.process import wait_until

X = {"name": "x", "shape": [1, 16], "datatype": "FP32", "data": [0.5] * 16}


def refused(answer: Answer, status: int) -> str:
    assert answer.status == status, answer.body
    sentence = answer.json["error"]
    assert isinstance(sentence, str) and sentence
    return sentence


@pytest.mark.parametrize("key", [None, "ph_" + "wrong" * 6, EXPIRED])
def test_no_key_a_wrong_key_and_an_expired_key_are_401(shared_node: Node, key: str | None) -> None:
    answer = shared_node.infer("mlp", [X], key=key)
    refused(answer, 401)
    assert answer.headers["www-authenticate"].startswith("Bearer")


def test_a_service_of_others_is_404_with_the_words_of_an_unknown_one(shared_node: Node) -> None:
    theirs = refused(shared_node.infer("mlp", [X], key=GLOBEX), 404)
    unknown = refused(shared_node.infer("nothing", [X], key=GLOBEX), 404)
    assert theirs.replace("mlp", "nothing") == unknown


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v2/models/mlp/infer", 405),
        ("POST", "/v2/models/mlp", 405),
        ("HEAD", "/v2", 405),
        ("OPTIONS", "/v2/models/mlp/infer", 405),
        ("GET", "/v2/nowhere", 404),
        ("GET", "/v2/models/mlp/versions/x", 404),
        ("GET", "/v2/models/mlp/versions/9", 404),
        ("POST", "/v2/models/mlp/versions/9/infer", 404),
        ("GET", "/v2/models/a%2fb", 404),
        ("GET", "/v2/models/../../etc/passwd", 404),
        ("GET", "/v2/models/mlp/generate", 404),
        ("POST", "/v2/systemsharedmemory/region/r/register", 501),
    ],
)
def test_wrong_paths_and_methods(shared_node: Node, method: str, path: str, status: int) -> None:
    answer = shared_node.request(method, path, b"{}" if method == "POST" else None)
    assert answer.status == status
    if method != "HEAD":
        refused(answer, status)
    if status == 405:
        assert answer.headers["allow"] in ("GET", "POST")


def case(name: str, words: str, inputs: Any, **more: Any) -> Any:
    return pytest.param(words, {"inputs": inputs, **more}, id=name)


@pytest.mark.parametrize(
    ("words", "body"),
    [
        case(
            "wrong datatype", "input x has datatype FP64, the contract says FP32", [{**X, "datatype": "FP64"}]
        ),
        case("wrong shape", "input x has shape [1, 15]", [{**X, "shape": [1, 15], "data": [0.5] * 15}]),
        case("wrong rank", "input x has shape [16]", [{**X, "shape": [16]}]),
        case("negative dim", "input x needs a shape", [{**X, "shape": [-1, 16]}]),
        case("shape of floats", "input x needs a shape", [{**X, "shape": [1.5, 16]}]),
        case("shape of text", "input x needs a shape", [{**X, "shape": "1,16"}]),
        case("too few values", "input x has 15 values, its shape needs 16", [{**X, "data": [0.5] * 15}]),
        case("too many values", "input x has 17 values", [{**X, "data": [0.5] * 17}]),
        case("text for numbers", "input x has a value that is no FP32", [{**X, "data": ["1"] * 16}]),
        case("null for a number", "input x has a value that is no FP32", [{**X, "data": [None] * 16}]),
        case(
            "ragged rows",
            "rows of different lengths",
            [{**X, "shape": [2, 16], "data": [[0] * 16, [0] * 15]}],
        ),
        case("no data", "input x needs exactly one of data", [{k: v for k, v in X.items() if k != "data"}]),
        case("data twice", "exactly one of data", [{**X, "parameters": {"binary_data_size": 64}}]),
        case(
            "data and shared memory",
            "input x has data and a shared memory region",
            [{**X, "parameters": {"shared_memory_region": "r", "shared_memory_byte_size": 64}}],
        ),
        case(
            "shared memory",
            "shared memory is disabled",
            [
                {
                    **{key: told for key, told in X.items() if key != "data"},
                    "parameters": {"shared_memory_region": "r", "shared_memory_byte_size": 64},
                }
            ],
        ),
        case(
            "beyond the maximum",
            "input x has 11.0, above the contract's maximum",
            [{**X, "data": [11.0] * 16}],
        ),
        case(
            "below the minimum",
            "input x has -11.0, below the contract's minimum",
            [{**X, "data": [-11] * 16}],
        ),
        case("unknown input", "unexpected input z", [{**X, "name": "z"}]),
        case("input twice", "input x is given twice", [X, X]),
        case("no input", "inputs must be a list", []),
        case("inputs of another kind", "inputs must be a list", {"x": 1}),
        case("input of another kind", "inputs[0] must be an object", ["x"]),
        case(
            "too many rows", "above the model's max_batch_size of 32", [{**X, "shape": [33, 16], "data": []}]
        ),
        case("unknown output", "unexpected output q", [X], outputs=[{"name": "q"}]),
        case("output twice", "output y is asked for twice", [X], outputs=[{"name": "y"}, {"name": "y"}]),
        case(
            "classification",
            "classification",
            [X],
            outputs=[{"name": "y", "parameters": {"classification": -3}}],
        ),
        case("sequence", "sequences are not served", [X], parameters={"sequence_id": 7}),
        case("reserved", "triton_x is reserved", [X], parameters={"triton_x": 1}),
        case("nested parameter", "parameter p must be", [X], parameters={"p": {}}),
        case("bad id", "id must be a string", [X], id=7),
    ],
)
def test_a_request_outside_the_contract_is_400_and_names_the_field(
    shared_node: Node, words: str, body: dict[str, Any]
) -> None:
    answer = shared_node.request("POST", "/v2/models/mlp/infer", json.dumps(body))
    assert words in refused(answer, 400)
    assert answer.headers["x-pilothouse-version"] == "1"


def test_missing_and_uneven_inputs_are_named(shared_node: Node) -> None:
    a = {"name": "a", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}
    b = {"name": "b", "shape": [2, 2], "datatype": "FP32", "data": [1, 2, 3, 4]}
    c = {"name": "c", "shape": [1, 1], "datatype": "INT64", "data": [1]}
    assert "input b is missing" in refused(shared_node.infer("three", [a, c]), 400)
    assert "first dimension must be the same" in refused(shared_node.infer("three", [a, b, c]), 400)
    both = [
        {"name": "file", "shape": [1, 1], "datatype": "BYTES", "data": ["x"]},
        {"name": "bytes", "shape": [1, 2048], "datatype": "INT32", "data": [1] * 2048},
    ]
    assert "not both" in refused(shared_node.infer("file-type", both), 400)


@pytest.mark.parametrize(
    ("length", "extra", "words"),
    [
        ("999999", b"", "beyond the body"),
        ("-1", b"", "must be a number"),
        ("x", b"", "must be a number"),
        (None, b"1234", "unexpected additional input data"),
        (None, b"", ""),
    ],
)
def test_the_binary_parts_lengths_must_agree(
    shared_node: Node, length: str | None, extra: bytes, words: str
) -> None:
    head = json.dumps(
        {
            "inputs": [
                {"name": "x", "shape": [1, 16], "datatype": "FP32", "parameters": {"binary_data_size": 64}}
            ]
        }
    ).encode()
    told = {"Inference-Header-Content-Length": length or str(len(head))}
    answer = shared_node.request("POST", "/v2/models/mlp/infer", head + bytes(64) + extra, headers=told)
    if words:
        assert words in refused(answer, 400)
    else:
        assert answer.status == 200
    short = shared_node.request(
        "POST",
        "/v2/models/mlp/infer",
        head + bytes(60),
        headers={**told, "Inference-Header-Content-Length": str(len(head))},
    )
    assert "expecting 4 additional bytes" in refused(short, 400)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"inputs":' + b"[" * 5000, b"{}"])
def test_what_is_no_request_is_400(shared_node: Node, body: bytes) -> None:
    refused(shared_node.request("POST", "/v2/models/mlp/infer", body), 400)


@pytest.mark.parametrize(("coding", "status"), [("br", 501), ("gzip", 400), ("deflate", 400)])
def test_unknown_or_broken_content_encodings(shared_node: Node, coding: str, status: int) -> None:
    answer = shared_node.request(
        "POST", "/v2/models/mlp/infer", b"rubbish", headers={"Content-Encoding": coding}
    )
    refused(answer, status)


def test_a_failing_row_fails_alone(shared_node: Node) -> None:
    answers: list[tuple[int, Answer]] = []

    def ask(index: int) -> None:
        tensor = {"name": "index", "shape": [1, 1], "datatype": "INT64", "data": [index]}
        answers.append((index, shared_node.infer("lookup", [tensor])))

    threads = [threading.Thread(target=ask, args=(77 if n % 6 == 0 else n % 10,)) for n in range(48)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 48
    for index, answer in answers:
        if index == 77:
            sentence = refused(answer, 500)
            assert "the model failed" in sentence and "/" not in sentence
        else:
            assert answer.json["outputs"][0]["data"] == [float(index)]


def test_ids_and_traces_are_echoed_or_made(shared_node: Node) -> None:
    trace = "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"
    told = {"x-request-id": "my-id", "traceparent": trace}
    answer = shared_node.infer("mlp", [X], headers=told)
    assert answer.headers["x-request-id"] == "my-id"
    parts = answer.headers["traceparent"].split("-")
    assert parts[1] == "ab" * 16 and parts[2] != "cd" * 8 and parts[3] == "01"
    made = shared_node.infer("mlp", [X], headers={"x-request-id": "a b", "traceparent": "00-zz"})
    assert made.headers["x-request-id"] != "a b" and len(made.headers["traceparent"]) == 55


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    base = tmp_path_factory.mktemp("limited")
    versions = {
        ("mlp", 1): models.mlp(base / "mlp"),
        ("slow", 1): models.slow(base / "slow", limit=4, batch=1),
        ("hasty", 1): models.slow(base / "hasty", timeout_ms=1500),
    }
    quotas = (
        QuotaSpec("acme", "mlp", 2.0, 3, None),
        QuotaSpec("globex", "mlp", None, None, None),
        QuotaSpec("acme", "slow", None, None, 1),
        QuotaSpec("globex", "slow", None, None, None),
        QuotaSpec("globex", "hasty", None, None, None),
    )
    node = Node(tmp_path_factory.mktemp("limited-node"), versions, quotas=quotas)
    try:
        yield node.start()
    finally:
        node.stop()


def turns(count: int) -> list[dict[str, Any]]:
    return [{"name": "turns", "shape": [1, 1], "datatype": "INT64", "data": [count]}]


def in_background(
    node: Node, count: int, key: str, many: int = 1
) -> tuple[list[Answer], list[threading.Thread]]:
    answers: list[Answer] = []
    threads = [
        threading.Thread(target=lambda: answers.append(node.infer("slow", turns(count), key=key)))
        for _ in range(many)
    ]
    for thread in threads:
        thread.start()
    return answers, threads


def test_a_spent_rate_is_429_and_explains_itself(limited: Node) -> None:
    answers = [limited.infer("mlp", [X]) for _ in range(5)]
    assert [answer.status for answer in answers[:3]] == [200, 200, 200]
    last = answers[-1]
    sentence = refused(last, 429)
    assert "rate limit of 2 requests a second (burst 3)" in sentence and "0 are left" in sentence
    limit = last.json["limit"]
    assert limit["name"] == "rate" and limit["value"] == 2.0 and limit["remaining"] == 0
    assert 0 < limit["retry_after_seconds"] <= 1
    assert last.headers["retry-after"] == "1" and last.headers["x-ratelimit-limit"] == "2"
    assert last.headers["x-ratelimit-remaining"] == "0" and int(last.headers["x-ratelimit-reset"]) >= 1
    assert limited.infer("mlp", [X], key=GLOBEX).status == 200
    text = limited.request("GET", "/metrics", key=None).body.decode()
    assert 'pilothouse_refused_total{tenant="acme",service="mlp",limit="rate"}' in text


def test_concurrency_over_its_quota_is_429_and_is_given_back(limited: Node) -> None:
    answers, threads = in_background(limited, 10_000, ACME)
    time.sleep(0.1)
    told = refused(limited.infer("slow", turns(1)), 429)
    assert "concurrency limit is 1" in told
    for thread in threads:
        thread.join()
    assert [answer.status for answer in answers] == [200]
    assert limited.infer("slow", turns(1)).status == 200


def test_a_full_queue_is_503_but_a_tenant_below_its_share_gets_in(limited: Node) -> None:
    answers, threads = in_background(limited, 20_000, GLOBEX, many=6)
    time.sleep(0.1)
    mine = limited.infer("slow", turns(1))
    for thread in threads:
        thread.join()
    assert mine.status == 200, mine.body
    full = [answer for answer in answers if answer.status == 503]
    assert len(full) == 3
    assert all("its limit is 4" in refused(answer, 503) and answer.headers["retry-after"] for answer in full)


def test_a_passed_deadline_is_504_and_a_client_may_only_shorten_it(limited: Node) -> None:
    began = time.monotonic()
    answer = limited.infer("hasty", turns(20_000), key=GLOBEX, parameters={"timeout": 100_000})
    assert "deadline of 100 ms passed" in refused(answer, 504)
    assert time.monotonic() - began < 1.0
    began = time.monotonic()
    answer = limited.infer("hasty", turns(150_000), key=GLOBEX, parameters={"timeout": 99_000_000})
    assert "deadline of 1500 ms passed" in refused(answer, 504)
    assert time.monotonic() - began < 3.0


def test_a_body_above_the_limit_is_413(shared_node: Node) -> None:
    answer = shared_node.request("POST", "/v2/models/mlp/infer", bytes(65 << 20))
    assert "the limit is" in refused(answer, 413)


def test_health_and_metrics_need_no_key_here(shared_node: Node, tmp_path: Path) -> None:
    for path in ("/healthz", "/readyz", "/metrics", "/v2/health/live", "/v2/health/ready", "/v2", "/v2/"):
        assert shared_node.request("GET", path, key=None).status == 200, path
    assert shared_node.request("GET", "/v2/models/mlp", key=None).status == 401
    assert shared_node.request("GET", "/v2/models/mlp", key=OWNER).status == 200


def test_a_client_that_leaves_gives_its_place_back(node: Node, tmp_path: Path) -> None:
    node.versions = {("slow", 1): models.slow(tmp_path / "slow", batch=1)}
    node.quotas = (QuotaSpec("acme", "slow", None, None, 2),)
    node.start()
    turns = [{"name": "turns", "shape": [1, 1], "datatype": "INT64", "data": [3000]}]

    def impatient() -> None:
        body = json.dumps({"inputs": turns}).encode()
        head = f"POST /v2/models/slow/infer HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {ACME}\r\n"
        with socket.create_connection(("127.0.0.1", node.port), timeout=10) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.sendall(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            time.sleep(0.05)

    for _ in range(4):
        impatient()
    wait_until(lambda: node.status().pools[0].requests == 0, seconds=5, what="places to be given back")
    assert node.infer("slow", turns, key=ACME).status == 200
    series = {(s.name, s.labels.get("code")): s.value for s in counters(node.folder / "plane.sock").series}
    assert series["pilothouse_requests_total", "499"] >= 2
