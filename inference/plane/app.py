"""The plane's HTTP application: paths to answers, and the way of an inference request through the house."""

import ipaddress
import re
import secrets
import time
import zlib
from collections.abc import Callable
from typing import Any

import orjson

from inference.plane import answers, oip, refusals
from inference.plane.calls import CLIENT_LEFT
from inference.plane.exchange import Exchange, Limits
from inference.plane.extras import Extras
from inference.plane.gateway import Gateway, Service
from inference.plane.http_calls import JSON, HttpCall, Memo, Route
from inference.plane.refusals import RefusedError
from inference.plane.regions import Regions
from inference.plane.tls import Identities

PROTOCOL = "http"
MAX_TARGETS = 4096
NEVER = float("inf")
_SERVICE = r"(?P<service>[A-Za-z0-9][A-Za-z0-9._-]{0,254})"
_VERSION = r"(?:/versions/(?P<version>[0-9]{1,9}))?"
_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}")
_TRACEPARENT = re.compile(rb"00-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-([0-9a-f]{2})")


class App:
    """public_metrics: /metrics is open to peers beyond this machine without a key."""

    def __init__(
        self,
        gateway: Gateway,
        limits: Limits,
        *,
        public_metrics: bool = False,
        memory: Regions | None = None,
        identities: Identities | None = None,
    ) -> None:
        self.gateway = gateway
        self.regions = memory or Regions(enabled=False)
        self.identities = identities or Identities()
        self.extras = Extras(self)
        self.limits = limits
        self.public_metrics = public_metrics
        self._targets: dict[bytes, Route] = {}
        self._generation = 0
        self._serial = 0
        self._prefix = secrets.token_hex(8).encode()
        self._spans = secrets.randbits(63)
        own = self._prefix
        self._ids = b"x-request-id: " + own + b"-%x\r\ntraceparent: 00-" + own + b"%016x-%016x-00\r\n"
        self._patterns = self._table()

    def _table(self) -> list[tuple[re.Pattern[str], str, bool, Callable[[Exchange, Route], None]]]:
        model = rf"/v2/models/{_SERVICE}{_VERSION}"
        rows: list[tuple[str, str, bool, Callable[[Exchange, Route], None]]] = [
            (r"/healthz", "GET", False, self._alive),
            (r"/readyz", "GET", False, self._readyz),
            (r"/metrics", "GET", False, self._metrics),
            (r"/v2/?", "GET", False, self._server),
            (r"/v2/health/live", "GET", False, self._alive),
            (r"/v2/health/ready", "GET", False, self._ready),
            (r"/v2/models/stats", "GET", True, self._all_stats),
            (rf"{model}/infer", "POST", True, self._infer),
            (rf"{model}", "GET", True, self._model),
            (rf"{model}/ready", "GET", True, self._model_ready),
            (rf"{model}/config", "GET", True, self._config),
            (rf"{model}/stats", "GET", True, self._stats),
            *self.extras.rows(),
        ]
        return [(re.compile(pattern), method, keyed, handler) for pattern, method, keyed, handler in rows]

    # What the connections call

    def admit(self, exchange: Exchange) -> None:
        memo: Memo | None = exchange.connection.memo
        if (
            memo is not None
            and memo.target == exchange.target
            and memo.authorization == exchange.authorization
            and memo.generation == self._generation
            and exchange.method == b"POST"
            and exchange.tenant_id is None
            and exchange.tenant_alias is None
            and (memo.expires_at == NEVER or memo.expires_at > time.time())
        ):
            exchange.route, exchange.tenant, exchange.memo = memo.route, memo.tenant, memo
            return
        route = self._targets.get(exchange.target) or self._resolve(exchange.target)
        if exchange.method != route.method and exchange.method not in route.method.split(b", "):
            raise RefusedError(405, "Method Not Allowed")
        exchange.route = route
        if not route.keyed:
            return
        admission = self.gateway.admission
        tenant = exchange.tenant = self._told_tenant(exchange) or admission.tenant_of(exchange.authorization)
        if route.service and not admission.may(tenant, route.service):
            raise RefusedError(404, f"Request for unknown model: '{route.service}' is not found")
        if route.handler == self._infer:
            self._remember(exchange, route, tenant)

    def _remember(self, exchange: Exchange, route: Route, tenant: str) -> None:
        admission = self.gateway.admission
        grant, service = admission.grant(tenant, route.service), self.gateway.services.get(route.service)
        if grant is None or service is None:
            return
        expires_at = admission.expires_at(exchange.authorization)
        memo = exchange.memo = Memo(
            exchange.target,
            exchange.authorization,
            self._generation,
            expires_at,
            route,
            tenant,
            grant,
            service,
        )
        if exchange.tenant_id is None and exchange.tenant_alias is None:
            exchange.connection.memo = memo

    def _told_tenant(self, exchange: Exchange) -> str | None:
        """The tenant that a trusted gateway names; from anyone else the header counts for nothing."""
        if exchange.tenant_id is None and exchange.tenant_alias is None:
            return None
        told = [("x-tenant-id", exchange.tenant_id), ("x_tenant_id", exchange.tenant_alias)]
        given = [(name, value) for name, value in told if value is not None]
        return self.identities.tenant(given, exchange.connection.names)

    def serve(self, exchange: Exchange) -> None:
        route: Route = exchange.route
        route.handler(exchange, route)

    def refuse(self, exchange: Exchange, error: RefusedError) -> None:
        call: HttpCall | None = exchange.state
        if call is not None and call.entered:
            call.refused(error)
            return
        exchange.state = None
        route: Route | None = exchange.route
        service = route.service if route is not None and route.service in self.gateway.services else ""
        if error.limit is not None:
            self.count_refusal(exchange.tenant, service, error.limit.name)
        if route is not None and route.method == b"POST":
            self.gateway.meters.outside[exchange.tenant, service, PROTOCOL, error.status] += 1
        head = JSON + refusals.headers(error) + self.ids(exchange)
        if error.status == 405:
            head += b"allow: %s\r\n" % self._resolve(exchange.target).method
        exchange.connection.send(exchange, error.status, head, refusals.body(error))

    def gone(self, exchange: Exchange) -> None:
        call: HttpCall | None = exchange.state
        if call is not None:
            exchange.state = None
            call.settle(CLIENT_LEFT)
            call.pool.cancel(call)

    def forget(self) -> None:
        """After new routes: a version may mean another pool now."""
        self._targets.clear()
        self._generation += 1

    def _resolve(self, target: bytes) -> Route:
        """Raises RefusedError 404. Only targets of services that exist are remembered, so strangers fill no memory."""
        path = target.partition(b"?")[0].decode("latin-1")
        for pattern, method, keyed, handler in self._patterns:
            match = pattern.fullmatch(path)
            if match is None:
                continue
            told = match.groupdict()
            number = told.get("version")
            route = Route(
                handler,
                method.encode(),
                keyed,
                told.get("service") or "",
                int(number) if number else None,
                told.get("arg") or "",
            )
            if route.service in self.gateway.services and len(self._targets) < MAX_TARGETS:
                self._targets[target] = route
            return route
        raise RefusedError(404, "Not Found")

    def count_refusal(self, tenant: str, service: str, limit: str) -> None:
        self.gateway.meters.refused[tenant, service, limit] += 1

    def ids(self, exchange: Exchange) -> bytes:
        """Lines with the request's id and trace, the client's where it sent usable ones."""
        self._serial = serial = self._serial + 1
        given, parent = exchange.request_id, exchange.traceparent
        span = (self._spans + serial) & 0xFFFFFFFFFFFFFFFF or 1
        if given is None and parent is None:
            return self._ids % (serial, serial, span)
        if given is None or _REQUEST_ID.fullmatch(given) is None:
            given = b"%s-%x" % (self._prefix, serial)
        match = _TRACEPARENT.fullmatch(parent) if parent is not None else None
        if match is None:
            trace = b"00-%s%016x-%016x-00" % (self._prefix, serial, span)
        else:
            trace = b"00-%s-%016x-%s" % (match[1], span, match[2])
        return b"x-request-id: %s\r\ntraceparent: %s\r\n" % (given, trace)

    # Inference

    def _infer(self, exchange: Exchange, route: Route) -> None:
        memo: Memo | None = exchange.memo
        if memo is None or memo.generation != self._generation:  # routes changed while the body came in
            self._remember(exchange, route, exchange.tenant)
            memo = exchange.memo
            if memo is None or memo.generation != self._generation:
                raise RefusedError(404, f"Request for unknown model: '{route.service}' is not found")
        service, number = memo.service, route.version
        if number is None:
            pool = service.choose(memo.tenant, exchange.routing)
        else:
            found = service.versions.get(number)
            if found is None:
                raise RefusedError(404, f"version {number} of {service.name} is not found")
            pool = found
        call = HttpCall(self.gateway, memo.tenant, memo.grant, pool, time.monotonic())
        call.app, call.exchange, call.name, call.places = self, exchange, "", None
        exchange.state = call
        if call.start():
            call.admitted()

    def unpacked(self, exchange: Exchange) -> bytes:
        """A compressed body, never bigger than an uncompressed one may be."""
        coding = (exchange.content_encoding or b"").strip().lower()
        if coding == b"identity":
            return exchange.body
        if coding not in (b"gzip", b"deflate"):
            raise RefusedError(501, "the content encodings known are gzip and deflate")
        reader = zlib.decompressobj(31 if coding == b"gzip" else 15)
        limit = self.limits.body_bytes
        try:
            body = reader.decompress(exchange.body, limit + 1)
        except zlib.error:
            raise RefusedError(400, f"the body is not {coding.decode()}") from None
        if len(body) > limit:
            raise RefusedError(413, f"the body is above the limit of {limit} bytes when unpacked")
        if not reader.eof or reader.unused_data:
            raise RefusedError(400, f"the body is not one whole {coding.decode()} stream")
        return body

    # Questions

    def _json(self, exchange: Exchange, told: Any, status: int = 200) -> None:
        body, coding = orjson.dumps(told), b""
        if exchange.accept_encoding is not None:
            coding, body = answers.compressed(exchange.accept_encoding, body)
        exchange.connection.send(exchange, status, JSON + coding + self.ids(exchange), body)

    def _service(self, route: Route) -> Service:
        service = self.gateway.services.get(route.service)
        if service is None:
            raise RefusedError(404, f"Request for unknown model: '{route.service}' is not found")
        return service

    def _alive(self, exchange: Exchange, route: Route) -> None:
        exchange.connection.send(exchange, 200, b"", b"")

    def _ready(self, exchange: Exchange, route: Route) -> None:
        reasons = self.gateway.unready()
        if reasons:
            raise RefusedError(400, "; ".join(reasons[:5]))  # Triton's status; probes should read /readyz
        exchange.connection.send(exchange, 200, b"", b"")

    def _readyz(self, exchange: Exchange, route: Route) -> None:
        reasons = self.gateway.unready()
        self._json(exchange, {"ready": not reasons, "reasons": reasons[:50]}, 503 if reasons else 200)

    def _metrics(self, exchange: Exchange, route: Route) -> None:
        if not self.public_metrics and not _is_loopback(exchange.connection.peer):
            self.gateway.admission.tenant_of(exchange.authorization)
        head = b"content-type: text/plain; version=0.0.4; charset=utf-8\r\n"
        exchange.connection.send(exchange, 200, head, self.gateway.exposition())

    def _server(self, exchange: Exchange, route: Route) -> None:
        self._json(exchange, oip.server(shared_memory=self.regions.enabled))

    def _model(self, exchange: Exchange, route: Route) -> None:
        self._json(exchange, oip.model(self._service(route), route.version))

    def _model_ready(self, exchange: Exchange, route: Route) -> None:
        oip.model_ready(self._service(route), route.version)
        exchange.connection.send(exchange, 200, b"", b"")

    def _config(self, exchange: Exchange, route: Route) -> None:
        self._json(exchange, oip.config(self._service(route), route.version))

    def _stats(self, exchange: Exchange, route: Route) -> None:
        service = self._service(route)
        pools = (
            [service.pinned(route.version)] if route.version is not None else list(service.versions.values())
        )
        self._json(exchange, oip.stats(pools))

    def _all_stats(self, exchange: Exchange, route: Route) -> None:
        may = self.gateway.admission.may
        self._json(exchange, oip.stats([p for p in self.gateway.pools() if may(exchange.tenant, p.service)]))


def _is_loopback(peer: str) -> bool:
    try:
        return ipaddress.ip_address(peer).is_loopback
    except ValueError:
        return False
