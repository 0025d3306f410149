"""After a promotion: the new version is watched, and a breach brings the old one back, which is still loaded.

The rollout has ended by then and holds no lease. Coming back is a rollout of its own, so that it has its record.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from console.kit import clock
from console.kit.errors import OperationError
from console.metrics.choose import source as chosen_source
from console.metrics.source import SignalSource
from console.tenants.permissions import process
from inference.models import Placement
from rollouts import actions
from rollouts import decisions as d
from rollouts.measure import measure
from rollouts.models import Rollout
from rollouts.observe import measured_of
from rollouts.plan import Watch
from rollouts.record import note
from rollouts.standings import Measured, Outcome, Standing, assess, worst


class End(StrEnum):
    KEPT = "kept"
    RETURNED = "returned"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Over:
    end: End
    sentence: str


def decide_watch(
    watch: Watch,
    measured: tuple[Measured, ...],
    *,
    began: datetime,
    until: datetime,
    is_stable: bool,
    now: datetime,
) -> Over | d.Measure | None:
    """Only a breach brings the old version back: not knowing is told, and undoes nothing."""
    if not is_stable:
        return Over(End.CANCELLED, "Stopped watching: another version is stable now")
    standings = [assess(gate, measured, started_at=began, now=now) for gate in watch.gates]
    failed = _failed(standings)
    if failed is not None and failed.deciding is not None:
        return Over(End.RETURNED, failed.deciding.sentence)
    if now >= until:
        return Over(End.KEPT, f"Watched until {until:%H:%M:%S} UTC without a breach")
    due = tuple(standing.gate for standing in standings if standing.next_at <= now)
    return d.Measure(due, tuple(standings)) if due else None


def _failed(standings: list[Standing]) -> Standing | None:
    deciding = worst([one for one in standings if one.fails] or standings)
    return deciding if deciding.outcome is Outcome.ABORT and deciding.fails else None


def tick(rollout_id: int, *, source: SignalSource | None = None) -> None:
    """One look at a promoted version; measuring and judging once."""
    rollout = Rollout.objects.with_names().get(pk=rollout_id)
    watch = rollout.plan.watch
    if watch is None or rollout.watch_until is None or rollout.watch_ended_at is not None:
        return
    began = rollout.watch_until - timedelta(seconds=watch.seconds)
    for _ in range(2):
        now = clock.now()
        stable = Placement.objects.of(rollout.service).stable().first()
        found = decide_watch(
            watch,
            measured_of(rollout, [gate.name for gate in watch.gates], since=began),
            began=began,
            until=rollout.watch_until,
            is_stable=stable is not None and stable.version_id == rollout.to_version_id,
            now=now,
        )
        match found:
            case d.Measure():
                measure(rollout, found, source or chosen_source(), now)
            case Over(end, sentence):
                _end(rollout, end, sentence, now)
                return
            case None:
                return


def _end(rollout: Rollout, end: End, sentence: str, now: datetime) -> None:
    if end is End.RETURNED and rollout.from_version is not None:
        try:
            back = actions.go_back(rollout, reason=sentence, actor=process(rollout.owner))
            sentence = f"Going back to version {rollout.from_version.number} by rollout {back.pk}: {sentence}"
        except OperationError as error:
            end, sentence = End.CANCELLED, f"Could not go back: {error.detail}"
    note(rollout, sentence, watch_ended_at=now, watch_outcome=end.value)
