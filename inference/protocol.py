"""What crosses between the console and a node: snapshots down, reports and counter samples up.

JSON on the wire (Redis, disk, control socket), decoded by msgspec into these frozen dataclasses, every type checked.
No Django here: agent, plane and a node alone share this file.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

SNAPSHOT_KEY = "ph:snapshot"  # Redis: the newest whole snapshot
SAMPLES_KEY = "ph:samples"  # Redis stream: CounterSample, one entry for each node and interval


class ReplicaState(StrEnum):
    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    STOPPED = "stopped"
    CRASHED = "crashed"


@dataclass(frozen=True, slots=True)
class FileRef:
    """A file of a version: `path` inside its folder, its blob's SHA-256 and size in bytes."""

    path: str
    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class VersionSpec:
    number: int
    digest: str
    files: tuple[FileRef, ...]
    contract: dict[str, Any]
    replicas: int
    weight_percent: int


@dataclass(frozen=True, slots=True)
class HeaderMatch:
    """header: in lower case. Exactly one of exact and prefix is a text."""

    header: str
    exact: str | None = None
    prefix: str | None = None


@dataclass(frozen=True, slots=True)
class RoutingSpec:
    """Who reaches the canary besides its weight.

    matches: any of them. tenants: all their requests. mirror_percent: of the requests that others serve, repeated to
    it in the shadow. compare: rules by output name, where the usual ones do not fit. sticky: who stays with the
    version it met first: "tenant", "header:<name>" or "" for nobody.
    """

    version: int
    matches: tuple[HeaderMatch, ...] = ()
    tenants: tuple[str, ...] = ()
    mirror_percent: int = 0
    sticky: str = ""
    compare: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ServiceSpec:
    """Weights of the versions add up to 100, or are all 0 when nothing may serve."""

    name: str
    tenant: str
    versions: tuple[VersionSpec, ...]
    routing: RoutingSpec | None = None


@dataclass(frozen=True, slots=True)
class TenantSpec:
    slug: str
    weight: int
    fail_mode: str


@dataclass(frozen=True, slots=True)
class KeySpec:
    """An inference key by hash. expires_at: seconds since the epoch, None for never."""

    sha256: str
    tenant: str
    expires_at: float | None


@dataclass(frozen=True, slots=True)
class QuotaSpec:
    """A tenant without a quota row for a service may not call it; a tenant always may call its own services."""

    tenant: str
    service: str
    requests_per_second: float | None
    burst: int | None
    concurrency: int | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole desired state. Within one epoch a higher number replaces a lower one, never the other way."""

    epoch: str
    number: int
    services: tuple[ServiceSpec, ...] = ()
    tenants: tuple[TenantSpec, ...] = ()
    keys: tuple[KeySpec, ...] = ()
    quotas: tuple[QuotaSpec, ...] = ()


@dataclass(frozen=True, slots=True)
class ReplicaReport:
    """since: seconds since the epoch at which `state` began. load_phases: seconds."""

    service: str
    version: int
    ordinal: int
    state: ReplicaState
    detail: str
    pid: int | None
    since: float
    restarts: int
    rss_bytes: int
    load_phases: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeReport:
    """snapshot_number is what plane and workers really serve by now, not what was received."""

    node: str
    at: float
    started_at: float
    plane_url: str
    plane_state: ReplicaState
    snapshot_epoch: str
    snapshot_number: int
    profile: dict[str, Any]
    replicas: tuple[ReplicaReport, ...] = ()


@dataclass(frozen=True, slots=True)
class Series:
    """One cumulative counter with the same name and labels as in the Prometheus exposition."""

    name: str
    labels: dict[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class CounterSample:
    """Counters of one plane process. `instance` changes when the process restarts, so a reset is never guessed."""

    node: str
    instance: str
    at: float
    series: tuple[Series, ...]


def encode(message: Any) -> bytes:
    return msgspec.json.encode(message)


def decode(raw: bytes | str, kind: type[T]) -> T:
    """Raises ValueError naming the path of the first wrong field."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.MsgspecError as error:
        raise ValueError(f"{kind.__name__}: {error}") from None
