"""TLS for both protocols from one set of files, and whom a client's certificate makes believable.

Files that change are taken up by new handshakes; connections that stand keep theirs. New files that do not fit each
other change nothing, so a renewal may replace one file after the other.
"""

import logging
import re
import ssl
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inference.plane.refusals import RefusedError

if TYPE_CHECKING:
    from cryptography import x509

log = logging.getLogger(__name__)

# All spellings that some server on the way may take for the one: WSGI folds - and _.
TENANT_HEADERS = ("x-tenant-id", "x_tenant_id", "x-tenant_id", "x_tenant-id")
_SLUG = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


class TlsError(Exception):
    """The files cannot be used; a sentence that names the one."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files. client_ca: every client must show a certificate that it signed."""

    certificate: Path
    key: Path
    client_ca: Path | None = None

    def read(self) -> tuple[bytes, bytes, bytes | None]:
        """Certificate chain, key and client CA, found to be usable. Raises TlsError."""
        from cryptography.hazmat.primitives import serialization  # a plane without TLS need not carry it

        chain, key = _read(self.certificate, "certificate"), _read(self.key, "key")
        ca = _read(self.client_ca, "client CA") if self.client_ca else None
        certificates = _certificates(chain, self.certificate, "certificate")
        if ca is not None:
            _certificates(ca, self.client_ca, "client CA")
        try:
            private = serialization.load_pem_private_key(key, None)
        except TypeError:
            raise TlsError(f"the TLS key {self.key} is encrypted: give one without a password") from None
        except ValueError:
            raise TlsError(f"the TLS key {self.key} is no private key in PEM form") from None
        form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        if private.public_key().public_bytes(*form) != certificates[0].public_key().public_bytes(*form):
            raise TlsError(f"the TLS key {self.key} does not belong to the certificate {self.certificate}")
        return chain, key, ca

    def server_context(self) -> ssl.SSLContext:
        """For HTTP/1.1. Raises TlsError."""
        self.read()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        try:
            context.load_cert_chain(self.certificate, self.key)
            if self.client_ca is not None:
                context.load_verify_locations(self.client_ca)
                context.verify_mode = ssl.CERT_REQUIRED
        except (OSError, ssl.SSLError) as error:
            raise TlsError(f"the TLS certificate {self.certificate} cannot be used: {error}") from None
        return context

    def stamp(self) -> tuple[Any, ...]:
        """Changes when a file does."""
        told: list[Any] = []
        for path in (self.certificate, self.key, self.client_ca):
            if path is not None:
                try:
                    stat = path.stat()
                    told.append((stat.st_ino, stat.st_size, stat.st_mtime_ns))
                except OSError:
                    told.append(None)
        return tuple(told)


class Watch:
    """Whether files have changed to something usable since the last look. Each protocol has its own."""

    def __init__(self, files: TlsFiles) -> None:
        self.files = files
        self._stamp = files.stamp()

    def changed(self) -> bool:
        stamp = self.files.stamp()
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        try:
            self.files.read()
        except TlsError as error:
            log.warning("the changed TLS files are not used: %s", error)
            return False
        return True


def files_from(certificate: str | None, key: str | None, client_ca: str | None) -> TlsFiles | None:
    """None without any. Raises TlsError for half a configuration."""
    if not certificate and not key and not client_ca:
        return None
    if not certificate or not key:
        raise TlsError("TLS needs a certificate and a key; a client CA comes on top of both")
    return TlsFiles(Path(certificate), Path(key), Path(client_ca) if client_ca else None)


class Identities:
    """Which clients may say for which tenant they speak: gateways, known by a name in their verified certificate."""

    def __init__(self, trusted: Collection[str] = ()) -> None:
        self.trusted = frozenset(trusted)

    def tenant(self, told: Sequence[tuple[str, bytes]], names: Iterable[str]) -> str | None:
        """The tenant that a trusted gateway names; None when the header counts for nothing.

        told: the headers that look like X-Tenant-ID, by lower-case name. names: subject alternative names of the peer.
        Raises RefusedError when a gateway's header can be read in two ways.
        """
        if not told or self.trusted.isdisjoint(names):
            return None
        if len(told) != 1 or told[0][0] != TENANT_HEADERS[0]:
            raise RefusedError(400, "a trusted gateway names the tenant in exactly one header X-Tenant-ID")
        slug = told[0][1].decode("latin-1")
        if _SLUG.fullmatch(slug) is None:
            raise RefusedError(400, "X-Tenant-ID must be the name of one tenant")
        return slug


def names_of(certificate: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Subject alternative names of a peer's certificate as `ssl` tells it."""
    return tuple(str(name) for _, name in (certificate or {}).get("subjectAltName", ()))


def _read(path: Path | None, what: str) -> bytes:
    assert path is not None
    try:
        return path.read_bytes()
    except OSError as error:
        raise TlsError(f"the TLS {what} {path} cannot be read: {error.strerror}") from None


def _certificates(pem: bytes, path: Path | None, what: str) -> "list[x509.Certificate]":
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError:
        raise TlsError(f"the TLS {what} {path} is no certificate in PEM form") from None
