"""A strategy: steps, and what holds beside and after them; read strictly from JSON and kept as frozen data.

    {steps: [{setWeight: 10}, {pause: {duration: "30s"}}, {analysis: {gates: [{indicator: error_ratio, max: 0.02}]}}],
     background: {gates: [...]}, watch: {duration: "10m", gates: [...]}, deadline: {step: "1h"}, sticky: {by: tenant}}

A plain list is the steps alone. One kind for each step; unknown keys are refused by name and path.
"""

from dataclasses import dataclass
from typing import Any, TypeVar

from console.metrics.source import Indicator
from rollouts.durations import text_of
from rollouts.gates import Gate
from rollouts.reading import Fields, Problems
from rollouts.steps import (
    LOAD_SECONDS,
    Analysis,
    Experiment,
    Match,
    Pause,
    SetCanaryScale,
    SetHeaderRoute,
    SetMirrorRoute,
    SetTenantRoute,
    SetWeight,
    Step,
    parse_gates,
    parse_step,
)
from rollouts.verdicts import Do, read_do

__all__ = ["Analysis", "Experiment", "Pause", "Plan", "SetWeight", "Step", "parse"]

MAX_STEPS = 50
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Background:
    """Gates that are measured beside the steps, pauses included, from step `first` on and once requests flow.

    required: nothing is promoted before each of them has passed.
    """

    gates: tuple[Gate, ...]
    first: int = 0
    required: bool = False

    def as_json(self) -> dict[str, Any]:
        told = {"gates": [gate.as_json() for gate in self.gates]}
        return {**told, "startingStep": self.first, "required": self.required}


@dataclass(frozen=True, slots=True)
class Watch:
    """After the promotion: the old version stays loaded for so long, and a gate that fails brings it back."""

    seconds: float
    gates: tuple[Gate, ...]

    def as_json(self) -> dict[str, Any]:
        return {"duration": text_of(self.seconds), "gates": [gate.as_json() for gate in self.gates]}


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds; None is none. A pause for a person is not counted. then: what follows."""

    step_seconds: float | None = None
    rollout_seconds: float | None = None
    then: Do = Do.ABORT

    @property
    def sentence(self) -> str:
        """Empty without a deadline."""
        limits = (("a step", self.step_seconds), ("the rollout", self.rollout_seconds))
        told = " and ".join(f"{what} {text_of(value)}" for what, value in limits if value is not None)
        return f"{told} at most, then {self.then.value}" if told else ""

    def as_json(self) -> dict[str, Any]:
        told = {"step": self.step_seconds, "rollout": self.rollout_seconds}
        return {key: text_of(value) for key, value in told.items() if value is not None} | {
            "then": self.then.value
        }


@dataclass(frozen=True, slots=True)
class Sticky:
    """Who stays with the version it met: a tenant, or a value of a header. header: "" for tenants."""

    header: str = ""

    def as_json(self) -> dict[str, Any]:
        return {"by": "header", "name": self.header} if self.header else {"by": "tenant"}


@dataclass(frozen=True, slots=True)
class Routing:
    """Who reaches the new version besides its weight. mirror_percent: of stable's requests, repeated in the shadow."""

    matches: tuple[Match, ...] = ()
    tenants: tuple[str, ...] = ()
    mirror_percent: int = 0
    sticky: Sticky | None = None
    compare: tuple[tuple[str, str], ...] = ()

    @property
    def sends(self) -> bool:
        """Some clients get the new version's answers."""
        return bool(self.matches or self.tenants)


NO_ROUTING = Routing()


@dataclass(frozen=True, slots=True)
class Plan:
    steps: tuple[Step, ...]
    background: Background | None = None
    watch: Watch | None = None
    deadlines: Deadlines = Deadlines()
    sticky: Sticky | None = None

    def step(self, index: int) -> Step | None:
        """None past the end, where only the promotion is left."""
        return self.steps[index] if index < len(self.steps) else None

    def _last(self, index: int, kind: type[T]) -> T | None:
        """The last step of a kind at or before `index`."""
        return next((one for one in reversed(self.steps[: index + 1]) if isinstance(one, kind)), None)

    def weight_at(self, index: int) -> int:
        """The canary's weight during step `index`: of the last setWeight at or before it, 0 before the first."""
        last = self._last(index, SetWeight)
        return last.percent if last else 0

    def mirror_at(self, index: int) -> SetMirrorRoute:
        """The shadow during a step: an experiment has one of its own."""
        step = self.step(index)
        if isinstance(step, Experiment):
            return SetMirrorRoute(step.percent, step.compare)
        return self._last(index, SetMirrorRoute) or SetMirrorRoute(0)

    def header_routes_at(self, index: int) -> tuple[SetHeaderRoute, ...]:
        routes = {one.name: one for one in self.steps[: index + 1] if isinstance(one, SetHeaderRoute)}
        return tuple(one for one in routes.values() if one.matches)

    def tenants_at(self, index: int) -> tuple[str, ...]:
        last = self._last(index, SetTenantRoute)
        return last.tenants if last else ()

    def replicas_at(self, index: int, stable: int) -> int:
        """How many replicas the canary has during a step, beside `stable` ones of the stable version.

        Never fewer than its weight needs: a setCanaryScale that was meant for a small weight must not overload it.
        """
        if self.step(index) is None:
            return max(1, stable)
        weight = self.weight_at(index)
        scale = self._last(index, SetCanaryScale) or SetCanaryScale()
        return max(scale.replicas_for(stable, weight), -(-stable * weight // 100))

    def routing_at(self, index: int) -> Routing:
        if self.step(index) is None:
            return Routing(sticky=self.sticky)
        matches = tuple(match for route in self.header_routes_at(index) for match in route.matches)
        mirror = self.mirror_at(index)
        rules = mirror.compare if mirror.percent else ()
        return Routing(matches, self.tenants_at(index), mirror.percent, self.sticky, rules)

    @property
    def estimated_seconds(self) -> float:
        """Without the pauses that wait for a person, and if every gate knows its answer at once."""
        return LOAD_SECONDS + sum(step.seconds for step in self.steps)

    @property
    def waits_for_person(self) -> bool:
        return any(isinstance(step, Pause) and step.duration_seconds is None for step in self.steps)

    def most_weight_from(self, index: int) -> int:
        """The highest weight that is reached from step `index` on before a pause for a person; 100 is the promotion."""
        most = self.weight_at(index)
        for step in self.steps[index:]:
            if isinstance(step, Pause) and step.duration_seconds is None:
                return most
            if isinstance(step, SetWeight):
                most = max(most, step.percent)
        return 100

    def as_json(self) -> list[dict[str, Any]]:
        return [step.as_json() for step in self.steps]

    def options_as_json(self) -> dict[str, Any]:
        """Everything but the steps; what is not wanted is left out."""
        parts = {"background": self.background, "watch": self.watch, "sticky": self.sticky}
        told = {key: part.as_json() for key, part in parts.items() if part is not None}
        return told | ({"deadline": self.deadlines.as_json()} if self.deadlines != Deadlines() else {})


_OPTIONS = frozenset({"background", "watch", "deadline", "sticky"})


def parse(raw: Any, *, options: Any = None, path: str = "steps") -> Plan:
    """steps, or an object with steps and options. Raises Invalid naming every problem by its path, such as
    steps[2].analysis.gates[0].max."""
    problems = Problems()
    if isinstance(raw, dict):
        fields = Fields(raw, "strategy", problems, known=_OPTIONS | {"steps"})
        raw, options = fields.raw.get("steps"), {key: fields.raw[key] for key in _OPTIONS & fields.raw.keys()}
    if not isinstance(raw, list) or not raw:
        problems.add(path, "must be a list of at least one step")
    elif len(raw) > MAX_STEPS:
        problems.add(path, f"must hold at most {MAX_STEPS} steps")
    problems.raise_if_any("The plan cannot be used")
    steps = tuple(parse_step(one, f"{path}[{index}]", problems) for index, one in enumerate(raw))
    plan = _with_options(tuple(step for step in steps if step is not None), options or {}, problems)
    if not problems.found:
        _check_order(plan, path, problems)
    problems.raise_if_any("The plan cannot be used")
    return plan


def _with_options(steps: tuple[Step, ...], raw: Any, problems: Problems) -> Plan:
    fields = Fields(raw, "strategy", problems, known=_OPTIONS)
    inner = {
        key: Fields(fields.raw[key], key, problems, known=known)
        for key, known in _KNOWN.items()
        if fields.has(key)
    }
    return Plan(
        steps,
        background=_background(inner["background"]) if "background" in inner else None,
        watch=_watch(inner["watch"]) if "watch" in inner else None,
        deadlines=_deadlines(inner["deadline"]) if "deadline" in inner else Deadlines(),
        sticky=_sticky(inner["sticky"]) if "sticky" in inner else None,
    )


_KNOWN = {
    "background": frozenset({"gates", "startingStep", "required"}),
    "watch": frozenset({"duration", "gates"}),
    "deadline": frozenset({"step", "rollout", "then"}),
    "sticky": frozenset({"by", "name"}),
}


def _background(fields: Fields) -> Background:
    required = fields.raw.get("required", False)
    if not isinstance(required, bool):
        fields.wrong("required", "must be true or false")
    gates = parse_gates(fields, ended=required is True)
    return Background(gates, fields.whole("startingStep", 0, most=MAX_STEPS), required is True)


def _watch(fields: Fields) -> Watch:
    if not fields.has("duration"):
        fields.wrong("duration", "is missing")
    gates = parse_gates(fields, ended=False)
    for index, gate in enumerate(gates):
        if gate.judge is not None or gate.max_ratio_to_stable is not None:
            where = f"{fields.at('gates')}[{index}]"
            fields.problems.add(where, "compares with stable, which has no requests left after the promotion")
    return Watch(fields.duration("duration", 600.0, least=1.0), gates)


def _deadlines(fields: Fields) -> Deadlines:
    def seconds(key: str) -> float | None:
        return fields.duration(key, 0.0, least=1.0) if fields.has(key) else None

    then = fields.read("then", Do.ABORT, read_do)
    if then is Do.CONTINUE:
        fields.wrong("then", "must be abort or pause")
    return Deadlines(seconds("step"), seconds("rollout"), then)


def _sticky(fields: Fields) -> Sticky:
    by = fields.raw.get("by")
    if by not in ("tenant", "header"):
        fields.wrong("by", "must be tenant or header")
    if (by == "header") != fields.has("name"):
        fields.wrong("name", "belongs to by: header, which needs it: the name of the header")
    return Sticky(fields.text("name", "x", most=100).lower() if by == "header" else "")


def _check_order(plan: Plan, path: str, problems: Problems) -> None:
    for index, step in enumerate(plan.steps):
        gates = step.gates if isinstance(step, Analysis) else ()
        reached = plan.weight_at(index) or plan.header_routes_at(index) or plan.tenants_at(index)
        for place, gate in enumerate(gates):
            if gate.indicator is Indicator.AGREEMENT:
                if plan.mirror_at(index).percent == 0:
                    where = f"{path}[{index}].analysis.gates[{place}]"
                    problems.add(where, "has nothing to compare: no shadow is set before it")
            elif not reached and not gate.query:
                problems.add(
                    f"{path}[{index}].analysis", "has nothing to judge: the canary's weight is 0 there"
                )
    if plan.background is not None and plan.background.first >= len(plan.steps):
        problems.add("background.startingStep", "is past the last step")
