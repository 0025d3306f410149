"""What a plane knows: services, versions, tenants and workers, as the last routes say. No HTTP in here."""

import asyncio
import logging
import os
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType

from inference.contract import Contract, ContractError, from_json
from inference.plane.admission import Admission
from inference.plane.ladder import climb
from inference.plane.metrics import Gauge, Meters
from inference.plane.pool import Pool
from inference.plane.probe import PlaneStatus
from inference.plane.refusals import Limit, RefusedError
from inference.plane.routes import Routes
from inference.plane.routing import Chooser
from inference.plane.shadow import Agreement, Shadow
from inference.protocol import (
    CounterSample,
    ReplicaState,
    RoutingSpec,
    Series,
    Snapshot,
    TenantSpec,
    VersionSpec,
)

log = logging.getLogger(__name__)
NO_HEADERS: Mapping[str, str] = MappingProxyType({})


@dataclass(slots=True)
class Service:
    """versions: with a pool each. broken: versions whose contract cannot be read, with the reason."""

    name: str
    versions: dict[int, Pool] = field(default_factory=dict)
    weights: dict[int, int] = field(default_factory=dict)
    broken: dict[int, str] = field(default_factory=dict)
    chooser: Chooser = field(default_factory=lambda: Chooser({}, None))

    def choose(self, tenant: str = "", headers: Mapping[str, str] = NO_HEADERS) -> Pool:
        """The next request's version. headers: those that `chooser.headers` names. Raises RefusedError 503."""
        number = self.chooser.choose(tenant, headers)
        pool = self.versions.get(number) if number is not None else None
        if pool is None:
            raise RefusedError(503, f"{self.name} has no version to answer now", Limit("worker", 0, 0, 1.0))
        return pool

    def pinned(self, number: int) -> Pool:
        """Raises RefusedError 404."""
        pool = self.versions.get(number)
        if pool is None:
            raise RefusedError(404, f"version {number} of {self.name} is not found")
        return pool

    @property
    def leading(self) -> Pool | None:
        """The version that speaks for the service: most weight, then newest."""
        return max(
            self.versions.values(),
            key=lambda pool: (self.weights.get(pool.version, 0), pool.version),
            default=None,
        )

    @property
    def ready(self) -> bool:
        """Every version that takes traffic has a worker."""
        serving = [self.versions.get(number) for number, weight in self.weights.items() if weight]
        return bool(serving) and all(pool is not None and pool.ready for pool in serving)


class Gateway:
    def __init__(self) -> None:
        self.instance = uuid.uuid4().hex
        self.started_at = time.time()
        self.state = ReplicaState.STARTING
        self.node = ""
        self.epoch = ""
        self.number = -1
        self.services: dict[str, Service] = {}
        self.routing_headers: frozenset[str] = frozenset()  # that any service routes by
        self.admission = Admission()
        self.meters = Meters()
        self._digests: dict[tuple[str, int], str] = {}
        self._leaving: set[Pool] = set()

    def apply(self, routes: Routes) -> None:
        """Make routes true at once; requests in hand keep what they have. Raises ValueError for older ones."""
        snapshot = routes.snapshot
        if snapshot.epoch == self.epoch and snapshot.number < self.number:
            raise ValueError(f"snapshot {snapshot.number} is older than the applied {self.number}")
        services: dict[str, Service] = {}
        for spec in snapshot.services:
            service = services[spec.name] = Service(spec.name)
            for version in spec.versions:
                service.weights[version.number] = version.weight_percent
                try:
                    service.versions[version.number] = self._pool(spec.name, version)
                except ContractError as error:
                    service.broken[version.number] = str(error)
                    log.error("contract of %s:%s cannot be read: %s", spec.name, version.number, error)
            was = self.services.get(spec.name)
            if was is not None and was.chooser.same_as(service.weights, spec.routing):
                service.chooser = was.chooser
            else:
                service.chooser = Chooser(service.weights, spec.routing)
            self._mirror(service, spec.routing)
        kept = {pool for service in services.values() for pool in service.versions.values()}
        for service in self.services.values():
            for pool in service.versions.values():
                if pool not in kept:
                    self._retire(pool)
        self.services = services
        self.routing_headers = frozenset(
            name for service in services.values() for name in service.chooser.headers
        )
        self._apply_workers(routes)
        self._apply_tenants(snapshot, kept, open_access=routes.open_access)
        self.node, self.epoch, self.number = routes.node, snapshot.epoch, snapshot.number
        self.state = ReplicaState.READY

    def _mirror(self, service: Service, routing: RoutingSpec | None) -> None:
        """Every version but the mirrored one has its shadow there, or none has."""
        target = service.versions.get(routing.version) if routing and routing.mirror_percent else None
        for pool in service.versions.values():
            if target is None or routing is None or pool is target:
                pool.shadow = None
                continue
            was = pool.shadow
            if was is None or was.target is not target or was.mirror.percent != routing.mirror_percent:
                count = partial(self._compared, service.name, str(target.version))
                pool.shadow = Shadow(pool, target, routing.mirror_percent, routing.compare, count)

    def _compared(self, service: str, version: str, agreement: Agreement) -> None:
        self.meters.compared[service, version, agreement.value] += 1

    def _pool(self, service: str, version: VersionSpec) -> Pool:
        """The pool that this version has, or a new one. Raises ContractError."""
        key = service, version.number
        was = self.services.get(service)
        pool = was.versions.get(version.number) if was else None
        if pool is not None and self._digests.get(key) == version.digest:
            return pool
        contract: Contract = from_json(version.contract)
        self._digests[key] = version.digest
        return Pool(service, version.number, contract, self.meters.version(*key), self.instance)

    def _apply_workers(self, routes: Routes) -> None:
        for service in self.services.values():
            for pool in service.versions.values():
                pool.set_workers(
                    [
                        one
                        for one in routes.workers
                        if (one.service, one.version) == (pool.service, pool.version)
                    ]
                )

    def _apply_tenants(self, snapshot: Snapshot, pools: set[Pool], *, open_access: bool) -> None:
        self.admission.apply(snapshot, open_access=open_access)
        weights = {tenant.slug: max(1, _weight(tenant)) for tenant in snapshot.tenants}
        for pool in pools:
            pool.queue.set_weights(weights)

    def _retire(self, pool: Pool) -> None:
        self._leaving.add(pool)
        pool.on_empty = self._gone
        pool.retire()

    def _gone(self, pool: Pool) -> None:
        self._leaving.discard(pool)
        pool.close()

    def pools(self) -> list[Pool]:
        return [pool for service in self.services.values() for pool in service.versions.values()]

    def tick(self) -> None:
        """Once a second."""
        used = {(pool.service, pool.version) for pool in [*self.pools(), *self._leaving]}
        self.meters.retire(used, time.monotonic())
        pools = self.pools()
        for pool in [*pools, *self._leaving]:
            pool.tick()
        for pool, rung in zip(pools, climb([pool.rung for pool in pools]), strict=True):
            pool.stand_on(rung)

    @property
    def busy(self) -> int:
        return sum(pool.total for pool in [*self.pools(), *self._leaving])

    async def close(self) -> None:
        links = [link for pool in [*self.pools(), *self._leaving] for link in pool.links.values()]
        for pool in [*self.pools(), *self._leaving]:
            pool.close()
        for link in links:
            link.close()
        await asyncio.gather(*(link.closed() for link in links))

    # Told to others

    def unready(self) -> list[str]:
        """Why this plane should get no traffic; empty when it should."""
        if self.state is not ReplicaState.READY:
            return [f"the plane is {self.state}"]
        serving = [service for service in self.services.values() if any(service.weights.values())]
        if not serving:
            return ["no service is routed here yet"]
        return [
            f"{service.name} has a version without a ready worker" for service in serving if not service.ready
        ]

    def status(self, connections: int) -> PlaneStatus:
        return PlaneStatus(
            state=self.state,
            pid=os.getpid(),
            instance=self.instance,
            node=self.node,
            epoch=self.epoch,
            number=self.number,
            started_at=self.started_at,
            connections=connections,
            links=tuple(link.status() for pool in self.pools() for link in pool.links.values()),
            pools=tuple(pool.status() for pool in [*self.pools(), *self._leaving]),
        )

    def counters(self) -> CounterSample:
        # One gauge travels along: pages tell how far the overload ladder is climbed where no Prometheus scrapes.
        steps = tuple(
            Series(
                "pilothouse_degradation_step",
                {"service": service.name, "version": str(pool.version)},
                pool.governor.step,
            )
            for service in self.services.values()
            for pool in service.versions.values()
        )
        return CounterSample(self.node, self.instance, time.time(), self.meters.series() + steps)

    def exposition(self) -> bytes:
        return self.meters.exposition(self._gauges())

    def _gauges(self) -> list[Gauge]:
        inflight, up, phases, weights, steps, caps, apart = [], [], [], [], [], [], []
        for service in self.services.values():
            for pool in service.versions.values():
                labels = {"service": service.name, "version": str(pool.version)}
                inflight.append((labels, pool.total))
                weights.append((labels, service.weights.get(pool.version, 0)))
                steps.append((labels, pool.governor.step))
                caps.append((labels, pool.queue.max_rows))
                apart.append((labels, len(pool.isolation.quarantine)))
                for link in pool.links.values():
                    replica = {**labels, "replica": str(link.route.ordinal)}
                    up.append((replica, int(link.state == "ready")))
                    if link.worker is not None:
                        told = link.worker.load_phases.items()
                        phases += [({**replica, "phase": phase}, seconds) for phase, seconds in told]
        return [
            Gauge(
                "pilothouse_inflight_requests", "Requests in the queue or inside a worker.", tuple(inflight)
            ),
            Gauge("pilothouse_degradation_step", "Step of the overload ladder; 0 is as usual.", tuple(steps)),
            Gauge("pilothouse_batch_cap_rows", "The largest batch that is made now.", tuple(caps)),
            Gauge("pilothouse_quarantined", "Tenants whose requests run alone for now.", tuple(apart)),
            Gauge("pilothouse_worker_up", "1 while the plane can use this worker.", tuple(up)),
            Gauge("pilothouse_load_phase_seconds", "Seconds of each phase of the last load.", tuple(phases)),
            Gauge(
                "pilothouse_rollout_weight", "Percent of a service's requests as routed here.", tuple(weights)
            ),
        ]


def _weight(tenant: TenantSpec) -> int:
    return tenant.weight
