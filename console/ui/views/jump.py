"""`/jump`: matches for the palette, and the same as a page for who has no JavaScript."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from console.ui import board
from console.ui.access import is_fragment, page
from console.ui.scope import reader_of

MOST = 12


@page()
def jump(request: HttpRequest) -> HttpResponse:
    text = request.GET.get("q", "").strip()[:100]
    context = {"jumps": board.jumps(reader_of(request), text)[:MOST], "text": text}
    return render(request, "ui/jump_list.html" if is_fragment(request) else "jump.html", context)
