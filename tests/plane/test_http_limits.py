"""Limits of the HTTP server that would take long or much to reach with a real plane: small ones, in this process."""

import asyncio
import contextlib
import json
import socket
import struct
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest

from inference.plane.exchange import Exchange, Limits
from inference.plane.http import Server
from inference.plane.refusals import RefusedError, body

GET = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
LIMITS = Limits(
    body_bytes=4096,
    buffered_bytes=6000,
    connections=3,
    header_seconds=0.4,
    body_seconds=0.4,
    idle_seconds=0.6,
    write_seconds=0.4,
)


class Echo:
    """Answers with the body's length; a target of /wait is answered by the test, /large is long."""

    def __init__(self) -> None:
        self.waiting: list[Exchange] = []
        self.left: list[Exchange] = []

    def admit(self, exchange: Exchange) -> None:
        if exchange.target == b"/no":
            raise RefusedError(404, "Not Found")

    def serve(self, exchange: Exchange) -> None:
        if exchange.target == b"/wait":
            self.waiting.append(exchange)
            return
        content = bytes(32 << 20) if exchange.target == b"/large" else b"%d" % len(exchange.body)
        exchange.connection.send(exchange, 200, b"", content)

    def refuse(self, exchange: Exchange, error: RefusedError) -> None:
        exchange.connection.send(exchange, error.status, b"", body(error))

    def gone(self, exchange: Exchange) -> None:
        self.left.append(exchange)


class Running:
    def __init__(self, echo: Echo, server: Server, port: int) -> None:
        self.echo, self.server, self.port = echo, server, port

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    echo = Echo()
    server = Server(echo, LIMITS)
    listener = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0)

    async def clock() -> None:
        while True:
            server.tick(time.monotonic())
            await asyncio.sleep(0.05)

    ticking = asyncio.create_task(clock())
    yield Running(echo, server, listener.sockets[0].getsockname()[1])
    ticking.cancel()
    listener.close()
    for connection in list(server.connections):
        connection.time_out()


def reset(writer: asyncio.StreamWriter) -> None:
    """Leave without a goodbye; an orderly end of file only says that no more requests come."""
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
    size = next(int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"content-length:"))
    return int(head.split()[1]), await reader.readexactly(size)


async def until(true: Callable[[], bool]) -> None:
    for _ in range(500):
        if true():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("waited 5 s in vain")


async def closed(reader: asyncio.StreamReader) -> bool:
    with contextlib.suppress(ConnectionError):
        return await asyncio.wait_for(reader.read(), 5) == b""
    return True


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HT",
        b"GET / HTTP/1.1\r\nHost: h\r\n",
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nabc",
    ],
)
async def test_a_request_that_stops_half_way_is_408(running: Running, sent: bytes) -> None:
    reader, writer = await running.connect()
    writer.write(sent)
    status, told = await answer(reader)
    assert status == 408 and "took too long" in json.loads(told)["error"]
    writer.close()


async def test_a_request_dripping_in_is_timed_out_as_a_whole(running: Running) -> None:
    reader, writer = await running.connect()
    began = time.monotonic()

    async def drip() -> None:
        writer.write(b"GET / HTTP/1.1\r\nHost: h\r\nX: ")
        for _ in range(100):
            writer.write(b"a")
            await asyncio.sleep(0.02)

    dripping = asyncio.create_task(drip())
    assert (await answer(reader))[0] == 408
    assert time.monotonic() - began < 1.5
    dripping.cancel()
    writer.close()


async def test_silent_and_idle_connections_are_closed_without_a_word(running: Running) -> None:
    silent, _ = await running.connect()
    idle, writer = await running.connect()
    writer.write(GET)
    assert (await answer(idle))[0] == 200
    assert await closed(silent) and await closed(idle)
    assert running.server.connections == set()


async def test_one_connection_too_many_is_503(running: Running) -> None:
    streams = [await running.connect() for _ in range(4)]
    status, told = await answer(streams[-1][0])
    assert status == 503 and "too many connections" in json.loads(told)["error"]
    streams[0][1].write(GET)
    assert (await answer(streams[0][0]))[0] == 200


async def test_bodies_of_all_connections_share_one_bound_and_give_it_back(running: Running) -> None:
    post = b"POST %s HTTP/1.1\r\nHost: h\r\nContent-Length: 4000\r\n\r\n" + bytes(4000)
    first, first_writer = await running.connect()
    first_writer.write(post % b"/wait")
    second, second_writer = await running.connect()
    await until(lambda: bool(running.echo.waiting))
    second_writer.write(post % b"/")
    assert (await answer(second))[0] == 503
    exchange: Any = running.echo.waiting.pop()
    exchange.connection.send(exchange, 200, b"", b"done")
    assert (await answer(first))[0] == 200
    assert running.server.buffered == 0
    third, third_writer = await running.connect()
    third_writer.write(post % b"/")
    assert (await answer(third)) == (200, b"4000")


async def test_a_client_that_leaves_is_noticed_once_and_its_body_forgotten(running: Running) -> None:
    _, writer = await running.connect()
    writer.write(b"POST /wait HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n" + bytes(100))
    await until(lambda: bool(running.echo.waiting))
    reset(writer)
    await until(lambda: bool(running.echo.left))
    exchange: Any = running.echo.waiting.pop()
    exchange.connection.send(exchange, 200, b"", b"late")  # falls on the floor
    assert running.echo.left == [exchange] and running.server.buffered == 0


async def test_a_client_that_has_said_all_still_gets_all_its_answers(running: Running) -> None:
    reader, writer = await running.connect()
    wait = GET.replace(b"/ ", b"/wait ")
    writer.write(GET + wait + wait + GET)
    writer.write_eof()
    assert (await answer(reader)) == (200, b"0")
    for _ in range(2):
        await until(lambda: bool(running.echo.waiting))
        await asyncio.sleep(0.1)
        exchange: Any = running.echo.waiting.pop()
        exchange.connection.send(exchange, 200, b"", b"late")
        assert (await answer(reader)) == (200, b"late")
    assert (await answer(reader)) == (200, b"0")
    assert await closed(reader)
    await until(lambda: not running.server.connections)
    assert running.echo.left == [] and running.server.buffered == 0


@pytest.mark.parametrize(
    ("sent", "status"),
    [(b"", None), (GET[:-2], 400), (GET + GET[:9], 200), (b"GET /no HTTP/1.1\r\n\r\n", 400)],
)
async def test_a_half_closed_connection_is_closed_at_once_when_nothing_is_owed(
    running: Running, sent: bytes, status: int | None
) -> None:
    reader, writer = await running.connect()
    began = time.monotonic()
    writer.write(sent)
    writer.write_eof()
    if status is not None:
        assert (await answer(reader))[0] == status
    if status == 200:  # what came after it was half a request
        assert (await answer(reader))[0] == 400
    assert await closed(reader)
    assert time.monotonic() - began < LIMITS.header_seconds


async def test_a_large_answer_reaches_a_half_closed_client_whole(running: Running) -> None:
    running.server.limits = replace(LIMITS, write_seconds=10)
    reader, writer = await running.connect()
    writer.write(GET.replace(b"/ ", b"/large "))
    writer.write_eof()
    await asyncio.sleep(0.1)
    assert len((await answer(reader))[1]) == 32 << 20
    assert await closed(reader)


async def test_a_client_that_does_not_read_is_cut_off(running: Running) -> None:
    _, writer = await running.connect()
    writer.write(b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n")
    await asyncio.sleep(0.2)
    assert len(running.server.connections) == 1
    await until(lambda: not running.server.connections)
    writer.close()


async def test_a_small_refused_body_is_skipped_and_the_connection_lives(running: Running) -> None:
    reader, writer = await running.connect()
    writer.write(b"POST /no HTTP/1.1\r\nHost: h\r\nContent-Length: 3000\r\n\r\n" + bytes(3000) + GET)
    assert (await answer(reader))[0] == 404
    assert (await answer(reader)) == (200, b"0")
    assert running.server.buffered == 0


async def test_draining_answers_what_is_in_hand_and_closes_the_rest(running: Running) -> None:
    busy, busy_writer = await running.connect()
    busy_writer.write(b"GET /wait HTTP/1.1\r\nHost: h\r\n\r\n")
    idle, _ = await running.connect()
    await until(lambda: bool(running.echo.waiting) and len(running.server.connections) == 2)
    running.server.drain()
    assert await closed(idle)
    exchange: Any = running.echo.waiting.pop()
    exchange.connection.send(exchange, 200, b"", b"last")
    assert (await answer(busy)) == (200, b"last")
    assert await closed(busy)


async def test_hundreds_of_like_requests_in_two_pieces_each_are_no_endless_header(running: Running) -> None:
    reader, writer = await running.connect()
    for _ in range(400):  # more than 16 KiB of heads in all
        writer.write(
            b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nX-Filler: " + b"x" * 40 + b"\r\n\r\n"
        )
        await writer.drain()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        writer.write(b"abc")
        assert await answer(reader) == (200, b"3")
    writer.close()
