"""The kinds of steps: what each says, how long it takes, and how it is read. Names are Argo Rollouts' own.

What a step asks of the traffic is absolute, so any step can be reached from any state: rollouts.plan says what holds
at a step, the controller makes it true.
"""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rollouts.durations import text_of
from rollouts.gate_reading import parse_gate
from rollouts.gates import Gate
from rollouts.reading import Fields, Problems

MAX_GATES, MAX_MATCHES, MAX_TENANTS = 20, 20, 100
# Guesses for the preview only: a replica's load, and the way of a new weight to every node.
LOAD_SECONDS, APPLY_SECONDS = 10.0, 3.0


@dataclass(frozen=True, slots=True)
class SetWeight:
    percent: int

    def as_json(self) -> dict[str, Any]:
        return {"setWeight": self.percent}

    @property
    def sentence(self) -> str:
        return f"send {self.percent} % to the new version"

    @property
    def seconds(self) -> float:
        return APPLY_SECONDS


@dataclass(frozen=True, slots=True)
class Pause:
    """duration None: until a person resumes."""

    duration_seconds: float | None

    def as_json(self) -> dict[str, Any]:
        if self.duration_seconds is None:
            return {"pause": {}}
        return {"pause": {"duration": text_of(self.duration_seconds)}}

    @property
    def sentence(self) -> str:
        if self.duration_seconds is None:
            return "pause until a person resumes"
        return f"pause {text_of(self.duration_seconds)}"

    @property
    def seconds(self) -> float:
        return self.duration_seconds or 0.0


@dataclass(frozen=True, slots=True)
class Analysis:
    gates: tuple[Gate, ...]

    def as_json(self) -> dict[str, Any]:
        return {"analysis": {"gates": [gate.as_json() for gate in self.gates]}}

    @property
    def sentence(self) -> str:
        return f"judge {', '.join(gate.name for gate in self.gates)}"

    @property
    def seconds(self) -> float:
        return max(gate.seconds for gate in self.gates)


@dataclass(frozen=True, slots=True)
class SetCanaryScale:
    """How many replicas the new version has, apart from its weight. One of the three; all None: as many as stable."""

    replicas: int | None = None
    percent: int | None = None
    match_weight: bool = False

    def as_json(self) -> dict[str, Any]:
        if self.replicas is not None:
            return {"setCanaryScale": {"replicas": self.replicas}}
        if self.percent is not None:
            return {"setCanaryScale": {"weight": self.percent}}
        return {"setCanaryScale": {"matchTrafficWeight": self.match_weight}}

    def replicas_for(self, stable: int, weight: int) -> int:
        """At least one: a version without a replica cannot answer even 1 %."""
        if self.replicas is not None:
            return max(1, self.replicas)
        percent = self.percent if self.percent is not None else weight if self.match_weight else 100
        return max(1, -(-stable * percent // 100))

    @property
    def sentence(self) -> str:
        if self.replicas is not None:
            return f"scale the new version to {self.replicas} replicas"
        if self.percent is not None:
            return f"scale the new version to {self.percent} % of stable's replicas"
        return (
            "scale the new version with its weight"
            if self.match_weight
            else "scale the new version as stable"
        )

    @property
    def seconds(self) -> float:
        return LOAD_SECONDS


@dataclass(frozen=True, slots=True)
class Match:
    """header: in lower case. exact or prefix: the value, or how it begins."""

    header: str
    exact: str | None = None
    prefix: str | None = None

    def as_json(self) -> dict[str, Any]:
        value = {"exact": self.exact} if self.exact is not None else {"prefix": self.prefix}
        return {"headerName": self.header, "headerValue": value}


@dataclass(frozen=True, slots=True)
class SetHeaderRoute:
    """Requests that match any entry go to the new version, whatever the weight. No entry: the route goes away."""

    name: str
    matches: tuple[Match, ...]

    def as_json(self) -> dict[str, Any]:
        told: dict[str, Any] = {"name": self.name}
        return {"setHeaderRoute": {**told, "match": [one.as_json() for one in self.matches]}}

    @property
    def sentence(self) -> str:
        if not self.matches:
            return f"take header route {self.name} away"
        return f"send requests with {', '.join(one.header for one in self.matches)} to the new version"

    @property
    def seconds(self) -> float:
        return APPLY_SECONDS


@dataclass(frozen=True, slots=True)
class SetTenantRoute:
    """All requests of these tenants go to the new version, whatever the weight. None: the route goes away."""

    tenants: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        return {"setTenantRoute": {"tenants": list(self.tenants)}}

    @property
    def sentence(self) -> str:
        if not self.tenants:
            return "take the route of tenants away"
        return f"send tenants {', '.join(self.tenants)} to the new version"

    @property
    def seconds(self) -> float:
        return APPLY_SECONDS


@dataclass(frozen=True, slots=True)
class SetMirrorRoute:
    """Repeat this share of stable's requests to the new version and compare the answers; clients never see them."""

    percent: int
    compare: tuple[tuple[str, str], ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {"setMirrorRoute": {"percentage": self.percent, **_compared(self.compare)}}

    @property
    def sentence(self) -> str:
        if not self.percent:
            return "stop the shadow"
        return f"repeat {self.percent} % of the requests to the new version in the shadow"

    @property
    def seconds(self) -> float:
        return APPLY_SECONDS


@dataclass(frozen=True, slots=True)
class Experiment:
    """A shadow for a while, with gates: passes when they pass and the time is over; then the shadow stops."""

    percent: int
    duration_seconds: float
    gates: tuple[Gate, ...]
    compare: tuple[tuple[str, str], ...] = ()

    def as_json(self) -> dict[str, Any]:
        told = {
            "percentage": self.percent,
            "duration": text_of(self.duration_seconds),
            **_compared(self.compare),
        }
        return {"experiment": {**told, "gates": [gate.as_json() for gate in self.gates]}}

    @property
    def sentence(self) -> str:
        return f"compare in the shadow for {text_of(self.duration_seconds)}"

    @property
    def seconds(self) -> float:
        return max([self.duration_seconds, *(gate.seconds for gate in self.gates)])


def _compared(rules: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    return {"compare": dict(rules)} if rules else {}


Step = (
    SetWeight | Pause | Analysis | SetCanaryScale | SetHeaderRoute | SetTenantRoute | SetMirrorRoute | Experiment
)  # fmt: skip


def parse_step(raw: Any, path: str, problems: Problems) -> Step | None:
    fields = Fields(raw, path, problems, known=frozenset(_READERS))
    if isinstance(raw, dict) and len(raw) != 1:
        problems.add(path, f"must be exactly one of {', '.join(sorted(_READERS))}")
        return None
    kind = next(iter(fields.raw), "")
    reader = _READERS.get(kind)
    return reader(fields, kind, problems) if reader is not None else None


def _weight(fields: Fields, kind: str, problems: Problems) -> Step:
    return SetWeight(fields.whole(kind, 0, most=100))


def _inner(fields: Fields, kind: str, problems: Problems, *known: str) -> Fields:
    raw = fields.raw[kind]
    return Fields({} if raw is None else raw, fields.at(kind), problems, known=frozenset(known))


def _pause(fields: Fields, kind: str, problems: Problems) -> Step:
    inner = _inner(fields, kind, problems, "duration")
    return Pause(inner.duration("duration", 0.0) if inner.has("duration") else None)


def _analysis(fields: Fields, kind: str, problems: Problems) -> Step | None:
    gates = parse_gates(_inner(fields, kind, problems, "gates"), ended=True)
    return Analysis(gates) if gates else None


def parse_gates(fields: Fields, *, ended: bool) -> tuple[Gate, ...]:
    """ended: each gate must come to an end of its own; only beside the steps it may go on."""
    listed = fields.raw.get("gates")
    if not isinstance(listed, list) or not 1 <= len(listed) <= MAX_GATES:
        fields.wrong("gates", f"must be a list of 1 to {MAX_GATES} gates")
        return ()
    gates = tuple(
        parse_gate(one, f"{fields.at('gates')}[{index}]", fields.problems) for index, one in enumerate(listed)
    )
    for name, times in Counter(gate.name for gate in gates).items():
        if times > 1:
            fields.wrong("gates", f"has {times} gates named {name}; give each a name of its own")
    for index, gate in enumerate(gates):
        if ended and gate.count is None and gate.judge is None:
            where = f"{fields.at('gates')}[{index}].count"
            fields.problems.add(where, "is needed here: without it this step would never end")
    return gates


def _canary_scale(fields: Fields, kind: str, problems: Problems) -> Step | None:
    inner = _inner(fields, kind, problems, "replicas", "weight", "matchTrafficWeight")
    if len(inner.raw) != 1:
        fields.wrong(kind, "must be exactly one of replicas, weight and matchTrafficWeight")
        return None
    if inner.has("replicas"):
        return SetCanaryScale(replicas=inner.whole("replicas", 1, least=1, most=1000))
    if inner.has("weight"):
        return SetCanaryScale(percent=inner.whole("weight", 100, least=1, most=100))
    wanted = inner.raw["matchTrafficWeight"]
    if not isinstance(wanted, bool):
        inner.wrong("matchTrafficWeight", "must be true or false")
    return SetCanaryScale(match_weight=wanted is True)


def _header_route(fields: Fields, kind: str, problems: Problems) -> Step:
    inner = _inner(fields, kind, problems, "name", "match")
    listed = inner.raw.get("match", [])
    if not isinstance(listed, list) or len(listed) > MAX_MATCHES:
        inner.wrong("match", f"must be a list of at most {MAX_MATCHES} entries")
        listed = []
    found = [_match(one, f"{inner.at('match')}[{index}]", problems) for index, one in enumerate(listed)]
    return SetHeaderRoute(inner.text("name", "route"), tuple(one for one in found if one is not None))


def _match(raw: Any, path: str, problems: Problems) -> Match | None:
    fields = Fields(raw, path, problems, known=frozenset({"headerName", "headerValue"}))
    value = _inner(fields, "headerValue", problems, "exact", "prefix") if fields.has("headerValue") else None
    name = fields.text("headerName", "x", most=100).lower()
    if value is None or len(value.raw) != 1:
        fields.wrong("headerValue", "must be exactly one of exact and prefix")
        return None
    kind = next(iter(value.raw))
    text = value.text(kind, "x", most=200)
    return Match(name, exact=text) if kind == "exact" else Match(name, prefix=text)


def _tenant_route(fields: Fields, kind: str, problems: Problems) -> Step:
    inner = _inner(fields, kind, problems, "tenants")
    listed = inner.raw.get("tenants")
    if (
        not isinstance(listed, list)
        or len(listed) > MAX_TENANTS
        or not all(isinstance(t, str) for t in listed)
    ):
        inner.wrong("tenants", f"must be a list of at most {MAX_TENANTS} names")
        listed = []
    return SetTenantRoute(tuple(dict.fromkeys(listed)))


def _mirror_route(fields: Fields, kind: str, problems: Problems) -> Step:
    inner = _inner(fields, kind, problems, "percentage", "compare")
    if not inner.has("percentage"):
        inner.wrong("percentage", "is missing")
    return SetMirrorRoute(inner.whole("percentage", 0, most=100), _rules(inner))


_RULE = re.compile(r"exact|ignore|label|close(?::\d{1,9}(?:\.\d{1,9})?)?|rank:[1-9]\d{0,3}")


def _rules(inner: Fields) -> tuple[tuple[str, str], ...]:
    """How the shadow's outputs are compared, by name, where the usual way does not fit."""
    raw = inner.raw.get("compare", {})
    if not isinstance(raw, dict) or len(raw) > 256:
        inner.wrong("compare", "must be an object of rules by output name")
        return ()
    for name, rule in raw.items():
        if not isinstance(rule, str) or _RULE.fullmatch(rule) is None:
            inner.wrong(
                f"compare.{name}", "must be exact, ignore, label, close, close:<tolerance> or rank:<places>"
            )
    return tuple((str(name), str(rule)) for name, rule in raw.items())


def _experiment(fields: Fields, kind: str, problems: Problems) -> Step | None:
    inner = _inner(fields, kind, problems, "percentage", "duration", "gates", "compare")
    gates = parse_gates(inner, ended=True)
    if not inner.has("duration"):
        inner.wrong("duration", "is missing")
    duration = inner.duration("duration", 60.0, least=1.0)
    percent = inner.whole("percentage", 100, least=1, most=100)
    return Experiment(percent, duration, gates, _rules(inner)) if gates else None


_READERS: dict[str, Callable[[Fields, str, Problems], Step | None]] = {
    "setWeight": _weight,
    "pause": _pause,
    "analysis": _analysis,
    "setCanaryScale": _canary_scale,
    "setHeaderRoute": _header_route,
    "setTenantRoute": _tenant_route,
    "setMirrorRoute": _mirror_route,
    "experiment": _experiment,
}
