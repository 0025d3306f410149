"""What a load test will do, checked and bounded: the settings of a run, and its estimate. Pure."""

import math
import re
from dataclasses import asdict, dataclass
from typing import Any

from console.kit.errors import Invalid

# Caps of the house. A load test is a tool of everyone with the role of an operator, so it can be no flood.
MOST_SECONDS = 600
MOST_REQUESTS = 500_000
MOST_RATE = 20_000.0
MOST_CONNECTIONS = 256
MOST_THRESHOLDS = 8

MODES = ("open", "closed")
ARRIVALS = ("poisson", "constant")
PROTOCOLS = ("http", "grpc")

_THRESHOLD = re.compile(
    r"(qps|mean|p50|p95|p99|max|errors)\s*([<>]?=?)\s*(\d{1,9}(?:\.\d{1,6})?)\s*(us|ms|s|%)?"
)
_MILLISECONDS = {"us": 0.001, "ms": 1.0, "s": 1000.0}
_HIGHER_IS_BETTER = frozenset({"qps"})


@dataclass(frozen=True, slots=True)
class Plan:
    """mode open: `rate` requests a second whatever the answers do; closed: each connection waits for its answer."""

    mode: str = "open"
    rate: float = 50.0
    arrivals: str = "poisson"
    connections: int = 8
    duration_seconds: int = 20
    warmup_seconds: int = 2
    protocol: str = "http"

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def total_requests(self) -> int | None:
        """None in a closed loop: how many there will be is what it finds out."""
        return math.ceil(self.rate * self.duration_seconds) if self.mode == "open" else None

    @property
    def seconds(self) -> int:
        return self.duration_seconds + self.warmup_seconds

    @property
    def sentence(self) -> str:
        every = {"poisson": "at random moments", "constant": "evenly spaced"}[self.arrivals]
        if self.mode == "open":
            return (
                f"{self.rate:g} requests/s {every} for {self.duration_seconds} s, "
                f"{self.total_requests:,} in all, over up to {self.connections} connections"
            )
        return (
            f"{self.connections} connections for {self.duration_seconds} s, each sends its next request as soon as it "
            f"has the answer; it ends after {MOST_REQUESTS:,} requests at the latest"
        )


@dataclass(frozen=True, slots=True)
class Threshold:
    """figure: qps, mean, p50, p95, p99, max or errors. limit: requests/s, milliseconds, or a ratio 0..1."""

    figure: str
    limit: float
    text: str

    @property
    def is_floor(self) -> bool:
        return self.figure in _HIGHER_IS_BETTER

    def is_met(self, value: float) -> bool:
        return value >= self.limit if self.is_floor else value <= self.limit


def checked(raw: dict[str, Any]) -> Plan:
    """The plan of a validated body. Raises Invalid that names every value beyond the caps."""
    plan = Plan(**{name: value for name, value in raw.items() if value is not None})
    wrong: dict[str, str] = {}
    if plan.mode not in MODES:
        wrong["mode"] = f"one of {', '.join(MODES)}"
    if plan.arrivals not in ARRIVALS:
        wrong["arrivals"] = f"one of {', '.join(ARRIVALS)}"
    if plan.protocol not in PROTOCOLS:
        wrong["protocol"] = f"one of {', '.join(PROTOCOLS)}"
    if not (math.isfinite(plan.rate) and 0 < plan.rate <= MOST_RATE):
        wrong["rate"] = f"above 0, at most {MOST_RATE:g} requests/s"
    if not 1 <= plan.connections <= MOST_CONNECTIONS:
        wrong["connections"] = f"1 to {MOST_CONNECTIONS}"
    if not 1 <= plan.duration_seconds <= MOST_SECONDS:
        wrong["duration_seconds"] = f"1 to {MOST_SECONDS} s"
    if not 0 <= plan.warmup_seconds <= 60:
        wrong["warmup_seconds"] = "0 to 60 s"
    total = None if wrong else plan.total_requests
    if total is not None and total > MOST_REQUESTS:
        wrong["duration_seconds"] = (
            f"{plan.rate:g} requests/s for {plan.duration_seconds} s are {total:,} requests; "
            f"the cap is {MOST_REQUESTS:,}"
        )
    if wrong:
        raise Invalid("The load test cannot run like this.", fields=wrong)
    return plan


def thresholds_of(texts: list[str]) -> list[Threshold]:
    """`p99=250ms`, `errors=1%`, `qps=500`. Raises Invalid with the first one that cannot be read."""
    if len(texts) > MOST_THRESHOLDS:
        raise Invalid("There are too many thresholds.", fields={"thresholds": f"at most {MOST_THRESHOLDS}"})
    return [_threshold(text) for text in texts]


def _threshold(text: str) -> Threshold:
    match = _THRESHOLD.fullmatch(text.strip())
    if match is None:
        raise Invalid(
            "A threshold cannot be read.", fields={"thresholds": f"{text!r} is none such as p99=250ms"}
        )
    figure, sign, number, unit = match.groups()
    floor = figure in _HIGHER_IS_BETTER
    if sign not in ("=", ">=" if floor else "<=", ">" if floor else "<"):
        side = "at least" if floor else "at most"
        raise Invalid("A threshold cannot be read.", fields={"thresholds": f"{figure} has a limit of {side}"})
    if figure == "errors" and unit in (None, "%"):
        limit = float(number) / (100 if unit else 1)
        text = f"{limit * 100:g} %"
    elif figure == "qps" and unit is None:
        limit, text = float(number), f"{float(number):g} /s"
    elif figure not in ("errors", "qps") and unit in _MILLISECONDS:
        limit = float(number) * _MILLISECONDS[unit]
        text = f"{limit:g} ms"
    else:
        raise Invalid(
            "A threshold cannot be read.", fields={"thresholds": f"{figure} cannot be in {unit or 'no unit'}"}
        )
    return Threshold(figure, limit, text)
