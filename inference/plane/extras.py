"""Triton's repository, shared memory, trace and log addresses over HTTP."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import orjson

from inference.plane import oip, regions, repository
from inference.plane.exchange import Exchange
from inference.plane.gateway import Gateway
from inference.plane.refusals import RefusedError
from inference.plane.regions import Regions
from inference.plane.repository import Control

log = logging.getLogger(__name__)
JSON = b"content-type: application/json\r\n"
_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}"


class Asked(Protocol):
    """What a path said. arg: the name of a region, "" for all."""

    @property
    def service(self) -> str: ...

    @property
    def arg(self) -> str: ...


class House(Protocol):
    """The application these addresses belong to."""

    gateway: Gateway
    regions: Regions

    def ids(self, exchange: Exchange) -> bytes: ...

    def refuse(self, exchange: Exchange, error: RefusedError) -> None: ...


Row = tuple[str, str, bool, Callable[[Exchange, Any], None]]


class Extras:
    """control: who loads and unloads by a client's order; None where nobody does."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.control: Control | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def rows(self) -> list[Row]:
        """Pattern, method, whether a key is needed, handler."""
        model = rf"/v2/repository/models/(?P<service>{_NAME})"
        region = r"(?:/region/(?P<arg>[^/]{1,255}))?"
        rows: list[Row] = [
            (r"/v2/repository/index", "POST", True, self._index),
            (rf"{model}/load", "POST", True, self._load),
            (rf"{model}/unload", "POST", True, self._unload),
            (r"/v2/repository/[^/]+/(?:index|models/[^/]+/(?:load|unload))", "POST", True, self._named),
            (rf"/v2/systemsharedmemory{region}/status", "GET", True, self._status),
            (rf"/v2/systemsharedmemory{region}/unregister", "POST", True, self._unregister),
            (rf"/v2/systemsharedmemory{region}/register", "POST", True, self._register),
            (rf"/v2/cudasharedmemory{region}/status", "GET", True, self._cuda_status),
            (rf"/v2/cudasharedmemory{region}/unregister", "POST", True, self._nothing),
            (rf"/v2/cudasharedmemory{region}/register", "POST", True, self._cuda_register),
        ]
        for path, handler in ((r"(?:/models/[^/]+)?/trace/setting", self._trace), (r"/logging", self._log)):
            rows.append((rf"/v2{path}", "GET, POST", True, handler))
        return rows

    def _json(self, exchange: Exchange, told: Any) -> None:
        exchange.connection.send(exchange, 200, JSON + self.house.ids(exchange), orjson.dumps(told))

    def _nothing(self, exchange: Exchange, asked: Asked) -> None:
        exchange.connection.send(exchange, 200, b"", b"")

    # Repository

    def _index(self, exchange: Exchange, asked: Asked) -> None:
        self._json(exchange, oip.index(self.house.gateway, exchange.tenant, exchange.body))

    def _named(self, exchange: Exchange, asked: Asked) -> None:
        raise RefusedError(501, "there is one repository, and it has no name")

    def _load(self, exchange: Exchange, asked: Asked) -> None:
        self._order(exchange, self._control(exchange, asked).load(asked.service))

    def _unload(self, exchange: Exchange, asked: Asked) -> None:
        self._order(exchange, self._control(exchange, asked).unload(asked.service))

    def _control(self, exchange: Exchange, asked: Asked) -> Control:
        told = repository.parameters_of(exchange.body)
        return repository.check_control(
            self.house.gateway, self.control, exchange.tenant, asked.service, told
        )

    def _order(self, exchange: Exchange, order: Coroutine[Any, Any, None]) -> None:
        """Answered when it is done; it is carried out also when the client does not wait."""

        async def carry_out() -> None:
            try:
                await order
                exchange.connection.send(exchange, 200, self.house.ids(exchange), b"")
            except RefusedError as error:
                self.house.refuse(exchange, error)
            except Exception:
                log.exception("an order to load or unload failed inside the plane")
                self.house.refuse(exchange, RefusedError(500, "internal error"))

        task = asyncio.get_running_loop().create_task(carry_out())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Shared memory

    def _status(self, exchange: Exchange, asked: Asked) -> None:
        self._json(exchange, self.house.regions.of(exchange.tenant).status(asked.arg))

    def _register(self, exchange: Exchange, asked: Asked) -> None:
        if not self.house.regions.enabled:
            raise RefusedError(501, regions.DISABLED)
        told = repository.read_object(exchange.body)
        self.house.regions.register(
            exchange.tenant, asked.arg, told.get("key"), told.get("offset", 0), told.get("byte_size")
        )
        self._nothing(exchange, asked)

    def _unregister(self, exchange: Exchange, asked: Asked) -> None:
        self.house.regions.unregister(exchange.tenant, asked.arg)
        self._nothing(exchange, asked)

    def _cuda_status(self, exchange: Exchange, asked: Asked) -> None:
        if asked.arg:
            raise RefusedError(404, f"cuda shared memory region {asked.arg} is not registered")
        self._json(exchange, [])

    def _cuda_register(self, exchange: Exchange, asked: Asked) -> None:
        raise RefusedError(501, regions.NO_CUDA)

    # Settings

    def _trace(self, exchange: Exchange, asked: Asked) -> None:
        if exchange.method == b"POST":
            told = repository.read_object(exchange.body)
            repository.check_settings("trace", dict(repository.TRACE), told)
        self._json(exchange, repository.trace_json())

    def _log(self, exchange: Exchange, asked: Asked) -> None:
        if exchange.method == b"POST":
            told = repository.read_object(exchange.body)
            repository.check_settings("log", dict(repository.LOG), told)
        self._json(exchange, repository.LOG)
