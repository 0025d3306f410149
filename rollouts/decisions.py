"""What a decision looks at, and the decisions there are: frozen data, nothing else."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from rollouts.gates import Gate
from rollouts.plan import NO_ROUTING, Routing
from rollouts.standings import Measured, Standing
from rollouts.states import Reason, State


@dataclass(frozen=True, slots=True)
class Progress:
    """The row, as far as a decision needs it. beside_from: the gates beside the steps begin anew since then."""

    state: State
    reason: Reason
    from_version: int | None
    to_version: int
    step_index: int
    weight_percent: int
    moved_at: datetime
    step_started_at: datetime | None = None
    judged_from: datetime | None = None
    traffic_since: datetime | None = None
    outages: int = 0
    started_at: datetime | None = None
    beside_from: datetime | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """What the traffic target says now, and the measurements of this step and of the gates beside the steps.

    canary_weight: None when the canary has no placement. applied: every live node does what was last asked.
    """

    stable_version: int | None
    canary_version: int | None
    canary_weight: int | None
    wanted: int
    ready: int
    failed_detail: str
    applied: bool
    measured: tuple[Measured, ...] = ()
    stable_replicas: int = 1
    canary_replicas: int = 1
    routing: Routing = NO_ROUTING
    beside: tuple[Measured, ...] = ()


@dataclass(frozen=True, slots=True)
class Wait:
    """sentence: what for; empty when the row says it already."""

    sentence: str


KEEP_WAITING = Wait("")


@dataclass(frozen=True, slots=True)
class Start:
    sentence: str


@dataclass(frozen=True, slots=True)
class Clear:
    """Take away a canary that nobody owns any more."""

    version: int
    sentence: str


@dataclass(frozen=True, slots=True)
class Place:
    sentence: str


@dataclass(frozen=True, slots=True)
class Shift:
    """outage: the canary lost its last ready replica, so the weight is not a step's but 0."""

    to_percent: int
    sentence: str
    outage: bool = False


@dataclass(frozen=True, slots=True)
class Scale:
    to_replicas: int
    sentence: str


@dataclass(frozen=True, slots=True)
class Route:
    routing: Routing
    sentence: str


@dataclass(frozen=True, slots=True)
class NextStep:
    index: int
    sentence: str
    evidence: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Measure:
    gates: tuple[Gate, ...]
    standings: tuple[Standing, ...]


@dataclass(frozen=True, slots=True)
class PauseNow:
    reason: Reason
    sentence: str
    evidence: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Abort:
    reason: Reason
    sentence: str
    evidence: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Promote:
    """The rollout succeeded. The fleet is told after this is recorded, and told again until it obeys."""

    sentence: str


@dataclass(frozen=True, slots=True)
class Install:
    """After the end: make the new version the stable one."""


@dataclass(frozen=True, slots=True)
class Withdraw:
    """After the end: take the canary away, stable gets everything."""


@dataclass(frozen=True, slots=True)
class Settle:
    """After the end: the fleet does what the state says."""


Decision = (
    Wait | Start | Clear | Place | Shift | Scale | Route | NextStep | Measure | PauseNow | Abort | Promote
    | Install | Withdraw | Settle
)  # fmt: skip
