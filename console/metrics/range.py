"""Series for charts: GET services/<name>/series?indicator=&version=&from=&to=&step=&tenant=&limit=.

The address belongs to whoever owns services, which stand above this module, so who may look is handed in:

    path("services/<str:name>/series", SeriesView.as_view(check=require_visible))
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from django.utils.dateparse import parse_datetime
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.kit import clock
from console.kit.errors import Invalid, NotFound, Unavailable
from console.metrics.choose import source
from console.metrics.source import MAX_POINTS, Indicator, ProviderError, Query

DEFAULT_SECONDS = 900.0
LONGEST_SECONDS = 31 * 86400.0
SHORTEST_STEP_SECONDS = 2.0
SHORTEST_WINDOW_SECONDS = 10.0  # five samples of a node, so that one late sample is no spike
TARGET_POINTS = 300
# A chart that is refreshed keeps its points in place when steps are round.
_STEPS = (2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400)


@dataclass(frozen=True, slots=True)
class Range:
    query: Query
    start: float
    end: float
    step_seconds: float


def parse(service: str, parameters: dict[str, str], *, now: float) -> Range:
    """Raises Invalid naming every wrong parameter."""
    wrong: dict[str, str] = {}
    unknown = parameters.keys() - {"indicator", "version", "tenant", "limit", "from", "to", "step"}
    wrong |= dict.fromkeys(sorted(unknown), "is not a parameter of this address")
    indicator = _indicator(parameters.get("indicator", ""), wrong)
    version = _version(parameters.get("version", ""), wrong)
    end = _time("to", parameters.get("to", ""), now, wrong)
    start = _time("from", parameters.get("from", ""), end - DEFAULT_SECONDS, wrong)
    if "from" not in wrong and "to" not in wrong:
        if start >= end:
            wrong["from"] = "must be earlier than `to`"
        elif end - start > LONGEST_SECONDS:
            wrong["from"] = f"is more than {LONGEST_SECONDS / 86400:.0f} days before `to`"
    if parameters.get("limit") and indicator is not Indicator.REFUSED_RATE:
        wrong["limit"] = f"only of {Indicator.REFUSED_RATE}"
    asked = _step(parameters.get("step", ""), wrong)
    if wrong:
        raise Invalid("The series cannot be drawn: some parameters are wrong.", fields=wrong)
    step = step_for(end - start, asked)
    window = max(step, SHORTEST_WINDOW_SECONDS)
    limit = parameters.get("limit") or None
    query = Query(indicator, service, version, parameters.get("tenant") or None, window, limit=limit)
    # Whole steps since the epoch: the next refresh asks for the same instants.
    return Range(query, math.floor(start / step) * step, math.floor(end / step) * step, step)


def step_for(span_seconds: float, asked_seconds: float | None = None) -> float:
    """The finest round step that stays within the points a chart can show; a coarser wish is honoured."""
    least = span_seconds / (TARGET_POINTS if asked_seconds is None else MAX_POINTS - 2)
    least = max(least, asked_seconds or 0.0, SHORTEST_STEP_SECONDS)
    return float(next((step for step in _STEPS if step >= least), math.ceil(least)))


def _indicator(raw: str, wrong: dict[str, str]) -> Indicator:
    try:
        return Indicator(raw)
    except ValueError:
        wrong["indicator"] = f"must be one of {', '.join(Indicator)}"
        return Indicator.REQUESTS


def _version(raw: str, wrong: dict[str, str]) -> int | None:
    if not raw:
        return None
    if not raw.isascii() or not raw.isdigit() or len(raw) > 9:
        wrong["version"] = "must be a version number such as 2"
        return None
    return int(raw)


def _time(name: str, raw: str, default: float, wrong: dict[str, str]) -> float:
    """Seconds since the epoch, or ISO 8601 with its zone."""
    if not raw:
        return default
    try:
        moment = float(raw)
    except ValueError:
        moment = _iso(raw)
    if not (math.isfinite(moment) and 0 <= moment < 1e11):
        wrong[name] = "must be seconds since the epoch or ISO 8601 with its zone"
        return default
    return moment


def _iso(raw: str) -> float:
    try:
        parsed: datetime | None = parse_datetime(raw)
    except ValueError:
        return math.nan
    return parsed.timestamp() if parsed is not None and parsed.tzinfo is not None else math.nan


def _step(raw: str, wrong: dict[str, str]) -> float | None:
    if not raw:
        return None
    try:
        step = float(raw)
    except ValueError:
        step = math.nan
    if not (math.isfinite(step) and step > 0):
        wrong["step"] = "must be a positive number of seconds"
        return None
    return step


def _nobody(request: Request, name: str) -> None:
    raise NotFound(f"There is no service {name}.")


class SeriesView(APIView):
    """Points of one indicator; a gap is null. The server chooses the step, at most 1000 points."""

    check: Callable[[Request, str], object] = staticmethod(_nobody)

    def get(self, request: Request, name: str) -> Response:
        self.check(request, name)
        parameters = {key: str(value) for key, value in request.query_params.items()}
        wanted = parse(name, parameters, now=clock.now().timestamp())
        points = source().series(
            wanted.query, start=wanted.start, end=wanted.end, step_seconds=wanted.step_seconds
        )
        if isinstance(points, ProviderError):
            raise Unavailable(f"The signal source {points.source} gave no answer: {points.reason}.")
        return Response(
            {
                "service": name,
                "indicator": wanted.query.indicator,
                "version": wanted.query.version,
                "tenant": wanted.query.tenant,
                "limit": wanted.query.limit,
                "from": wanted.start,
                "to": wanted.end,
                "step_seconds": wanted.step_seconds,
                "window_seconds": wanted.query.window_seconds,
                "source": source().name,
                "points": [[point.at, point.value] for point in points],
            }
        )
