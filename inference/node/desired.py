"""Pure thinking of a node: from what is wanted and what runs to what to do next.

Load first, switch routes, drain last. It follows from two rules without any order being written down: a service's
routes move to a new spec only once that spec can be served, and whatever either spec needs is kept running.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from inference.protocol import ServiceSpec, Snapshot, VersionSpec

DRAIN_SECONDS = 30.0  # then the worker is asked to end, with work in hand or not
STOP_SECONDS = 10.0  # after which asking ends

BACKOFF_FIRST = 0.2
BACKOFF_MOST = 10.0
HEALTHY_SECONDS = 30.0  # a process that ran this long starts from the first back-off again


@dataclass(frozen=True, slots=True, order=True)
class Slot:
    """A place for one worker. The digest tells versions of the same number in two databases apart."""

    service: str
    version: int
    ordinal: int
    digest: str

    def __str__(self) -> str:
        return f"{self.service}:{self.version}#{self.ordinal}"

    @property
    def loads(self) -> tuple[str, int, str]:
        return (self.service, self.version, self.digest)


@dataclass(frozen=True, slots=True)
class Occupant:
    """What is in a slot. idle: the plane holds no request for it. retry_at: not started again before."""

    alive: bool
    ready: bool = False
    idle: bool = True
    draining_since: float | None = None
    asked_to_stop_at: float | None = None
    retry_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Start:
    slot: Slot


@dataclass(frozen=True, slots=True)
class Drain:
    """No new work; the routes no longer name it."""

    slot: Slot


@dataclass(frozen=True, slots=True)
class Stop:
    """Ask to end: the batch in hand is finished."""

    slot: Slot


@dataclass(frozen=True, slots=True)
class Kill:
    slot: Slot


@dataclass(frozen=True, slots=True)
class Forget:
    slot: Slot


Action = Start | Drain | Stop | Kill | Forget


def slots_of(snapshot: Snapshot | None) -> frozenset[Slot]:
    if snapshot is None:
        return frozenset()
    return frozenset(
        Slot(service.name, version.number, ordinal, version.digest)
        for service in snapshot.services
        for version in service.versions
        for ordinal in range(version.replicas)
    )


def decide(needed: Collection[Slot], occupants: Mapping[Slot, Occupant], now: float) -> list[Action]:
    """At most one action for each slot; asked again at the next look, so a lost one is only late."""
    actions: list[Action] = []
    for slot in sorted({*needed, *occupants}):
        occupant = occupants.get(slot)
        action = _fill(slot, occupant, now) if slot in needed else _empty(slot, occupant, now)
        if action is not None:
            actions.append(action)
    return actions


def _fill(slot: Slot, occupant: Occupant | None, now: float) -> Action | None:
    if occupant is None or (not occupant.alive and now >= occupant.retry_at):
        return Start(slot)
    return _end(slot, occupant, now)


def _empty(slot: Slot, occupant: Occupant | None, now: float) -> Action | None:
    if occupant is None or not occupant.alive:
        return Forget(slot) if occupant is not None else None
    if occupant.draining_since is None:
        return Drain(slot)
    if occupant.asked_to_stop_at is None:
        over = now - occupant.draining_since >= DRAIN_SECONDS
        return Stop(slot) if occupant.idle or over else None
    return _end(slot, occupant, now)


def _end(slot: Slot, occupant: Occupant, now: float) -> Action | None:
    """One that was asked to end and does not."""
    asked = occupant.asked_to_stop_at
    return Kill(slot) if occupant.alive and asked is not None and now - asked >= STOP_SECONDS else None


@dataclass(frozen=True, slots=True)
class Plan:
    """What the plane should route by now. held: services that still follow their earlier spec."""

    routes: Snapshot
    held: tuple[str, ...]


def plan_routes(applied: Snapshot | None, wanted: Snapshot, ready: Collection[tuple[str, int, str]]) -> Plan:
    """The wanted snapshot, with each service that cannot serve it yet as it was.

    applied: what the plane routes by now. ready: (service, version, digest) with at least one worker that answers.
    Tenants, keys and quotas are always the new ones.
    """
    before = {service.name: service for service in applied.services} if applied else {}
    services, held = [], []
    for service in wanted.services:
        earlier = before.get(service.name)
        if earlier is not None and _must_wait(earlier, service, ready):
            services.append(earlier)
            held.append(service.name)
        else:
            services.append(service)
    return Plan(replace(wanted, services=tuple(services)), tuple(held))


def _must_wait(earlier: ServiceSpec, wanted: ServiceSpec, ready: Collection[tuple[str, int, str]]) -> bool:
    """Only while waiting helps: something of the earlier spec answers, and a new target of traffic does not."""
    already = {(version.number, version.digest) for version in _carrying(earlier)}
    missing = [
        version
        for version in _carrying(wanted)
        if (version.number, version.digest) not in already and not _is_ready(wanted.name, version, ready)
    ]
    return bool(missing) and any(_is_ready(earlier.name, version, ready) for version in _carrying(earlier))


def _carrying(service: ServiceSpec) -> Iterable[VersionSpec]:
    return [version for version in service.versions if version.weight_percent > 0]


def _is_ready(service: str, version: VersionSpec, ready: Collection[tuple[str, int, str]]) -> bool:
    return (service, version.number, version.digest) in ready


def supersedes(new: Snapshot, old: Snapshot | None) -> bool:
    """Within one epoch only a higher number counts; another epoch is another database, and the newest word wins."""
    return old is None or new.epoch != old.epoch or new.number > old.number


def backoff_seconds(failures: int) -> float:
    """failures: in a row, 1 for the first."""
    return min(BACKOFF_MOST, BACKOFF_FIRST * 2.0 ** max(0, min(failures, 16) - 1))
