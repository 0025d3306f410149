"""What is answered when no view does: unknown addresses, refusals, failures. A problem below /api/, else a page."""

import html
import logging
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template import TemplateDoesNotExist, loader
from django.views.decorators.csrf import csrf_exempt

from console.kit import problems, request_ids
from console.kit.errors import NotFound, OperationError

log = logging.getLogger(__name__)

_PLAIN = "<!doctype html><html lang=en><title>{title}</title><h1>{title}</h1><p>{detail}</p><p>request id: {id}</p>"


@csrf_exempt
def unknown_address(request: HttpRequest, **_: Any) -> HttpResponse:
    """Mounted behind the API's own paths."""
    return problems.response(
        NotFound(f"There is nothing at {request.path[:200]}; /api/v1/schema lists every address.")
    )


def not_found(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """handler404"""
    return _answer(request, 404, "not_found", "There is no such page, or it is not yours to see.")


def forbidden(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """handler403"""
    return _answer(request, 403, "forbidden", str(exception or "") or "This is not allowed.")


def bad_request(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """handler400"""
    return _answer(request, 400, "malformed", "The request is not valid.")


def failed(request: HttpRequest) -> HttpResponse:
    """handler500; Django has logged the traceback."""
    return _answer(request, 500, "internal", "Something failed here. The request id leads to the reason.")


def csrf_failed(request: HttpRequest, reason: str = "") -> HttpResponse:
    """CSRF_FAILURE_VIEW"""
    return _answer(
        request, 403, "csrf", f"The form is not one of ours, or too old: reload the page. {reason}"
    )


def operation_error(request: HttpRequest, error: OperationError) -> HttpResponse:
    """A refusal raised by a plain Django view."""
    if problems.is_api(request):
        return problems.response(error)
    return _answer(request, error.status, error.code, error.detail)


def _answer(request: HttpRequest, status: int, code: str, detail: str) -> HttpResponse:
    if problems.is_api(request):
        return JsonResponse(
            problems.body(status, code, detail), status=status, content_type=problems.CONTENT_TYPE
        )
    context = {"status": status, "code": code, "detail": detail, "request_id": request_ids.current()}
    for name in (f"{status}.html", "error.html"):
        try:
            return HttpResponse(loader.render_to_string(name, context, request), status=status)
        except TemplateDoesNotExist:
            continue
        except Exception:  # a broken error page must not hide the error behind a second one
            log.exception("error page %s failed", name)
    title = html.escape(f"{status}: {code.replace('_', ' ')}")
    return HttpResponse(
        _PLAIN.format(title=title, detail=html.escape(detail), id=request_ids.current()), status=status
    )
