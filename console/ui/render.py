"""Pages and their live parts: `?part=gates` renders the partial `gates` of the same template, alone."""

from collections.abc import Collection, Mapping
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render


def page_or_part(
    request: HttpRequest,
    template: str,
    context: Mapping[str, Any],
    *,
    parts: Collection[str] = (),
    status: int = 200,
) -> HttpResponse:
    part = request.GET.get("part")
    if part is None:
        return render(request, template, dict(context), status=status)
    if part not in parts:
        raise Http404
    return render(request, f"{template}#{part}", dict(context), status=status)
