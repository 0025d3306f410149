"""A traffic target and a signal source that do what a test says."""

from collections.abc import Callable
from dataclasses import dataclass, field

from console.kit.errors import Conflict
from console.metrics.source import (
    Growth,
    Indicator,
    NoData,
    Point,
    ProviderError,
    Query,
    Reading,
    Sampled,
    Sampling,
    Value,
)
from console.services.models import Service
from console.tenants.permissions import Actor
from inference.models import Version
from rollouts.plan import NO_ROUTING, Routing
from rollouts.traffic.base import Standing


class Crash(BaseException):
    """The process ends here: nothing catches it."""


@dataclass
class FakeTarget:
    """A fleet in memory with the rules of the real one. `crash_at` names the call that ends the process, once."""

    stable: int | None = 1
    canary: int | None = None
    canary_weight: int = 0
    ready: int = 0
    wanted: int = 1
    failed: str = ""
    applied: bool = True
    warm_seconds: float = 0.0
    highest_fence: int = 0
    away: bool = False
    replicas: int = 1
    stable_replicas: int = 1
    routing: Routing = NO_ROUTING
    crash_at: str = ""
    calls: list[str] = field(default_factory=list)
    before_look: Callable[[], None] | None = None

    def look(self, service: Service, canary: Version) -> Standing:
        if self.before_look is not None:
            self.before_look()
        return Standing(
            stable_version=self.stable,
            stable_replicas=self.stable_replicas,
            canary_version=self.canary,
            canary_weight=self.canary_weight if self.canary is not None else None,
            wanted=self.wanted if self.canary is not None else 0,
            ready=self.ready if self.canary is not None else 0,
            failed_detail=self.failed,
            applied=self.applied,
            canary_replicas=self.replicas,
            routing=self.routing,
        )

    def place(self, service: Service, version: Version, *, replicas: int, actor: Actor, fence: int) -> None:
        with self._call(f"place {version.number}", fence):
            if self.canary not in (None, version.number):
                raise Conflict("another canary")
            self.canary, self.replicas, self.wanted = version.number, replicas, max(self.wanted, replicas)

    def shift(
        self, service: Service, version: Version, *, weight_percent: int, actor: Actor, fence: int
    ) -> None:
        with self._call(f"shift {version.number} {weight_percent}", fence):
            if self.canary != version.number:
                raise Conflict("not the canary")
            self.canary_weight = weight_percent

    def route(
        self, service: Service, version: Version, *, routing: Routing, actor: Actor, fence: int
    ) -> None:
        with self._call(f"route {version.number}", fence):
            self.routing = routing

    def install(
        self, service: Service, version: Version, *, warm_seconds: float, actor: Actor, fence: int
    ) -> None:
        with self._call(f"install {version.number}", fence):
            self.stable, self.canary, self.canary_weight = version.number, None, 0
            self.routing, self.warm_seconds = NO_ROUTING, warm_seconds

    def withdraw(self, service: Service, version: Version, *, actor: Actor, fence: int) -> None:
        with self._call(f"withdraw {version.number}", fence):
            if self.canary == version.number:
                self.canary, self.canary_weight, self.ready = None, 0, 0
                self.routing = NO_ROUTING

    def _call(self, name: str, fence: int) -> "_Call":
        if self.away:
            raise Conflict("the fleet is away")
        if fence < self.highest_fence:
            raise Conflict(f"fence {fence} is below {self.highest_fence}")
        self.highest_fence = fence
        return _Call(self, name)


class _Call:
    """Crashes before or after the change, when the test asked for it: `before shift`, `after place`."""

    def __init__(self, target: FakeTarget, name: str) -> None:
        self.target, self.name = target, name

    def __enter__(self) -> None:
        self._crash("before")
        self.target.calls.append(self.name)

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._crash("after")

    def _crash(self, when: str) -> None:
        if self.target.crash_at == f"{when} {self.name.split()[0]}":
            self.target.crash_at = ""
            raise Crash


@dataclass
class FakeSource:
    """Answers by version and indicator; `canary` and `stable` set what error_ratio and latency say."""

    name: str = "fake"
    requests: float = 100.0
    errors: dict[int, float] = field(default_factory=dict)
    latency: dict[int, float] = field(default_factory=dict)
    of_tenants: dict[str, dict[int, float]] = field(default_factory=dict)
    slow: dict[int, float] = field(default_factory=dict)
    agreement: float = 1.0
    answers: dict[str, float | list[float]] = field(default_factory=dict)
    no_data: bool = False
    away: bool = False
    asked: list[Query] = field(default_factory=list)

    def growth(
        self, metric: str, service: str, *, by: str, window_seconds: float = 60.0, at: float | None = None
    ) -> Growth | NoData | ProviderError:
        return NoData("nothing was counted", 0.0, self.name, metric)

    def ask(self, text: str, *, at: float | None = None) -> Sampling:
        if self.away:
            return ProviderError("connection refused", 0.0, self.name, text)
        if self.no_data:
            return NoData("no node has reported", 0.0, self.name, text)
        return Sampled(self.answers.get(text, []), at or 0.0, self.name, text)

    def read(self, query: Query, *, at: float | None = None) -> Reading:
        self.asked.append(query)
        text = f"{query.indicator}(version={query.version})"
        if self.away:
            return ProviderError("connection refused", 0.0, self.name, text)
        if self.no_data:
            return NoData("no requests in the last 15 s", 0.0, self.name, text)
        version = query.version or 0
        match query.indicator:
            case Indicator.ERROR_RATIO:
                value = self.of_tenants.get(query.tenant or "", self.errors).get(version, 0.0)
            case Indicator.SLOW_SHARE:
                value = self.slow.get(version, 0.0)
            case Indicator.AGREEMENT:
                value = self.agreement
            case _:
                value = self.latency.get(version, 20.0)
        return Value(value, self.requests, 0.0, self.name, text)

    def series(
        self, query: Query, *, start: float, end: float, step_seconds: float
    ) -> list[Point] | ProviderError:
        return []
