"""May this key call this service, and now? Exact inside one plane process: one thread, one clock, plain numbers.

A tenant may call its own services without limit and others by a quota. A service it may not call does not exist for it:
404, the same words as for a name that nobody has, so names of other tenants cannot be guessed.
"""

import hashlib
import math
import time
from collections.abc import Callable

from inference.plane.refusals import Limit, RefusedError
from inference.protocol import QuotaSpec, Snapshot

LOCAL = "local"


class Rate:
    """GCRA, the virtual scheduling form of a token bucket (ITU-T I.371): `burst` at once, then `rate` a second."""

    __slots__ = ("burst", "interval", "rate", "tat")

    def __init__(self, rate: float, burst: int) -> None:
        self.rate = rate
        self.burst = burst
        self.interval = 1.0 / rate
        self.tat = 0.0  # theoretical arrival time of the next request of a steady stream

    def take(self, now: float) -> float:
        """0.0 when taken, else seconds until it could be."""
        tat = self.tat if self.tat > now else now
        # 1e-9: the sum of many intervals must not refuse the last request of a burst.
        wait = tat + self.interval - now - self.burst * self.interval
        if wait > 1e-9:
            return wait
        self.tat = tat + self.interval
        return 0.0

    def spent(self, now: float) -> float:
        """Requests of the burst that are not regained yet."""
        return max(0.0, self.tat - now) * self.rate

    def left(self, now: float) -> int:
        return max(
            0, math.floor(self.burst - (self.tat - now) * self.rate + 1e-9) if self.tat > now else self.burst
        )


class Grant:
    """A tenant's right to call one service, with its limits; `active` counts requests between enter and leave."""

    __slots__ = ("active", "concurrency", "quota", "rate", "service", "tenant")

    def __init__(self, tenant: str, service: str, quota: QuotaSpec | None) -> None:
        self.tenant = tenant
        self.service = service
        self.active = 0
        self.rate: Rate | None = None
        self.set_quota(quota)

    def set_quota(self, quota: QuotaSpec | None, now: float = 0.0) -> None:
        """Requests in hand stay counted, and credit that was spent stays spent, as requests: not as their seconds."""
        spent = self.rate.spent(now) if self.rate else 0.0
        self.quota = quota
        self.concurrency = quota.concurrency if quota else None
        self.rate = None
        if quota and quota.requests_per_second is not None:
            limit = quota.requests_per_second
            burst = quota.burst if quota.burst is not None else max(1, math.ceil(limit))
            self.rate = Rate(limit, burst) if limit > 0 else Rate(1e-9, 0)
            self.rate.tat = now + min(spent, self.rate.burst) * self.rate.interval

    def enter(self, now: float) -> None:
        """Raises RefusedError. Concurrency first: a request that could not run anyway does not use up the rate."""
        if self.concurrency is not None and self.active >= self.concurrency:
            raise RefusedError(
                429,
                f"tenant {self.tenant} has {self.active} requests to {self.service} in hand, its concurrency limit is"
                f" {self.concurrency}: 0 are left; try again when one is answered",
                Limit("concurrency", self.concurrency, 0, 1.0),
            )
        rate = self.rate
        if rate is not None:
            wait = rate.take(now)
            if wait:
                raise self._too_fast(rate, min(wait, 86400.0))
        self.active += 1

    def _too_fast(self, rate: Rate, wait: float) -> RefusedError:
        told = self.quota.requests_per_second if self.quota else 0
        return RefusedError(
            429,
            f"tenant {self.tenant} is over its rate limit of {told:g} requests a second (burst {rate.burst}) for"
            f" {self.service}: 0 are left; try again in {wait:.2f} s",
            Limit("rate", told or 0, 0, wait),
        )

    def leave(self) -> None:
        self.active -= 1


class Admission:
    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._keys: dict[bytes, tuple[str, float | None]] = {}
        self._owned: dict[str, str] = {}
        self._quotas: dict[tuple[str, str], QuotaSpec] = {}
        self._grants: dict[tuple[str, str], Grant] = {}
        self.open_access = False

    def apply(self, snapshot: Snapshot, *, open_access: bool) -> None:
        """Take a new snapshot over. Limits that did not change keep their state; requests in hand stay counted."""
        self.open_access = open_access
        # Looked up by hash: a plane keeps no secret, and comparing digests leaks no prefix of one.
        self._keys = {bytes.fromhex(key.sha256): (key.tenant, key.expires_at) for key in snapshot.keys}
        self._owned = {service.name: service.tenant for service in snapshot.services}
        self._quotas = {(quota.tenant, quota.service): quota for quota in snapshot.quotas}
        kept: dict[tuple[str, str], Grant] = {}
        now = time.monotonic()
        for (tenant, service), grant in self._grants.items():
            quota = self._quotas.get((tenant, service))
            if service not in self._owned or not self._may(tenant, service):
                continue
            if quota != grant.quota:
                grant.set_quota(quota, now)
            kept[tenant, service] = grant
        self._grants = kept

    def tenant_of(self, authorization: bytes | None) -> str:
        """The tenant of an Authorization header. Raises RefusedError 401."""
        if self.open_access:
            return LOCAL
        if authorization is None:
            raise RefusedError(401, "a key is needed: Authorization: Bearer ph_...")
        scheme, _, secret = authorization.partition(b" ")
        if scheme.lower() != b"bearer":
            raise RefusedError(401, "a key is needed: Authorization: Bearer ph_...")
        found = self._keys.get(hashlib.sha256(secret.strip()).digest())
        if found is None:
            raise RefusedError(401, "this key is not known")
        tenant, expires_at = found
        if expires_at is not None and expires_at <= self._clock():
            raise RefusedError(401, "this key has expired")
        return tenant

    def expires_at(self, authorization: bytes | None) -> float:
        """When the key of a header that was let in ends; infinity for one that does not."""
        if self.open_access or authorization is None:
            return math.inf
        found = self._keys.get(hashlib.sha256(authorization.partition(b" ")[2].strip()).digest())
        return math.inf if found is None or found[1] is None else found[1]

    def may(self, tenant: str, service: str) -> bool:
        return service in self._owned and self._may(tenant, service)

    def _may(self, tenant: str, service: str) -> bool:
        return self.open_access or self._owned.get(service) == tenant or (tenant, service) in self._quotas

    def grant(self, tenant: str, service: str) -> Grant | None:
        """None: this tenant may not know of the service, or there is none."""
        found = self._grants.get((tenant, service))
        if found is None and self.may(tenant, service):
            found = Grant(tenant, service, self._quotas.get((tenant, service)))
            self._grants[tenant, service] = found
        return found
