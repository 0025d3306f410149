"""Every refusal and failure of the REST API as `application/problem+json` (RFC 9457). Never a traceback."""

import logging
import math
from collections.abc import Mapping
from typing import Any

from django.core.exceptions import PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.db import IntegrityError, InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework.views import set_rollback

from console.kit import errors, request_ids

CONTENT_TYPE = "application/problem+json"
TYPE_PREFIX = "https://pilothouse.dev/problems/"

log = logging.getLogger(__name__)

_TITLES = {
    400: "The request is not valid",
    401: "Nobody known is asking",
    403: "This is not allowed",
    404: "There is no such thing",
    405: "This method is not offered here",
    406: "No such representation",
    409: "The state does not allow it",
    411: "The length of the request is not said",
    413: "The request is too large",
    415: "This media type is not understood",
    422: "The request cannot be processed",
    429: "Too many requests",
    500: "Something failed here",
    503: "Something needed is away",
}
_DRF_CODES: dict[type[exceptions.APIException], str] = {
    exceptions.ParseError: "malformed",
    exceptions.NotAuthenticated: "not_authenticated",
    exceptions.AuthenticationFailed: "not_authenticated",
    exceptions.PermissionDenied: "forbidden",
    exceptions.NotFound: "not_found",
    exceptions.MethodNotAllowed: "method_not_allowed",
    exceptions.NotAcceptable: "not_acceptable",
    exceptions.UnsupportedMediaType: "unsupported_media_type",
    exceptions.Throttled: "too_many_requests",
}


def body(status: int, code: str, detail: str, fields: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The problem body; `request_id` is what a person quotes when asking for help."""
    return {
        "type": f"{TYPE_PREFIX}{code}",
        "title": _TITLES.get(status, "The request was refused"),
        "status": status,
        "code": code,
        "detail": detail,
        "fields": dict(fields or {}),
        "request_id": request_ids.current(),
    }


def handle(exc: Exception, context: Mapping[str, Any]) -> Response:
    """DRF's EXCEPTION_HANDLER. Unknown exceptions are logged with the request id and answered as 500."""
    set_rollback()
    problem, headers = describe(exc)
    unforeseen = problem["status"] >= 500 or isinstance(exc, IntegrityError)
    if unforeseen and not isinstance(exc, errors.OperationError):
        request = context.get("request")
        log.error("%s %s failed", *_line_of(request), exc_info=exc)
    return Response(problem, status=problem["status"], headers=headers, content_type=CONTENT_TYPE)


def describe(exc: Exception) -> tuple[dict[str, Any], dict[str, str]]:
    """The problem body of an exception, and the headers that belong to it."""
    match exc:
        case errors.OperationError():
            return body(exc.status, exc.code, exc.detail, exc.fields), _headers(exc)
        case exceptions.ValidationError():
            fields = flatten(exc.detail)
            return body(400, "invalid", _sentence(fields), fields), {}
        case exceptions.APIException():
            return body(exc.status_code, _drf_code(exc), str(exc.detail)), _headers(exc)
        case Http404():
            return body(404, "not_found", "There is no such thing here, or it is not yours to see."), {}
        case PermissionDenied():
            return body(403, "forbidden", str(exc) or "This is not allowed."), {}
        case RequestDataTooBig():
            return body(413, "too_large", "The request is larger than this address takes."), {}
        case SuspiciousOperation():
            return body(400, "malformed", "The request is not valid."), {}
        case RecursionError():
            return body(400, "malformed", "The request is nested too deeply."), {}
        case IntegrityError():  # two who wrote the same at the same moment; one of them was first
            return body(409, "conflict", "Something else was written at the same moment; read it again."), {}
        case OperationalError() | InterfaceError():
            return body(503, "database", "The database did not answer; try again in a moment."), {
                "Retry-After": "1"
            }
        case _:
            return body(500, "internal", "Something failed here. The request id leads to the reason."), {}


def response(exc: errors.OperationError) -> HttpResponse:
    """The same answer outside of a DRF view: middleware, health, unknown addresses."""
    problem, headers = describe(exc)
    return JsonResponse(problem, status=exc.status, headers=headers, content_type=CONTENT_TYPE)


def flatten(detail: Any, prefix: str = "") -> dict[str, str]:
    """DRF's nested error lists as one sentence for each dotted field: {"steps.0.setWeight": "..."}."""
    if isinstance(detail, Mapping):
        flat: dict[str, str] = {}
        for key, value in detail.items():
            name = str(key) if key != "non_field_errors" else ""
            flat |= flatten(value, ".".join(part for part in (prefix, name) if part))
        return flat
    if isinstance(detail, list | tuple):
        if all(isinstance(item, str) for item in detail):
            return {prefix: " ".join(str(item) for item in detail)}
        flat = {}
        for index, item in enumerate(detail):
            if item:
                flat |= flatten(item, f"{prefix}.{index}" if prefix else str(index))
        return flat
    return {prefix: str(detail)}


def _sentence(fields: dict[str, str]) -> str:
    """Takes what belongs to no field out of `fields`: it is the sentence itself."""
    whole = fields.pop("", "")
    if not fields:
        return whole or "The request is not valid."
    named = ", ".join(fields)
    return f"{whole} Wrong: {named}.".strip()


def _drf_code(exc: exceptions.APIException) -> str:
    if isinstance(exc, exceptions.PermissionDenied) and str(exc.detail).startswith("CSRF"):
        return "csrf"
    return next((code for kind, code in _DRF_CODES.items() if isinstance(exc, kind)), exc.default_code)


def _headers(exc: Exception) -> dict[str, str]:
    headers: dict[str, str] = {}
    if challenge := getattr(exc, "auth_header", None):
        headers["WWW-Authenticate"] = challenge
    wait = getattr(exc, "retry_after_seconds", None) or getattr(exc, "wait", None)
    if wait:
        headers["Retry-After"] = str(max(1, math.ceil(wait)))
    if isinstance(exc, errors.Unavailable):
        headers.setdefault("Retry-After", "1")
    return headers


def _line_of(request: Any) -> tuple[str, str]:
    return (request.method, request.path) if request is not None else ("?", "?")


def is_api(request: HttpRequest) -> bool:
    return request.path.startswith("/api/")
