"""Chart series: parameters, steps, and who may look."""

from typing import Any

import pytest
from django.test import override_settings
from django.urls import path
from rest_framework.request import Request
from rest_framework.test import APIClient

from console.kit.errors import Invalid, NotFound
from console.metrics import range as chart
from console.metrics.source import MAX_POINTS, Indicator
from tests.cast import Cast, cast
from tests.services.redis import RedisServer

__all__ = ["cast"]
NOW = 1_800_000_000.0


def parse(**parameters: str) -> chart.Range:
    return chart.parse("file-type", {"indicator": "requests", **parameters}, now=NOW)


@pytest.mark.parametrize(
    ("parameters", "field"),
    [
        ({"indicator": ""}, "indicator"),
        ({"indicator": "sum(x)"}, "indicator"),
        ({"version": "two"}, "version"),
        ({"version": "-1"}, "version"),
        ({"version": "²"}, "version"),
        ({"from": "yesterday"}, "from"),
        ({"from": "nan"}, "from"),
        ({"from": "2026-01-01T00:00:00"}, "from"),  # without a zone
        ({"from": "2026-13-01T00:00:00Z"}, "from"),
        ({"to": "1e300"}, "to"),
        ({"from": str(NOW + 1)}, "from"),
        ({"from": str(NOW - 40 * 86400)}, "from"),
        ({"step": "0"}, "step"),
        ({"step": "inf"}, "step"),
        ({"step": "5s"}, "step"),
        ({"widnow": "5"}, "widnow"),
    ],
)
def test_a_wrong_parameter_is_named(parameters: dict[str, str], field: str) -> None:
    with pytest.raises(Invalid) as refused:
        parse(**parameters)
    assert set(refused.value.fields) == {field}


def test_without_times_it_is_the_last_quarter_of_an_hour() -> None:
    found = parse(version="2", tenant="acme")
    assert (found.end - found.start, found.step_seconds) == (900, 5)
    assert (found.query.indicator, found.query.version, found.query.tenant) == (Indicator.REQUESTS, 2, "acme")


def test_times_may_be_iso() -> None:
    found = parse(**{"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T01:00:00+00:00"})
    assert found.end - found.start == 3600


@pytest.mark.parametrize("span", [10, 900, 3600, 86400, 31 * 86400])
@pytest.mark.parametrize("asked", [None, 0.001, 1, 60])
def test_a_chart_never_has_more_points_than_allowed(span: float, asked: float | None) -> None:
    step = chart.step_for(span, asked)
    assert span / step + 1 <= MAX_POINTS
    assert step >= (asked or 0) and step >= 2


def check(request: Request, name: str) -> None:
    if name != "file-type":
        raise NotFound("no such service")


urlpatterns = [
    path("seen/<str:name>", chart.SeriesView.as_view(check=check)),
    path("unguarded/<str:name>", chart.SeriesView.as_view()),
]


@override_settings(ROOT_URLCONF="tests.metrics.test_range")
def test_the_view_answers_points_and_refuses_what_may_not_be_seen(
    cast: Cast, redis_server: RedisServer
) -> None:
    api = cast.ben.api()
    answer: Any = api.get("/seen/file-type", {"indicator": "error_ratio"})
    assert answer.status_code == 200
    body = answer.json()
    assert (body["source"], body["indicator"], body["step_seconds"]) == ("embedded", "error_ratio", 5.0)
    assert all(value is None for _, value in body["points"]) and len(body["points"]) == 181
    assert api.get("/seen/file-type", {"indicator": "x"}).status_code == 400
    assert api.get("/seen/other", {"indicator": "error_ratio"}).status_code == 404
    assert api.get("/unguarded/file-type", {"indicator": "error_ratio"}).status_code == 404
    assert APIClient().get("/seen/file-type", {"indicator": "error_ratio"}).status_code == 401


@override_settings(ROOT_URLCONF="tests.metrics.test_range")
def test_a_source_that_is_away_is_503(cast: Cast) -> None:
    answer: Any = cast.ben.api().get("/seen/file-type", {"indicator": "requests"})
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
