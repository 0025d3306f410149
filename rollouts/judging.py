"""What the gates of a step and the gates beside the steps ask for: measure, wait, pause, abort or go on. Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from rollouts.decisions import Abort, Decision, Measure, NextStep, PauseNow, Progress, Seen, Wait
from rollouts.gates import Gate
from rollouts.plan import Experiment, Plan
from rollouts.standings import Measured, Outcome, Standing, assess, worst
from rollouts.verdicts import UNKNOWN


def analyse(
    plan: Plan, gates: Sequence[Gate], at: Progress, measured: Sequence[Measured], now: datetime
) -> Decision:
    started = at.judged_from or at.step_started_at or now
    standings = [assess(gate, measured, started_at=started, now=now) for gate in gates]
    deciding = worst(standings)
    if deciding.outcome in (Outcome.ABORT, Outcome.PAUSE):
        return _stop(deciding)
    if deciding.outcome is Outcome.PASSED:
        return next_step(plan, at, f"Passed: {_passed_sentence(standings, measured)}", _summary(standings))
    return measure_due(standings, now) or Wait(_running_sentence(standings))


def next_step(plan: Plan, at: Progress, sentence: str, evidence: Mapping[str, Any] | None = None) -> NextStep:
    following = plan.step(at.step_index + 1)
    then = "promote" if following is None else following.sentence
    return NextStep(at.step_index + 1, f"{sentence}; next: {then}", evidence or {})


def _passed_sentence(standings: Sequence[Standing], measured: Sequence[Measured]) -> str:
    """The last word of each gate."""
    last = {one.gate: one.sentence for one in measured}
    return "; ".join(last.get(standing.gate.name, standing.gate.name) for standing in standings)


def _running_sentence(standings: Sequence[Standing]) -> str:
    parts = []
    for standing in standings:
        count = standing.gate.count
        of = f"{min(standing.passes, count)} of {count} passed" if count else "not decided yet"
        text = f"{standing.gate.name} {of}"
        if standing.deciding is not None and standing.unknown_since is not None:
            text = f"{text}, {standing.deciding.sentence}"
        parts.append(text)
    return f"Judging: {'; '.join(parts)}"


def _summary(standings: Sequence[Standing]) -> dict[str, Any]:
    return {
        standing.gate.name: {"passes": standing.passes, "fails": standing.fails, "count": standing.gate.count}
        for standing in standings
    }


def experiment(plan: Plan, step: Experiment, at: Progress, seen: Seen, now: datetime) -> Decision:
    """Gates decide early only against the version; the time is always spent in full."""
    found = analyse(plan, step.gates, at, seen.measured, now)
    until = (at.step_started_at or now) + timedelta(seconds=step.duration_seconds)
    if isinstance(found, NextStep) and now < until:
        return Wait(f"Comparing in the shadow until {until:%H:%M:%S} UTC")
    return found


# The gates beside the steps


def beside_of(plan: Plan, at: Progress, seen: Seen, now: datetime) -> list[Standing]:
    """Where the background stands; nothing before the canary has requests and its first step has come."""
    background = plan.background
    if background is None or at.traffic_since is None or at.step_index < background.first:
        return []
    started = max(at.traffic_since, at.beside_from or at.traffic_since)
    return [assess(gate, seen.beside, started_at=started, now=now) for gate in background.gates]


def verdict_beside(standings: Sequence[Standing]) -> Decision | None:
    deciding = worst(standings)
    if deciding.outcome not in (Outcome.ABORT, Outcome.PAUSE):
        return None
    return _stop(deciding)


def _stop(deciding: Standing) -> Decision:
    last = deciding.deciding
    assert last is not None
    evidence = {**dict(last.evidence), "rule": _rule(deciding), "otherwise": _otherwise(deciding)}
    if deciding.outcome is Outcome.ABORT:
        return Abort(deciding.reason, last.sentence, evidence)
    return PauseNow(deciding.reason, f"Paused: {last.sentence}", evidence)


def _rule(deciding: Standing) -> dict[str, Any]:
    """The gate as it was judged by."""
    return deciding.gate.as_json()


def _otherwise(deciding: Standing) -> str:
    """What another policy would have said of the same measurements."""
    gate, last = deciding.gate, deciding.deciding
    assert last is not None
    if last.verdict in UNKNOWN:
        return f"with on_{last.verdict.value}: continue it would have gone on without an answer"
    if gate.judge is not None:
        return "a judge's proof is not taken back: only on_fail: pause would have asked a person"
    if gate.count is not None and deciding.fails >= gate.count:
        return "no failure_limit would have let it pass: every measurement failed"
    return f"with failure_limit {deciding.fails} it would have gone on"


def measure_due(standings: Sequence[Standing], now: datetime) -> Measure | None:
    due = tuple(standing.gate for standing in standings if standing.next_at <= now)
    return Measure(due, tuple(standings)) if due else None


def joined(following: Measure | Wait, beside: Measure | None) -> Decision:
    if beside is None or isinstance(following, Wait):
        return beside or following
    return Measure((*following.gates, *beside.gates), (*following.standings, *beside.standings))


def before_promotion(plan: Plan, beside: Sequence[Standing]) -> Decision | None:
    """Not knowing never promotes; nor does a judge that has to pass and has not yet."""
    assert plan.background is not None
    open_ones = [
        standing
        for standing in beside
        if not standing.gate.dry_run
        and (not standing.knows or (plan.background.required and standing.outcome is not Outcome.PASSED))
    ]
    if not open_ones:
        return None
    return Wait(f"Waiting to promote: {_running_sentence(open_ones).removeprefix('Judging: ')}")
