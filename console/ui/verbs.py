"""The ladder of dangerous actions: what a verb's view answers, with and without JavaScript.

Stopping harm and undoable verbs act at once (`act_now`). Disruptive ones show a Dialog first (`with_preview`): the
same address answers GET with the preview and POST with the act, and a preview that went stale is drawn again.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.utils.http import url_has_allowed_host_and_scheme

from console.kit.errors import OperationError
from console.ui.access import is_fragment

REASON_LENGTH = 500
EVENTS_HEADER = "X-Pilothouse-Events"  # read by static/js/answers.js


@dataclass(frozen=True, slots=True)
class Guard:
    """A line of the preview. ok None: not known, which is shown as such."""

    ok: bool | None
    text: str

    @property
    def role(self) -> str:
        return "unknown" if self.ok is None else "ok" if self.ok else "warn"


@dataclass(frozen=True, slots=True)
class Dialog:
    """A preview, computed by the server. kind: primary or danger. confirm: text to be typed before the act."""

    title: str
    action: str
    url: str
    sentence: str
    before: str = ""
    after: str = ""
    affected: tuple[str, ...] = ()
    guards: tuple[Guard, ...] = ()
    curl: str = ""
    revision: int | None = None
    kind: str = "primary"
    confirm: str = ""
    reason_needed: bool = False
    back: str = "/"
    extra: tuple[tuple[str, str], ...] = ()

    def fingerprint(self) -> str:
        """What a person read; another one after a change marks what is new."""
        return " ".join((self.before, self.after, self.sentence))


@dataclass(frozen=True, slots=True)
class Done:
    """What follows a verb. to: the page without JavaScript. events: topics to refresh now. undo: (label, address)."""

    toast: str
    to: str
    events: Sequence[str] = ()
    undo: tuple[str, str] | None = None
    leave: bool = False  # go to `to` also with JavaScript: the page the reader is on is over
    role: str = "ok"


@dataclass(frozen=True, slots=True)
class Typed:
    reason: str = ""
    confirm: str = ""
    was: str = ""
    error: str = ""
    fields: dict[str, str] = field(default_factory=dict)


def act_now(request: HttpRequest, act: Callable[[], Done]) -> HttpResponse:
    """POST only. A refusal becomes a toast that stays, or the message on the page."""
    try:
        done = act()
    except OperationError as error:
        return _refused(request, error)
    return finish(request, done)


def with_preview(
    request: HttpRequest,
    preview: Callable[[], Dialog],
    act: Callable[[str, int | None], Done],
) -> HttpResponse:
    """act: (reason, revision the reader saw) -> Done. Both may raise OperationError."""
    try:
        dialog = preview()
    except OperationError as error:
        return _refused(request, error)
    if request.method != "POST":
        return _show(request, dialog, Typed())
    typed = _read(request)
    if problem := _wrong(dialog, typed):
        return _show(request, dialog, replace(typed, fields=problem), status=422)
    seen = request.POST.get("revision", "")
    try:
        done = act(typed.reason, int(seen) if seen.isdigit() else None)
    except OperationError as error:
        again = preview_again(preview, dialog)
        typed = replace(typed, error=error.detail, fields=error.fields)
        return _show(request, again, typed, status=409 if error.status == 409 else 422)
    return finish(request, done)


def preview_again(preview: Callable[[], Dialog], before: Dialog) -> Dialog:
    try:
        return preview()
    except OperationError:
        return before  # the state that refused the verb refuses its preview too; the error line says why


def finish(request: HttpRequest, done: Done) -> HttpResponse:
    if not is_fragment(request):
        messages.add_message(request, messages.SUCCESS, done.toast, extra_tags=done.role)
        return HttpResponseRedirect(done.to)
    if done.leave:
        messages.add_message(request, messages.SUCCESS, done.toast, extra_tags=done.role)
        answer = HttpResponse(status=204)
        answer["HX-Redirect"] = done.to
        return answer
    toast: dict[str, Any] = {"text": done.toast, "role": done.role}
    if done.undo is not None:
        toast["undo"] = {"label": done.undo[0], "url": done.undo[1]}
    return _told({"toast": toast, "dialog:close": {}, **{topic: {} for topic in done.events}})


def _told(events: dict[str, Any]) -> HttpResponse:
    """Not HX-Trigger: htmx fires that on the button, and the live refresh may have replaced the button meanwhile."""
    answer = HttpResponse(status=204)
    answer[EVENTS_HEADER] = json.dumps(events)
    return answer


def _refused(request: HttpRequest, error: OperationError) -> HttpResponse:
    """Error toasts stay until they are closed."""
    if is_fragment(request):
        return _told({"toast": {"text": error.detail, "role": "fail"}, "live:resync": {}})
    messages.add_message(request, messages.ERROR, error.detail, extra_tags="fail")
    return HttpResponseRedirect(_back(request))


def _back(request: HttpRequest) -> str:
    came_from = urlsplit(request.headers.get("Referer", ""))
    safe = url_has_allowed_host_and_scheme(came_from.geturl(), allowed_hosts={request.get_host()})
    return came_from.path if safe and came_from.path and came_from.path != request.path else "/"


def _show(request: HttpRequest, dialog: Dialog, typed: Typed, *, status: int = 200) -> HttpResponse:
    changed = bool(typed.was) and typed.was != dialog.fingerprint()
    context = {"dialog": dialog, "typed": typed, "changed": changed}
    template = "ui/preview.html" if is_fragment(request) else "preview.html"
    return render(request, template, context, status=status)


def _read(request: HttpRequest) -> Typed:
    return Typed(
        reason=request.POST.get("reason", "").strip()[:REASON_LENGTH],
        confirm=request.POST.get("confirm", "").strip(),
        was=request.POST.get("was", ""),
    )


def _wrong(dialog: Dialog, typed: Typed) -> dict[str, str]:
    wrong: dict[str, str] = {}
    if dialog.reason_needed and not typed.reason:
        wrong["reason"] = "Say why; it is what others will read."
    if dialog.confirm and typed.confirm != dialog.confirm:
        wrong["confirm"] = f"Type {dialog.confirm} to confirm."
    return wrong
