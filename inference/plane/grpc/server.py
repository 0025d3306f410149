"""The gRPC listener of a plane: who may call is decided before a message is read, and every refusal has its status."""

import logging
import math
from collections.abc import AsyncIterator, Sequence
from typing import Any, NoReturn

import grpc
from google.protobuf.message import DecodeError
from grpc import aio

from inference.plane.exchange import Limits
from inference.plane.gateway import Gateway
from inference.plane.grpc import health
from inference.plane.grpc.health import Health
from inference.plane.grpc.infer import Inference
from inference.plane.grpc.service import Method, Questions
from inference.plane.refusals import RefusedError
from inference.plane.regions import Regions
from inference.plane.tls import TENANT_HEADERS, Identities, TlsError, TlsFiles, Watch

log = logging.getLogger(__name__)

SERVICE = "inference.GRPCInferenceService"
_INFER, _STREAM = f"/{SERVICE}/ModelInfer", f"/{SERVICE}/ModelStreamInfer"
HEADER_BYTES = 64 << 10  # of a message beside its tensors, above the body's limit
METADATA_BYTES = 16 << 10
STREAMS = 1024  # of one connection at once
PING_SECONDS = 10  # clients that ping more often are hung up on, after two warnings
KEEPALIVE_SECONDS, KEEPALIVE_TIMEOUT_SECONDS = 60, 20
IDLE_SECONDS = 600
AGE_SECONDS, AGE_GRACE_SECONDS = 3600, 60  # so that clients find new planes; in hand is finished
CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT, 401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED, 404: grpc.StatusCode.NOT_FOUND,
    408: grpc.StatusCode.DEADLINE_EXCEEDED, 409: grpc.StatusCode.ALREADY_EXISTS,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED, 429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    499: grpc.StatusCode.CANCELLED, 500: grpc.StatusCode.INTERNAL, 501: grpc.StatusCode.UNIMPLEMENTED,
    503: grpc.StatusCode.UNAVAILABLE, 504: grpc.StatusCode.DEADLINE_EXCEEDED,
}  # fmt: skip


def options(limits: Limits, *, shared_port: bool) -> list[tuple[str, int]]:
    """shared_port: other planes of this node listen on the same one."""
    return [
        ("grpc.max_receive_message_length", limits.body_bytes + HEADER_BYTES),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_metadata_size", METADATA_BYTES),
        ("grpc.absolute_max_metadata_size", METADATA_BYTES),
        ("grpc.max_concurrent_streams", STREAMS),
        ("grpc.max_allowed_incoming_connections", limits.connections),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", PING_SECONDS * 1000),
        ("grpc.http2.max_ping_strikes", 2),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.keepalive_time_ms", KEEPALIVE_SECONDS * 1000),
        ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_SECONDS * 1000),
        ("grpc.max_connection_idle_ms", IDLE_SECONDS * 1000),
        ("grpc.max_connection_age_ms", AGE_SECONDS * 1000),
        ("grpc.max_connection_age_grace_ms", AGE_GRACE_SECONDS * 1000),
        ("grpc.server_handshake_timeout_ms", int(limits.header_seconds * 1000)),
        ("grpc.so_reuseport", int(shared_port)),
    ]


def hints(error: RefusedError) -> tuple[tuple[str, str], ...]:
    """Trailing metadata: when to try again, in seconds and in gRPC's own form, and which limit it was."""
    limit = error.limit
    if limit is None:
        return ()
    told = [
        ("retry-after", str(max(1, math.ceil(limit.retry_seconds)))),
        ("grpc-retry-pushback-ms", str(max(1, math.ceil(limit.retry_seconds * 1e3)))),
        ("pilothouse-limit", limit.name),
    ]
    if error.status == 429:
        told += [("x-ratelimit-limit", f"{limit.value:g}"), ("x-ratelimit-remaining", f"{limit.remaining:g}")]
    return tuple(told)


async def refuse(context: Any, error: RefusedError) -> NoReturn:
    """Ends the call: raises what gRPC takes for an answer."""
    await context.abort(CODES.get(error.status, grpc.StatusCode.UNKNOWN), str(error)[:4000], hints(error))
    raise AssertionError("abort has raised")


class Caller:
    """One call before its message is read: whose it is. Its methods are what gRPC awaits.

    tenant: None when it depends on the peer's certificate, which only the call's context knows.
    """

    __slots__ = ("app", "metadata", "method", "tenant")

    def __init__(
        self, app: "GrpcApp", tenant: str | None, metadata: Sequence[Any], method: Method | None
    ) -> None:
        self.app = app
        self.tenant = tenant
        self.metadata = metadata
        self.method = method

    def _tenant(self, context: Any) -> str:
        """Raises RefusedError."""
        if self.tenant is None:
            names = context.auth_context().get("x509_subject_alternative_name", ())
            self.tenant = self.app.tenant_of(self.metadata, [name.decode("latin-1") for name in names])
        return self.tenant

    async def infer(self, data: bytes, context: Any) -> bytes:
        try:
            tenant = self.tenant or self._tenant(context)
            headers = self.app.inference.routed(self.metadata)
            return await self.app.inference.one(tenant, data, context.time_remaining(), headers)
        except Exception as error:
            return await end(context, error)

    async def stream(self, requests: AsyncIterator[bytes], context: Any) -> None:
        try:
            headers = self.app.inference.routed(self.metadata)
            await self.app.inference.many(self._tenant(context), requests, context, headers)
        except Exception as error:
            await end(context, error)

    async def ask(self, data: bytes, context: Any) -> bytes:
        method = self.method
        assert method is not None
        try:
            tenant = self._tenant(context) if method.keyed else ""
            answer = await method.handler(tenant, method.request.FromString(data))
            return bytes(answer.SerializeToString())
        except Exception as error:
            return await end(context, error)

    async def check(self, data: bytes, context: Any) -> bytes:
        try:
            return self.app.health.check(data)
        except Exception as error:
            return await end(context, error)

    async def watch(self, data: bytes, context: Any) -> None:
        try:
            await self.app.health.watch(data, context)
        except Exception as error:
            await end(context, error)


async def end(context: Any, error: Exception) -> NoReturn:
    """A call that failed, told in the protocol's words; of our own mistakes the client learns nothing but that."""
    if isinstance(error, RefusedError):
        await refuse(context, error)
    if isinstance(error, DecodeError):
        await refuse(context, RefusedError(400, "the message cannot be decoded"))
    if isinstance(error, aio.AbortError):
        raise error
    log.error("a call failed inside the plane", exc_info=error)
    await refuse(context, RefusedError(500, "internal error"))


class Refusal:
    """A call that is refused whatever it says: its message is not even read."""

    def __init__(self, error: RefusedError) -> None:
        self.error = error

    async def answer(self, requests: AsyncIterator[bytes], context: Any) -> bytes:
        return await refuse(context, self.error)


class GrpcApp(grpc.GenericRpcHandler):
    def __init__(self, gateway: Gateway, memory: Regions, identities: Identities) -> None:
        self.gateway = gateway
        self.identities = identities
        self.questions = Questions(gateway, memory)
        self.inference = Inference(gateway, memory)
        self.health = Health(gateway)
        self._methods = {f"/{SERVICE}/{method.name}": method for method in self.questions.methods()}

    def service(self, handler_call_details: Any) -> Any:
        """The handler of a call; None, which is UNIMPLEMENTED, for a method that is not here."""
        name: str = handler_call_details.method
        metadata = handler_call_details.invocation_metadata or ()
        if name in (_INFER, _STREAM):
            try:
                tenant = self._early(metadata)
            except RefusedError as error:
                self.inference.count("", "", error)
                if name == _STREAM:
                    return grpc.stream_stream_rpc_method_handler(Refusal(error).answer)
                return grpc.stream_unary_rpc_method_handler(Refusal(error).answer)
            caller = Caller(self, tenant, metadata, None)
            if name == _INFER:
                return grpc.unary_unary_rpc_method_handler(caller.infer)
            return grpc.stream_stream_rpc_method_handler(caller.stream)
        caller = Caller(self, None, metadata, self._methods.get(name))
        if caller.method is not None:
            return grpc.unary_unary_rpc_method_handler(caller.ask)
        if name == f"/{health.SERVICE}/Check":
            return grpc.unary_unary_rpc_method_handler(caller.check)
        if name == f"/{health.SERVICE}/Watch":
            return grpc.unary_stream_rpc_method_handler(caller.watch)
        return None

    def _early(self, metadata: Sequence[Any]) -> str | None:
        """The tenant of a call, or None when the peer's certificate decides. Raises RefusedError."""
        if self.identities.trusted and any(name in TENANT_HEADERS for name, _ in metadata):
            return None
        return self.tenant_of(metadata, ())

    def tenant_of(self, metadata: Sequence[Any], names: Sequence[str]) -> str:
        """names: subject alternative names of the peer's certificate. Raises RefusedError."""
        keys = [value for name, value in metadata if name == "authorization"]
        if names:
            told = [(name, _bytes(value)) for name, value in metadata if name in TENANT_HEADERS]
            tenant = self.identities.tenant(told, names)
            if tenant is not None:
                return tenant
        if len(keys) > 1:
            raise RefusedError(400, "authorization is given twice")
        return self.gateway.admission.tenant_of(_bytes(keys[0]) if keys else None)

    def forget(self) -> None:
        """After new routes."""
        self.inference.reader.forget()


class GrpcServer:
    """Listens from `start` to `stop`."""

    def __init__(self, app: GrpcApp, limits: Limits) -> None:
        self.app = app
        self.limits = limits
        self.port = 0
        self._server: aio.Server | None = None

    async def start(self, host: str, port: int, tls: TlsFiles | None, *, shared_port: bool = False) -> None:
        """Raises OSError with a sentence, TlsError."""
        server = aio.server(handlers=[self.app], options=options(self.limits, shared_port=shared_port))
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            if tls is None:
                self.port = server.add_insecure_port(address)
            else:
                self.port = server.add_secure_port(address, credentials(tls))
        except RuntimeError:
            raise OSError(f"port {port} on {host} is in use or cannot be bound (gRPC)") from None
        await server.start()
        self._server = server

    async def stop(self, grace_seconds: float) -> None:
        """No new calls; those in hand are answered within the grace."""
        if self._server is not None:
            self.app.inference.end_streams()
            await self._server.stop(grace_seconds)
            self._server = None


def credentials(files: TlsFiles) -> grpc.ServerCredentials:
    """Read again before a handshake when the files have changed. Raises TlsError."""

    def configuration() -> grpc.ServerCertificateConfiguration:
        chain, key, ca = files.read()
        return grpc.ssl_server_certificate_configuration([(key, chain)], root_certificates=ca)

    first = configuration()
    watch = Watch(files)

    def fetch() -> Any:
        """None: those that are in use are still good."""
        try:
            return configuration() if watch.changed() else None
        except TlsError as error:  # changed again between two reads
            log.warning("the changed TLS files are not used: %s", error)
            return None

    return grpc.dynamic_ssl_server_credentials(
        first, fetch, require_client_authentication=files.client_ca is not None
    )


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode("latin-1", "replace")
