"""What every page view is wrapped in: somebody is signed in, the answer is theirs alone, and the method fits."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast
from urllib.parse import urlencode, urlsplit

from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from console.kit.errors import NotFound

P = ParamSpec("P")
M = TypeVar("M", bound=Model)
View = Callable[Concatenate[HttpRequest, P], HttpResponse]


def page(*methods: str) -> Callable[[View[P]], View[P]]:
    """Decorates a view; methods default to GET and HEAD."""
    allowed = list(methods) or ["GET", "HEAD"]

    def decorate(view: View[P]) -> View[P]:
        @never_cache
        @require_http_methods(allowed)
        @wraps(view)
        def wrapped(request: HttpRequest, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
            if not request.user.is_authenticated:
                return _to_login(request)
            return view(request, *args, **kwargs)

        return cast("View[P]", wrapped)

    return decorate


def is_fragment(request: HttpRequest) -> bool:
    """Asked by htmx for a part of a page, not by the address bar."""
    return request.headers.get("HX-Request") == "true"


def found(rows: QuerySet[M], **by: Any) -> M:
    """The row, or the same 404 for one that is missing and one of another tenant."""
    row = rows.filter(**by).first()
    if row is None:
        raise NotFound("There is no such page, or it is not yours to see.")
    return row


def _to_login(request: HttpRequest) -> HttpResponse:
    """A fragment must not swallow the login form: the whole page goes there."""
    if is_fragment(request):
        where = urlsplit(request.headers.get("HX-Current-URL", ""))
        answer = HttpResponse(status=401)
        answer["HX-Redirect"] = _login_url(where.path or "/")
        return answer
    return HttpResponseRedirect(_login_url(request.get_full_path()))


def _login_url(back: str) -> str:
    return f"{reverse('ui:login')}?{urlencode({'next': back})}"
