"""A strategy over past traffic: what it would have decided, had the stable version been rolled out beside itself.

Nothing was wrong with that version, as far as anybody acted, so every abort is a false alarm and every pause a person
woken for nothing. The clock is simulated; the readings are those of the time.
"""

from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np

from console.kit import clock
from console.metrics.choose import source as chosen_source
from console.metrics.source import Indicator, NoData, Query, Reading, SignalSource, Value
from console.services.models import Service
from inference.models import Placement
from rollouts.compare import look
from rollouts.evidence import Window
from rollouts.gates import Gate
from rollouts.judge import Judgement, judge, wants_stable
from rollouts.plan import Analysis, Experiment, Pause, Plan
from rollouts.standings import Measured, Outcome, assess, worst
from rollouts.verdicts import Verdict

_TICK = timedelta(seconds=5)
_LONGEST = timedelta(hours=6)
_APPLY = timedelta(seconds=5)
MAX_READINGS = 20_000


@dataclass(frozen=True, slots=True)
class Run:
    """outcome: promoted, aborted, needs_person or no_history."""

    started_at: datetime
    outcome: str
    sentence: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Replay:
    runs: tuple[Run, ...]

    def as_json(self) -> dict[str, Any]:
        counted = Counter(run.outcome for run in self.runs)
        judged = len(self.runs) - counted["no_history"]
        return {
            "starts": len(self.runs),
            **{key: counted[key] for key in ("promoted", "aborted", "needs_person", "no_history")},
            "sentence": (
                f"Of {judged} starts over past traffic of a version beside itself, {counted['aborted']} would have been"
                f" aborted and {counted['needs_person']} would have asked for a person."
            ),
            "runs": [
                {
                    "started_at": run.started_at.isoformat().replace("+00:00", "Z"),
                    "outcome": run.outcome,
                    "sentence": run.sentence,
                    "seconds": run.seconds,
                }
                for run in self.runs
            ],
        }


def over_past(
    plan: Plan, service: Service, *, hours: float, starts: int, source: SignalSource | None = None
) -> Replay:
    """Starts spread evenly over the last hours."""
    stable = Placement.objects.of(service).stable().first()
    now = clock.now()
    if stable is None:
        return Replay(())
    begin = now - timedelta(hours=hours)
    spread = (now - begin) / starts
    past = _Past(source or chosen_source(), service.name, stable.version.number, now)
    return Replay(tuple(past.run(plan, begin + spread * index) for index in range(starts)))


class _Over(Exception):
    """Nothing more can be read."""


class _Past:
    def __init__(self, source: SignalSource, service: str, version: int, now: datetime) -> None:
        self.source, self.service, self.version, self.now = source, service, version, now
        self.readings = 0
        self.chance = np.random.default_rng(0)  # the same question has the same answer

    def run(self, plan: Plan, started_at: datetime) -> Run:
        """One rollout: the steps in turn, with the gates beside them."""
        walk = _Walk(self, plan, started_at)
        try:
            outcome, sentence = walk.to_end()
        except _Over as over:
            outcome, sentence = "no_history", str(over)
        return Run(started_at, outcome, sentence, (walk.at - started_at).total_seconds())

    def read(
        self, indicator: Indicator, at: datetime, window: float, objective_ms: float | None, share: float
    ) -> Reading:
        """share: of the requests that the version would have had."""
        if at > self.now:
            raise _Over("the past ends before the rollout does")
        self.readings += 1
        if self.readings > MAX_READINGS:
            raise _Over(f"more than {MAX_READINGS} readings; ask for fewer starts")
        query = Query(indicator, self.service, self.version, window_seconds=window, objective_ms=objective_ms)
        reading = self.source.read(query, at=at.timestamp())
        if isinstance(reading, Value):
            return self._thinned(indicator, reading, share)
        return reading

    def _thinned(self, indicator: Indicator, reading: Value, share: float) -> Value:
        """What a share of these requests would have shown: the fewer, the noisier, and noise makes false alarms.

        Latencies cannot be thinned without single requests; they stay as they were.
        """
        requests = round(reading.requests * share)
        value = reading.value
        match indicator:
            case Indicator.REQUESTS | Indicator.REQUEST_RATE:
                value = reading.value * share
            case Indicator.ERROR_RATIO | Indicator.SLOW_SHARE if requests > 0:
                value = float(self.chance.binomial(requests, min(1.0, max(0.0, value)))) / requests
        return Value(value, float(requests), reading.at, reading.source, reading.query)


class _Walk:
    def __init__(self, past: _Past, plan: Plan, started_at: datetime) -> None:
        self.past, self.plan, self.at, self.started_at = past, plan, started_at, started_at
        self.measured: list[Measured] = []
        self.windows: dict[tuple[str, Indicator], list[Window]] = {}
        self.looked_at: dict[tuple[str, Indicator], datetime] = {}
        self.index = 0

    def to_end(self) -> tuple[str, str]:
        for index, step in enumerate(self.plan.steps):
            self.index, began = index, self.at
            match step:
                case Pause(duration_seconds=None):
                    continue  # a person would resume
                case Pause():
                    stopped = self._until(began + timedelta(seconds=step.duration_seconds or 0.0))
                case Analysis(gates):
                    stopped = self._judged(gates, began)
                case Experiment():
                    stopped = self._until(began + timedelta(seconds=step.duration_seconds))
                case _:
                    stopped = self._until(began + _APPLY)
            if stopped is not None:
                return stopped
        return "promoted", "every step would have been done"

    def _until(self, end: datetime) -> tuple[str, str] | None:
        while self.at < end:
            self.at += _TICK
            if (stopped := self._beside()) is not None:
                return stopped
        return None

    def _judged(self, gates: tuple[Gate, ...], began: datetime) -> tuple[str, str] | None:
        while True:
            self.at += _TICK
            if self.at - self.started_at > _LONGEST:
                return "needs_person", f"would not have ended within {_LONGEST}"
            if (stopped := self._beside()) is not None:
                return stopped
            outcome, sentence = self._assess(gates, began)
            if outcome is Outcome.PASSED:
                return None
            if outcome in (Outcome.ABORT, Outcome.PAUSE):
                return ("aborted" if outcome is Outcome.ABORT else "needs_person"), sentence

    def _beside(self) -> tuple[str, str] | None:
        background = self.plan.background
        if background is None or self.plan.weight_at(self.index) == 0 or self.index < background.first:
            return None
        outcome, sentence = self._assess(background.gates, self.started_at)
        if outcome in (Outcome.ABORT, Outcome.PAUSE):
            return ("aborted" if outcome is Outcome.ABORT else "needs_person"), sentence
        return None

    def _assess(self, gates: tuple[Gate, ...], began: datetime) -> tuple[Outcome, str]:
        mine = [one for one in self.measured if one.at > began]
        standings = [assess(gate, mine, started_at=began, now=self.at) for gate in gates]
        for standing in standings:
            if standing.next_at <= self.at:
                self._measure(standing.gate)
        mine = [one for one in self.measured if one.at > began]
        deciding = worst([assess(gate, mine, started_at=began, now=self.at) for gate in gates])
        return deciding.outcome, deciding.deciding.sentence if deciding.deciding else ""

    def _measure(self, gate: Gate) -> None:
        if gate.asks or gate.indicator is Indicator.AGREEMENT:
            self._note(gate, Judgement(Verdict.PASSED, f"{gate.name} is not replayed", ""))
            return
        share = max(self.plan.weight_at(self.index), 1) / 100
        if gate.judge is not None:
            for metric in gate.judge.metrics:  # by all tenants together: strata only ever add to it
                self._note(gate, self._compared(gate, metric, share))
            return
        assert gate.indicator is not None
        canary = self.past.read(gate.indicator, self.at, gate.window_seconds, gate.objective_ms, share)
        if isinstance(canary, NoData) and "reported" in canary.reason:
            raise _Over("nothing was recorded then")
        stable = canary if wants_stable(gate, canary) and gate.max_ratio_to_stable is not None else None
        self._note(gate, judge(gate, canary, stable))

    def _compared(self, gate: Gate, metric: Indicator, share: float) -> Judgement:
        assert gate.judge is not None
        key = gate.name, metric
        window = max((self.at - self.looked_at.get(key, self.started_at)).total_seconds(), 2.0)
        read = self.past.read
        canary = read(metric, self.at, window, gate.judge.objective_ms, share)
        stable = read(metric, self.at, window, gate.judge.objective_ms, 1.0 - min(share, 0.99))
        found = look(gate, metric, self.windows.setdefault(key, []), canary, stable)
        if found.window is not None:
            self.windows[key].append(found.window)
            self.looked_at[key] = self.at
        return found.judgement

    def _note(self, gate: Gate, judgement: Judgement) -> None:
        self.measured.append(Measured(gate.name, self.at, judgement.verdict, judgement.sentence))
