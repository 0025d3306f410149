"""What a plane offers beside plain HTTP: flags and environment, the same for a supervised node and one alone."""

import argparse
import os
from dataclasses import dataclass

from inference.plane.tls import TlsError, TlsFiles, files_from


@dataclass(frozen=True, slots=True)
class Options:
    """grpc_port: None for no gRPC. trusted_gateways: names in client certificates that may say X-Tenant-ID.

    shared_port: other planes of this node listen on the same gRPC port.
    """

    grpc_port: int | None = None
    tls: TlsFiles | None = None
    client_shared_memory: bool = False
    trusted_gateways: tuple[str, ...] = ()
    shared_port: bool = False


def add_to(parser: argparse.ArgumentParser) -> None:
    env = os.environ
    parser.add_argument(
        "--grpc-port",
        type=int,
        default=env.get("PILOTHOUSE_GRPC_PORT") or "0",
        metavar="PORT",
        help="speak gRPC on this port; 0, the default, for not at all",
    )
    parser.add_argument(
        "--tls-certificate",
        default=env.get("PILOTHOUSE_TLS_CERTIFICATE", ""),
        metavar="PEM",
        help="TLS for HTTP and gRPC: the certificate chain",
    )
    parser.add_argument(
        "--tls-key", default=env.get("PILOTHOUSE_TLS_KEY", ""), metavar="PEM", help="its private key"
    )
    parser.add_argument(
        "--tls-client-ca",
        default=env.get("PILOTHOUSE_TLS_CLIENT_CA", ""),
        metavar="PEM",
        help="mutual TLS: every client shows a certificate signed by this CA",
    )
    parser.add_argument(
        "--trusted-gateway",
        action="append",
        default=env.get("PILOTHOUSE_TRUSTED_GATEWAYS", "").replace(",", " ").split(),
        metavar="SAN",
        help="clients with this name in their certificate may say X-Tenant-ID; may be repeated",
    )
    parser.add_argument(
        "--allow-client-shared-memory",
        action="store_true",
        default=env.get("PILOTHOUSE_CLIENT_SHARED_MEMORY", "").lower() in ("1", "true", "yes", "on"),
        help="clients on this machine may register regions of /dev/shm for tensors",
    )


def read(given: argparse.Namespace) -> Options:
    """Raises TlsError."""
    tls = files_from(given.tls_certificate, given.tls_key, given.tls_client_ca)
    if given.trusted_gateway and (tls is None or tls.client_ca is None):
        raise TlsError("--trusted-gateway needs --tls-client-ca: only a verified certificate names a gateway")
    return Options(
        grpc_port=given.grpc_port or None,
        tls=tls,
        client_shared_memory=given.allow_client_shared_memory,
        trusted_gateways=tuple(given.trusted_gateway),
    )
