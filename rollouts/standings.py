"""Where a gate stands after its measurements, and which of several gates decides. Pure; the same for every caller."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import groupby, takewhile
from typing import Any

from rollouts.gates import Gate
from rollouts.states import Reason
from rollouts.verdicts import UNKNOWN, Do, Verdict


@dataclass(frozen=True, slots=True)
class Measured:
    """One measurement, as far as a decision needs it. sentence: the verdict with its numbers."""

    gate: str
    at: datetime
    verdict: Verdict
    sentence: str
    evidence: tuple[tuple[str, Any], ...] = ()


class Outcome(StrEnum):
    """From best to worst; a step is as good as its worst gate."""

    PASSED = "passed"
    RUNNING = "running"
    PAUSE = "pause"
    ABORT = "abort"


_SEVERITY = {outcome: rank for rank, outcome in enumerate(Outcome)}
_OF_DO = {Do.ABORT: Outcome.ABORT, Do.PAUSE: Outcome.PAUSE}
# Of several metrics that were judged at one look, the worst speaks.
_WORST_FIRST = (
    Verdict.FAILED,
    Verdict.PROVIDER_ERROR,
    Verdict.NO_DATA,
    Verdict.INCONCLUSIVE,
    Verdict.LOW_EVIDENCE,
    Verdict.PASSED,
)
_ERRORS = frozenset({Verdict.PROVIDER_ERROR, Verdict.NO_DATA})


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a gate stands. deciding: the measurement that a pause, an abort or an exception rests on."""

    gate: Gate
    outcome: Outcome
    passes: int
    fails: int
    next_at: datetime
    unknown_since: datetime | None = None
    deciding: Measured | None = None

    @property
    def reason(self) -> Reason:
        if self.deciding is None:
            return Reason.NONE
        return UNKNOWN.get(self.deciding.verdict, Reason.BREACH)

    @property
    def knows(self) -> bool:
        """The last measurement was an answer: what is promoted now is not promoted on ignorance."""
        return self.unknown_since is None


def assess(gate: Gate, measured: Sequence[Measured], *, started_at: datetime, now: datetime) -> Standing:
    """Where the gate stands after these measurements of it, oldest first.

    A gate that passed is still measured while its step goes on: what breaks later still aborts.
    """
    mine = _looks(gate, measured)
    streak = list(takewhile(lambda one: one.verdict in UNKNOWN, reversed(mine)))[::-1]
    standing = Standing(
        gate,
        Outcome.RUNNING,
        passes=sum(one.verdict is Verdict.PASSED for one in mine),
        fails=sum(one.verdict is Verdict.FAILED for one in mine),
        next_at=_next_at(gate, mine, started_at),
        unknown_since=streak[0].at if streak else None,
    )
    done = _is_done(standing, mine, now - started_at)
    standing = replace(standing, outcome=Outcome.PASSED) if done else standing
    if gate.dry_run:
        return standing
    return _failed(standing, mine) or _unknown(standing, mine, streak, now) or standing


def _looks(gate: Gate, measured: Sequence[Measured]) -> list[Measured]:
    mine = [one for one in measured if one.gate == gate.name]
    if gate.judge is None:
        return mine
    # A stratum speaks only against the version: the few requests of one tenant need not prove that it is good.
    mine = [one for one in mine if one.verdict is Verdict.FAILED or not dict(one.evidence).get("stratum")]
    return [_joined(list(one)) for _, one in groupby(mine, lambda m: m.at)]


def _joined(look: list[Measured]) -> Measured:
    """All metrics of one look of the judge as one measurement."""
    worst_verdict = min((one.verdict for one in look), key=_WORST_FIRST.index)
    told = [one for one in look if one.verdict is worst_verdict]
    return replace(told[0], sentence="; ".join(one.sentence for one in told))


def _next_at(gate: Gate, mine: Sequence[Measured], started_at: datetime) -> datetime:
    """From the last measurement, not from when it was due: what was missed is not caught up."""
    if mine:
        return mine[-1].at + timedelta(seconds=gate.interval_seconds)
    return started_at + timedelta(seconds=gate.initial_delay_seconds or gate.interval_seconds)


def _is_done(standing: Standing, mine: Sequence[Measured], since: timedelta) -> bool:
    gate = standing.gate
    if gate.judge is not None:
        decided = bool(mine) and mine[-1].verdict is Verdict.PASSED
        return decided and since >= timedelta(seconds=gate.judge.least_seconds)
    if gate.success_limit and _trailing(mine, {Verdict.PASSED}) >= gate.success_limit:
        return True
    used = standing.passes + standing.fails
    if gate.inconclusive_limit is not None:
        used += sum(one.verdict is Verdict.INCONCLUSIVE for one in mine)
    return gate.count is not None and used >= gate.count


def _failed(standing: Standing, mine: Sequence[Measured]) -> Standing | None:
    gate = standing.gate
    total = 0 <= gate.failure_limit < standing.fails
    limit = gate.consecutive_failure_limit
    if not total and (limit is None or _trailing(mine, {Verdict.FAILED}) <= limit):
        return None
    last = next(one for one in reversed(mine) if one.verdict is Verdict.FAILED)
    if gate.on_fail is Do.CONTINUE:
        return replace(standing, deciding=last)
    return replace(standing, outcome=_OF_DO[gate.on_fail], deciding=last)


def _unknown(
    standing: Standing, mine: Sequence[Measured], streak: Sequence[Measured], now: datetime
) -> Standing | None:
    """Not knowing now outweighs having passed before."""
    if not streak:
        return None
    gate, latest = standing.gate, streak[-1]
    policy = gate.policy(latest.verdict)
    limit = gate.inconclusive_limit if latest.verdict is Verdict.INCONCLUSIVE else None
    limit = gate.error_limit if latest.verdict in _ERRORS else limit
    if limit is None:
        over = now - streak[0].at >= timedelta(seconds=policy.wait_seconds)
    elif latest.verdict is Verdict.INCONCLUSIVE:
        over = sum(one.verdict is Verdict.INCONCLUSIVE for one in mine) > limit
        if not over:
            return None  # forgiven by number: it counts as a measurement like any other
    else:
        over = _trailing(mine, _ERRORS) > limit
    if not over:
        return replace(standing, outcome=Outcome.RUNNING, deciding=latest)
    if policy.then is Do.CONTINUE:
        return replace(standing, outcome=Outcome.PASSED, unknown_since=None, deciding=latest)
    return replace(standing, outcome=_OF_DO[policy.then], deciding=latest)


def _trailing(mine: Sequence[Measured], verdicts: "set[Verdict] | frozenset[Verdict]") -> int:
    return sum(1 for _ in takewhile(lambda one: one.verdict in verdicts, reversed(mine)))


def worst(standings: Sequence[Standing]) -> Standing:
    """The standing that decides; the first of equals, so the order of gates in the plan is their order of blame."""
    return max(standings, key=lambda standing: _SEVERITY[standing.outcome])
