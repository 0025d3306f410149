"""`/loadtests/new`: a form on the left and, on the right, what it would do."""

from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.shortcuts import render

from console.kit.errors import OperationError
from console.loadtests import actions, previews
from console.loadtests.models import LoadTest
from console.loadtests.plan import MOST_CONNECTIONS, MOST_RATE, MOST_REQUESTS, MOST_SECONDS, Plan
from console.loadtests.present import address_of
from console.services.models import Service
from console.tenants.permissions import Actor, actor_of, may, visible_tenants
from console.ui.access import found, page
from console.ui.forms import ReasonForm, refuse
from console.ui.scope import reader_of

DEFAULT = Plan()
_MODES = [("open", "open: a rate, whatever the answers do"), ("closed", "closed: each waits for its answer")]
_ARRIVALS = [("poisson", "at random moments (Poisson)"), ("constant", "evenly spaced")]
_PLAN = ("mode", "rate", "arrivals", "connections", "duration_seconds", "warmup_seconds", "protocol")
_THRESHOLDS = ("p99=250ms", "errors=1%")
_SERVICES_SHOWN = 500


class LoadTestForm(ReasonForm):
    service = forms.ChoiceField()
    tenant = forms.ChoiceField(
        help_text="On whose behalf: its quota counts, and its key is made for this run alone."
    )
    version = forms.IntegerField(required=False, min_value=1, help_text="Empty: whatever the weights choose.")
    mode = forms.ChoiceField(choices=_MODES, label="Loop")
    rate = forms.FloatField(
        label="Requests per second", help_text=f"Open loop only, at most {MOST_RATE:,.0f}."
    )
    arrivals = forms.ChoiceField(choices=_ARRIVALS)
    connections = forms.IntegerField(help_text=f"1 to {MOST_CONNECTIONS}.")
    duration_seconds = forms.IntegerField(
        label="Seconds", help_text=f"At most {MOST_SECONDS}, and {MOST_REQUESTS:,} requests in all."
    )
    warmup_seconds = forms.IntegerField(label="Seconds before it counts", help_text="0 to 60.")
    protocol = forms.ChoiceField(choices=[("http", "HTTP"), ("grpc", "gRPC")])
    thresholds = forms.CharField(
        required=False,
        widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false"}),
        help_text="One a line: p99=250ms, mean=40ms, errors=1%, qps=500.",
    )
    title = forms.CharField(max_length=120, required=False, help_text="What this run is to find out.")
    field_order = (
        "service",
        "tenant",
        "version",
        *("mode", "rate", "arrivals", "connections", "duration_seconds", "warmup_seconds", "protocol"),
        *("thresholds", "title", "reason"),
    )


@page("GET", "HEAD", "POST")
def new(request: HttpRequest) -> HttpResponse:
    actor = actor_of(request)
    form = form_for(request, request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        try:
            made = actions.start(wanted_of(form, actor), actor=actor, reason=form.cleaned_data["reason"])
            return HttpResponseRedirect(address_of(made))
        except OperationError as error:
            refuse(form, error)
    context = {
        "form": form,
        "may_start": bool(choices_of(form, "tenant").choices),
        **plan_context(form, actor),
    }
    return render(request, "loadtests/new.html", context, status=422 if form.errors else 200)


@page()
def plan(request: HttpRequest) -> HttpResponse:
    """The right side alone, as one types."""
    return render(
        request, "loadtests/plan.html", plan_context(form_for(request, request.GET), actor_of(request))
    )


def choices_of(form: forms.Form, name: str) -> forms.ChoiceField:
    field = form.fields[name]
    assert isinstance(field, forms.ChoiceField)
    return field


def form_for(request: HttpRequest, data: QueryDict | None) -> LoadTestForm:
    """Filled from an earlier test (`?again=12`), or with the service of the page one came from (`?service=`)."""
    actor = actor_of(request)
    rows = Service.objects.for_actor(reader_of(request)).order_by("name")[:_SERVICES_SHOWN]
    names = list(rows.values_list("name", flat=True))
    tenants = [one.slug for one in visible_tenants(actor) if may(actor, "loadtest.start", one)]
    form = LoadTestForm(data, initial=_initial(request, actor, names, tenants))
    choices_of(form, "service").choices = [(name, name) for name in names]
    choices_of(form, "tenant").choices = [(slug, slug) for slug in tenants]
    return form


def _initial(request: HttpRequest, actor: Actor, names: list[str], tenants: list[str]) -> dict[str, Any]:
    again = request.GET.get("again", "")
    past = (
        LoadTest.objects.for_actor(actor).with_names().filter(pk=int(again)).first()
        if again.isdigit() and len(again) < 19
        else None
    )
    wished = past.service if past else request.GET.get("service", "")
    service = wished if wished in names else (names or [""])[0]
    owner = Service.objects.filter(name=service).values_list("tenant__slug", flat=True).first() or ""
    chosen = past.tenant.slug if past else owner
    start: dict[str, Any] = {
        **DEFAULT.as_json(),
        "service": service,
        "tenant": chosen if chosen in tenants else (tenants or [""])[0],
        "thresholds": "\n".join(past.thresholds if past else _THRESHOLDS),
    }
    if past is not None:
        start |= {"version": past.version, "title": past.title}
        start |= {name: value for name, value in past.settings.items() if name in _PLAN}
    start["rate"] = f"{start['rate']:g}"
    return start


def wanted_of(form: LoadTestForm, actor: Actor) -> actions.Wanted:
    """Raises OperationError as `start` would, also for a form that was only looked at."""
    typed = (
        form.cleaned_data
        if form.is_bound
        else {name: form.get_initial_for_field(field, name) for name, field in form.fields.items()}
    )
    service = found(Service.objects.for_actor(actor).select_related("tenant"), name=typed["service"])
    return actions.wanted(
        service,
        actions.tenant_for(service, actor, typed["tenant"]),
        actor=actor,
        plan={name: typed[name] for name in _PLAN if typed.get(name) is not None},
        thresholds=(typed["thresholds"] or "").splitlines(),
        version=typed["version"],
        title=typed["title"] or "",
    )


def plan_context(form: LoadTestForm, actor: Actor) -> dict[str, Any]:
    """asked and said, or the problem and which fields have it."""
    if form.is_bound and not form.is_valid():
        return {"problem": "Complete the form to see what it would do."}
    try:
        asked = wanted_of(form, actor)
    except OperationError as error:
        return {"problem": error.detail, "problems": error.fields}
    return {"asked": asked, "said": previews.of_start(asked), "cap": MOST_REQUESTS}
