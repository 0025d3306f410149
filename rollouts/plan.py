"""A strategy's steps, read strictly from JSON and kept as frozen data.

    [{setWeight: 10}, {pause: {duration: "30s"}}, {analysis: {gates: [{indicator: error_ratio, max: 0.02}]}}]

Names are Argo Rollouts' own. One kind for each step; unknown keys are refused by name and path.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from rollouts.durations import text_of
from rollouts.gates import Gate, parse_gate
from rollouts.reading import Fields, Problems

MAX_STEPS, MAX_GATES = 50, 20
# Guesses for the preview only: a replica's load, and the way of a new weight to every node.
_LOAD_SECONDS, _APPLY_SECONDS = 10.0, 3.0


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
        return _APPLY_SECONDS


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
        return max(gate.interval_seconds * gate.count for gate in self.gates)


Step = SetWeight | Pause | Analysis


@dataclass(frozen=True, slots=True)
class Plan:
    steps: tuple[Step, ...]

    def step(self, index: int) -> Step | None:
        """None past the end, where only the promotion is left."""
        return self.steps[index] if index < len(self.steps) else None

    def weight_at(self, index: int) -> int:
        """The canary's weight during step `index`: of the last setWeight at or before it, 0 before the first."""
        weights = [step.percent for step in self.steps[: index + 1] if isinstance(step, SetWeight)]
        return weights[-1] if weights else 0

    @property
    def estimated_seconds(self) -> float:
        """Without the pauses that wait for a person, and if every gate knows its answer at once."""
        return _LOAD_SECONDS + sum(step.seconds for step in self.steps)

    @property
    def waits_for_person(self) -> bool:
        return any(isinstance(step, Pause) and step.duration_seconds is None for step in self.steps)

    def as_json(self) -> list[dict[str, Any]]:
        return [step.as_json() for step in self.steps]


def parse(raw: Any, *, path: str = "steps") -> Plan:
    """Raises Invalid naming every problem by its path, such as steps[2].analysis.gates[0].max."""
    problems = Problems()
    if not isinstance(raw, list) or not raw:
        problems.add(path, "must be a list of at least one step")
    elif len(raw) > MAX_STEPS:
        problems.add(path, f"must hold at most {MAX_STEPS} steps")
    problems.raise_if_any("The plan cannot be used")
    steps = tuple(_step(one, f"{path}[{index}]", problems) for index, one in enumerate(raw))
    plan = Plan(tuple(step for step in steps if step is not None))
    if not problems.found:
        _check_order(plan, path, problems)
    problems.raise_if_any("The plan cannot be used")
    return plan


_KINDS = frozenset({"setWeight", "pause", "analysis"})


def _step(raw: Any, path: str, problems: Problems) -> Step | None:
    fields = Fields(raw, path, problems, known=_KINDS)
    if isinstance(raw, dict) and len(raw) != 1:
        problems.add(path, f"must be exactly one of {', '.join(sorted(_KINDS))}")
        return None
    match next(iter(fields.raw), ""):
        case "setWeight":
            return SetWeight(fields.whole("setWeight", 0, most=100))
        case "pause":
            return _pause(fields.raw["pause"], fields.at("pause"), problems)
        case "analysis":
            return _analysis(fields.raw["analysis"], fields.at("analysis"), problems)
        case _:
            return None


def _pause(raw: Any, path: str, problems: Problems) -> Pause:
    fields = Fields({} if raw is None else raw, path, problems, known=frozenset({"duration"}))
    return Pause(fields.duration("duration", 0.0) if fields.has("duration") else None)


def _analysis(raw: Any, path: str, problems: Problems) -> Analysis | None:
    fields = Fields(raw, path, problems, known=frozenset({"gates"}))
    listed = fields.raw.get("gates")
    if not isinstance(listed, list) or not 1 <= len(listed) <= MAX_GATES:
        fields.wrong("gates", f"must be a list of 1 to {MAX_GATES} gates")
        return None
    gates = tuple(parse_gate(one, f"{path}.gates[{index}]", problems) for index, one in enumerate(listed))
    for name, times in Counter(gate.name for gate in gates).items():
        if times > 1:
            fields.wrong("gates", f"has {times} gates named {name}; give each a name of its own")
    return Analysis(gates)


def _check_order(plan: Plan, path: str, problems: Problems) -> None:
    for index, step in enumerate(plan.steps):
        if isinstance(step, Analysis) and plan.weight_at(index) == 0:
            problems.add(f"{path}[{index}].analysis", "has nothing to judge: the canary's weight is 0 there")
