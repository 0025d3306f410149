"""`/rollouts/new`: a form on the left and, on the right, the plan as it would run."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render

from console.kit.errors import Invalid, OperationError, Stale
from console.services.models import Service
from console.tenants.permissions import Actor, actor_of, may
from console.ui.access import found, is_fragment, page
from console.ui.forms import ReasonForm, refuse
from console.ui.scope import reader_of
from inference.models import Placement, Version
from rollouts import actions, previews
from rollouts.board import address_of
from rollouts.models import Strategy
from rollouts.strategies import DEFAULT

OWN_STEPS = "-"
_VERSIONS_SHOWN = 100
_ORDERS = [
    ("supersede", "a newer rollout ends this one"),
    ("queue", "a newer rollout waits for this one"),
    ("reject", "a newer rollout is refused meanwhile"),
]


class RolloutForm(ReasonForm):
    version = forms.ChoiceField()
    strategy = forms.ChoiceField(
        help_text="The steps are copied: a later edit of the strategy does not reach this rollout."
    )
    steps = forms.CharField(
        required=False,
        label="Own steps",
        widget=forms.Textarea(attrs={"rows": 10, "spellcheck": "false"}),
        help_text='JSON, used when the strategy is "own steps".',
    )
    on_new_version = forms.ChoiceField(choices=_ORDERS, label="If another is started")
    field_order = ("version", "strategy", "steps", "on_new_version", "reason")


@dataclass(frozen=True, slots=True)
class Plan:
    """said: the answer of previews.of_start. print: what the reader saw, to be compared when they press start."""

    said: dict[str, Any]
    print: str


@page("GET", "HEAD", "POST")
def new(request: HttpRequest) -> HttpResponse:
    actor = actor_of(request)
    name = request.POST.get("service") or request.GET.get("service", "")
    if not name:
        return _choose_service(request, actor)
    service = found(Service.objects.for_actor(actor).select_related("tenant"), name=name)
    form = form_for(service, request)
    context: dict[str, Any] = {
        "service": service,
        "form": form,
        "may_start": may(actor, "rollout.start", service.tenant),
    }
    status = 200
    if request.method == "POST":
        if form.is_valid():
            try:
                return _started(request, service, form, actor)
            except Stale as error:
                context["changed"], status = error.detail, 409
            except OperationError as error:
                refuse(form, error)
        status = 422 if form.errors else status
    context |= plan_context(service, form, actor)
    return render(request, "rollouts/new.html", context, status=status)


@page("GET", "HEAD")
def plan(request: HttpRequest) -> HttpResponse:
    """The right side alone, as one types."""
    actor = actor_of(request)
    service = found(
        Service.objects.for_actor(actor).select_related("tenant"), name=request.GET.get("service", "")
    )
    form = form_for(service, request, typed=request.GET)
    return render(request, "rollouts/plan.html", {"service": service, **plan_context(service, form, actor)})


def _choose_service(request: HttpRequest, actor: Actor) -> HttpResponse:
    rows = Service.objects.for_actor(reader_of(request)).select_related("tenant")
    able = [one for one in rows if may(actor, "rollout.start", one.tenant)]
    if len(able) == 1 and not is_fragment(request):
        return HttpResponseRedirect(f"{request.path}?service={able[0].name}")
    return render(request, "rollouts/choose.html", {"services": able})


def form_for(service: Service, request: HttpRequest, *, typed: Any = None) -> RolloutForm:
    stable = Placement.objects.of(service).stable().values_list("version_id", flat=True).first()
    rows = (
        Version.objects.of(service).order_by("-number").values_list("pk", "number", "note")[:_VERSIONS_SHOWN]
    )
    choices = [
        (str(number), f"{number}{' (stable now)' if pk == stable else ''}{f' - {note}' if note else ''}")
        for pk, number, note in rows
    ]
    wished = request.GET.get("version", "")
    newest = next((str(number) for pk, number, _ in rows if pk != stable), "")
    data = typed if typed is not None else (request.POST if request.method == "POST" else None)
    strategies = list(Strategy.objects.for_actor(actor_of(request)).order_by("name"))
    names = sorted({one.name for one in strategies if one.tenant_id in (None, service.tenant_id)})
    start = {
        "version": wished if wished in dict(choices) else newest,
        "strategy": DEFAULT if DEFAULT in names else (names or [OWN_STEPS])[0],
        "steps": json.dumps(_example(strategies), indent=2),
    }
    form = RolloutForm(data, initial=start)
    form.fields["version"].choices = choices  # type: ignore[attr-defined]  # a ChoiceField
    form.fields["strategy"].choices = [*((name, name) for name in names), (OWN_STEPS, "own steps")]  # type: ignore[attr-defined]  # a ChoiceField
    return form


def _example(strategies: list[Strategy]) -> Any:
    known = next((one.steps for one in strategies if one.name == DEFAULT), None)
    return known or [{"setWeight": 10}, {"pause": {"duration": "30s"}}, {"setWeight": 100}]


def wanted_of(service: Service, form: RolloutForm) -> actions.Wanted:
    """Raises Invalid for steps that are no JSON."""
    values = (
        form.cleaned_data
        if form.is_bound
        else {name: form.get_initial_for_field(field, name) for name, field in form.fields.items()}
    )
    number = str(values.get("version") or "0")
    version = found(Version.objects.of(service).select_related("service"), number=int(number))
    strategy: str | list[Any] = values.get("strategy") or DEFAULT
    if strategy == OWN_STEPS:
        strategy = _steps(values.get("steps") or "")
    return actions.Wanted(service, version, strategy, values.get("on_new_version") or "supersede")


def _steps(text: str) -> list[Any]:
    try:
        steps = json.loads(text)
    except ValueError as error:
        raise Invalid("The steps are no JSON.", fields={"steps": str(error)}) from None
    if not isinstance(steps, list):
        raise Invalid("The steps are no list.", fields={"steps": "a list of steps"})
    return steps


def plan_context(service: Service, form: RolloutForm, actor: Actor) -> dict[str, Any]:
    if form.is_bound and not form.is_valid():
        return {"plan": None, "problem": "Complete the form to see the plan."}
    try:
        return {"plan": _plan(service, form, actor), "problem": ""}
    except OperationError as error:
        return {"plan": None, "problem": error.detail, "problems": error.fields}


def _plan(service: Service, form: RolloutForm, actor: Actor) -> Plan:
    draft = actions.draft(wanted_of(service, form), actor=actor)
    said = previews.of_start(draft)
    # Not the traffic: it differs with every look and starts nothing else.
    kept = {key: said[key] for key in ("from_version", "version", "steps", "supersedes", "waits_for")}
    return Plan(said, hashlib.sha256(json.dumps(kept, sort_keys=True, default=str).encode()).hexdigest())


def _started(request: HttpRequest, service: Service, form: RolloutForm, actor: Actor) -> HttpResponse:
    """Raises Stale when what would start is not what the reader saw."""
    plan = _plan(service, form, actor)
    seen = request.POST.get("print", "")
    if seen != plan.print:
        raise Stale(
            "The plan changed while you were reading. Look again before you start it."
            if seen
            else "This is the plan. Look at it, then start it."
        )
    made = actions.start(wanted_of(service, form), actor=actor, reason=form.cleaned_data["reason"])
    return HttpResponseRedirect(address_of(made))
