"""Hostile and unusual HTTP on a raw socket."""

import contextlib
import gzip
import json
import socket
import time
from collections.abc import Iterator

import pytest

from tests.plane.parts import ACME, Node

BODY = json.dumps(
    {"inputs": [{"name": "x", "shape": [1, 16], "datatype": "FP32", "data": [0.5] * 16}]}
).encode()
HEAD = b"POST /v2/models/mlp/infer HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer " + ACME.encode() + b"\r\n"
PLAIN = HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
LIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: h\r\n\r\n"


@pytest.fixture
def peer(shared_node: Node) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", shared_node.port), timeout=20) as sock:
        yield sock


def read_answer(sock: socket.socket, kept: bytearray) -> tuple[int, bytes]:
    """One answer by its content-length; what follows stays in `kept`."""
    while b"\r\n\r\n" not in kept:
        part = sock.recv(65536)
        if not part:
            raise EOFError(bytes(kept))
        kept += part
    head, _, rest = bytes(kept).partition(b"\r\n\r\n")
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    size = int(lengths[0].split(b":")[1])
    while len(rest) < size:
        rest += sock.recv(65536)
    kept[:] = rest[size:]
    return int(head.split()[1]), rest[:size]


def is_closed(sock: socket.socket) -> bool:
    with contextlib.suppress(ConnectionError):
        return sock.recv(65536) == b""
    return True


def test_a_thousand_requests_with_errors_share_one_connection(peer: socket.socket) -> None:
    kept = bytearray()
    broken = HEAD + b"Content-Length: 2\r\n\r\n{}"
    foreign = PLAIN.replace(b"/mlp/", b"/none/")
    for index in range(1000):
        request, status = [(PLAIN, 200), (broken, 400), (foreign, 404), (LIVE, 200)][index % 4]
        peer.sendall(request)
        assert read_answer(peer, kept)[0] == status
    assert kept == b""


def test_pipelined_requests_are_answered_in_order(peer: socket.socket) -> None:
    kept = bytearray()
    count = 300
    requests = []
    for index in range(count):
        body = BODY[:-1] + b', "id": "%d"}' % index
        requests.append(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body if index % 3 else LIVE)
    peer.sendall(b"".join(requests))
    for index in range(count):
        status, body = read_answer(peer, kept)
        assert status == 200
        if index % 3:
            assert json.loads(body)["id"] == str(index)


def test_a_request_in_single_bytes_is_read(peer: socket.socket) -> None:
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for byte in PLAIN:
        peer.sendall(bytes([byte]))
    assert read_answer(peer, bytearray())[0] == 200


def test_chunked_bodies_are_read(peer: socket.socket) -> None:
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (BODY[:10], BODY[10:11], BODY[11:]))
    peer.sendall(
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\nauthorization: nobody\r\n\r\n"
    )
    assert read_answer(peer, bytearray())[0] == 200
    peer.sendall(LIVE)
    assert read_answer(peer, bytearray())[0] == 200


def test_expect_continue_is_answered_before_the_body(peer: socket.socket) -> None:
    peer.sendall(HEAD + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(BODY))
    assert peer.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
    peer.sendall(BODY)
    assert read_answer(peer, bytearray())[0] == 200


def test_a_refused_expectation_gets_no_continue(peer: socket.socket) -> None:
    head = HEAD.replace(ACME.encode(), b"ph_wrong")
    peer.sendall(head + b"Expect: 100-continue\r\nContent-Length: 9000000\r\n\r\n")
    assert read_answer(peer, bytearray())[0] == 401
    assert is_closed(peer)


def test_an_old_client_gets_its_connection_closed(peer: socket.socket) -> None:
    peer.sendall(b"GET /v2/health/live HTTP/1.0\r\n\r\n")
    assert read_answer(peer, bytearray())[0] == 200
    assert is_closed(peer)


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(50), 400),
        (b"GARBAGE\r\n\r\n", 400),
        (b"GET / HTTP/9.9\r\n\r\n", 400),
        (HEAD + b"Content-Length: abc\r\n\r\n", 400),
        (HEAD + b"Content-Length: -5\r\n\r\n", 400),
        (HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!", 400),
        (HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 40 + b"\r\n", 400),
        (HEAD + b"Content-Length: 99999999999\r\n\r\n", 413),
        (HEAD + b"Content-Length: 99999999999999999999999\r\n\r\n", 400),
        (HEAD + b"Authorization: Bearer other\r\n\r\n", 400),
        (HEAD + b"Inference-Header-Content-Length: 1\r\nInference-Header-Content-Length: 2\r\n\r\n", 400),
        (HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
        (HEAD + b"Transfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n", 501),
        (b"GET /v2/health/live HTTP/1.1\r\n\r\n", 400),
        (b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET /v2/health/live HTTP/0.9\r\nHost: h\r\n\r\n", 505),
        (b"GET /v2/health/live HTTP/2.0\r\nHost: h\r\n\r\n", 505),
        (b"GET /v2/health/live\r\n\r\n", 505),
        (b"GET /" + b"a" * 5000 + b" HTTP/1.1\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 20_000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + b"X: a\r\n" * 600 + b"\r\n", 431),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * 70_000, 413),
        (HEAD + b"Upgrade: h2c\r\nConnection: Upgrade\r\nContent-Length: 5\r\n\r\nhello", 400),
    ],
)
def test_hostile_requests_are_refused_and_the_connection_closed(
    peer: socket.socket, request_bytes: bytes, status: int
) -> None:
    with contextlib.suppress(ConnectionError):
        peer.sendall(request_bytes)
    got, body = read_answer(peer, bytearray())
    assert got == status, body
    assert json.loads(body)["error"]
    assert is_closed(peer)


def test_a_client_that_closed_its_half_gets_its_answer(peer: socket.socket) -> None:
    peer.sendall(PLAIN * 40)
    peer.shutdown(socket.SHUT_WR)
    kept = bytearray()
    assert {read_answer(peer, kept)[0] for _ in range(40)} == {200}
    assert kept == b"" and is_closed(peer)


def test_an_offer_to_upgrade_is_ignored(peer: socket.socket) -> None:
    peer.sendall(b"GET /v2 HTTP/1.1\r\nHost: h\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n")
    kept = bytearray()
    assert read_answer(peer, kept)[0] == 200
    assert kept == b"" and is_closed(peer)


def test_an_endless_header_is_cut_off(peer: socket.socket) -> None:
    peer.sendall(b"GET / HTTP/1.1\r\nX: ")
    with contextlib.suppress(ConnectionError):
        for _ in range(100):
            peer.sendall(b"a" * 4096)
            time.sleep(0.001)
    assert read_answer(peer, bytearray())[0] == 431


def test_a_bomb_is_not_unpacked(shared_node: Node) -> None:
    bomb = gzip.compress(bytes(65 << 20), 1)
    answer = shared_node.request("POST", "/v2/models/mlp/infer", bomb, headers={"Content-Encoding": "gzip"})
    assert answer.status == 413 and "when unpacked" in answer.json["error"]


def test_the_plane_is_well_after_all_that(shared_node: Node) -> None:
    assert shared_node.plane is not None and shared_node.plane.process.poll() is None
    assert "failed inside the plane" not in (shared_node.folder / "plane.log").read_text()
    assert {link.inflight for link in shared_node.status().links} == {0}
