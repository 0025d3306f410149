"""The signal source over a Prometheus server."""

import math
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import requests
from prometheus_api_client import PrometheusConnect
from prometheus_api_client.exceptions import PrometheusApiClientException
from urllib3.util.retry import Retry

from console.kit import clock
from console.metrics import promql
from console.metrics.source import (
    MAX_POINTS,
    Growth,
    NoData,
    Point,
    ProviderError,
    Query,
    Reading,
    Sampled,
    Sampling,
    Value,
)

CONNECT_SECONDS, READ_SECONDS = 2.0, 5.0


class _Failed(Exception):
    """The server is away or did not understand; the text says what happened."""


class PrometheusSource:
    """Answers are three-valued; nothing here raises for a server that is away."""

    name = "prometheus"

    def __init__(
        self, url: str, *, connect_seconds: float = CONNECT_SECONDS, read_seconds: float = READ_SECONDS
    ) -> None:
        # No retries of its own: a controller asks again on its next tick, and a page on its next poll.
        self._client = PrometheusConnect(
            url=url.rstrip("/"),
            # read=False, as in requests itself: a slow answer stays a timeout instead of "too many retries".
            retry=Retry(total=0, read=False),
            timeout=(connect_seconds, read_seconds),  # type the client names int; requests takes the pair
        )
        self._server_timeout = f"{read_seconds:g}s"

    def read(self, query: Query, *, at: float | None = None) -> Reading:
        at = clock.now().timestamp() if at is None else at
        expression = promql.value_expression(query)

        def no_data(reason: str) -> NoData:
            return NoData(reason, at, self.name, expression)

        try:
            value = self._number(expression, at)
            if value is None and self._number(promql.ALIVE, at) is None:
                return no_data("no node has reported")
            if value is None:
                return no_data(f"nothing was counted for {_subject(query)}")
            if math.isnan(value):
                return no_data(f"no requests in the last {query.window_seconds:g} s for {_subject(query)}")
            requests_seen = self._number(promql.requests_expression(query), at)
        except _Failed as failure:
            return ProviderError(str(failure), at, self.name, expression)
        if requests_seen is None or math.isinf(value):
            return no_data(f"nothing was counted for {_subject(query)}")
        return Value(value, requests_seen, at, self.name, expression)

    def ask(self, text: str, *, at: float | None = None) -> Sampling:
        at = clock.now().timestamp() if at is None else at
        params = {"time": f"{at:.3f}", "timeout": self._server_timeout}
        try:
            answer = self._ask(lambda: self._client.custom_query(text, params=params))
            return Sampled(_result_of(answer), at, self.name, text)
        except _Failed as failure:
            return ProviderError(str(failure), at, self.name, text)

    def growth(
        self, metric: str, service: str, *, by: str, window_seconds: float = 60.0, at: float | None = None
    ) -> Growth | NoData | ProviderError:
        at = clock.now().timestamp() if at is None else at
        expression = promql.growth_expression(metric, service, by=by, window_seconds=window_seconds)
        params = {"time": f"{at:.3f}", "timeout": self._server_timeout}
        try:
            answer = self._ask(lambda: self._client.custom_query(expression, params=params))
            found = {str(row["metric"].get(by, "")): float(row["value"][1]) for row in answer}
        except _Failed as failure:
            return ProviderError(str(failure), at, self.name, expression)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            return ProviderError(
                f"Prometheus answered in an unknown form: {error!r}", at, self.name, expression
            )
        if not found:
            return NoData(f"nothing was counted for {service}", at, self.name, expression)
        return Growth(found, at, self.name, expression)

    def level(self, metric: str, service: str, *, at: float | None = None) -> float | NoData | ProviderError:
        at = clock.now().timestamp() if at is None else at
        expression = f"max({metric}{{service={promql.quote(service)}}})"
        try:
            value = self._number(expression, at)
        except _Failed as failure:
            return ProviderError(str(failure), at, self.name, expression)
        if value is None or math.isnan(value):
            return NoData(f"no node has reported {metric} of {service}", at, self.name, expression)
        return value

    def series(
        self, query: Query, *, start: float, end: float, step_seconds: float
    ) -> list[Point] | ProviderError:
        expression = promql.value_expression(query)
        count = min(MAX_POINTS, int((end - start) // step_seconds) + 1)
        # The client rounds both ends to whole seconds, so we ask for whole seconds.
        first = math.ceil(start)
        last = first + (count - 1) * step_seconds
        try:
            answer = self._ask(
                lambda: self._client.custom_query_range(
                    expression,
                    datetime.fromtimestamp(first, UTC),
                    datetime.fromtimestamp(math.floor(last), UTC),
                    f"{step_seconds:g}",
                    params={"timeout": self._server_timeout},
                )
            )
        except _Failed as failure:
            return ProviderError(str(failure), end, self.name, expression)
        samples: Iterable[tuple[float, str]] = answer[0]["values"] if answer else ()
        known = {round((float(at) - first) / step_seconds): _finite(float(text)) for at, text in samples}
        return [Point(first + index * step_seconds, known.get(index)) for index in range(count)]

    def _number(self, expression: str, at: float) -> float | None:
        """The single number an expression stands for; None for an empty answer."""
        params = {"time": f"{at:.3f}", "timeout": self._server_timeout}
        answer = self._ask(lambda: self._client.custom_query(expression, params=params))
        try:
            return float(answer[0]["value"][1]) if answer else None
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise _Failed(f"Prometheus answered in an unknown form: {error!r}") from error

    def _ask(self, call: Any) -> list[Any]:
        try:
            answer = call()
        except requests.Timeout as error:
            raise _Failed("Prometheus did not answer in time") from error
        except requests.ConnectionError as error:
            raise _Failed("Prometheus cannot be reached") from error
        except (requests.RequestException, PrometheusApiClientException) as error:
            raise _Failed(f"Prometheus refused the query: {str(error)[:300]}") from error
        except (KeyError, TypeError, ValueError) as error:
            raise _Failed(f"Prometheus answered in an unknown form: {error!r}") from error
        if not isinstance(answer, list):
            raise _Failed("Prometheus answered with a scalar where a vector was asked for")
        return answer


def _result_of(answer: list[Any]) -> float | list[float]:
    """As Argo types an answer: a scalar is a number, a vector all its values, a matrix all samples of all series."""
    try:
        if len(answer) == 2 and isinstance(answer[0], int | float):
            return float(answer[1])
        return [float(text) for one in answer for _, text in one.get("values", [one.get("value")])]
    except (TypeError, ValueError, AttributeError):
        raise _Failed("Prometheus answered with something that no condition can judge") from None


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _subject(query: Query) -> str:
    return query.service if query.version is None else f"{query.service} version {query.version}"
