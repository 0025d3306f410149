"""The outermost layer of every HTTP request: its id, its log line, its metrics, and refusals raised outside of DRF."""

import logging
import time
from collections.abc import Awaitable, Callable

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from console.kit import metrics, request_ids
from console.kit.errors import OperationError
from console.kit.pages import operation_error

log = logging.getLogger("console.requests")

_QUIET = frozenset({"healthz", "readyz", "metrics"})
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class RequestContext:
    """First in MIDDLEWARE. Works in both worlds, so that an event stream is not forced through a thread."""

    sync_capable = True
    async_capable = True

    def __init__(
        self, get_response: Callable[[HttpRequest], HttpResponseBase | Awaitable[HttpResponseBase]]
    ) -> None:
        self.get_response = get_response
        self.is_async = iscoroutinefunction(get_response)
        if self.is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        if self.is_async:
            return self._later(request)
        started = self._begin(request)
        response = self.get_response(request)
        assert isinstance(response, HttpResponseBase)
        return self._end(request, response, started)

    async def _later(self, request: HttpRequest) -> HttpResponseBase:
        started = self._begin(request)
        response = self.get_response(request)
        assert not isinstance(response, HttpResponseBase)
        return self._end(request, await response, started)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponseBase | None:
        """A refusal that no view caught is still an answer, not a failure."""
        return operation_error(request, exception) if isinstance(exception, OperationError) else None

    def _begin(self, request: HttpRequest) -> float:
        vars(request)["request_id"] = request_ids.begin(request.headers.get(request_ids.HEADER))
        return time.perf_counter()

    def _end(self, request: HttpRequest, response: HttpResponseBase, started: float) -> HttpResponseBase:
        seconds = time.perf_counter() - started
        response[request_ids.HEADER] = vars(request)["request_id"]
        match = request.resolver_match
        route = (match.view_name or match.route or "unnamed") if match else "unmatched"
        method = request.method if request.method in _METHODS else "OTHER"
        metrics.REQUESTS.labels(route, method, str(response.status_code)).inc()
        metrics.REQUEST_SECONDS.labels(route).observe(seconds)
        if route not in _QUIET:
            # The path without its query: a query may hold what nobody should read in a log.
            log.info(
                "%s %s %d %.1f ms", method, _harmless(request.path), response.status_code, seconds * 1000
            )
        return response


def _harmless(path: str) -> str:
    return path[:200].encode("unicode_escape").decode("ascii")
