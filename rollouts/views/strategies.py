"""`/strategies`: named plans, made by hand or read from Argo and Flagger, with what they would have done."""

import json
from typing import Any

from django import forms
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils.text import slugify

from console.kit.errors import Invalid, OperationError
from console.services.models import Service
from console.tenants.permissions import Actor, actor_of, may, visible_tenants
from console.ui.access import found, page
from console.ui.forms import ReasonForm, refuse
from console.ui.verbs import Dialog, Done, with_preview
from rollouts import exchange, replay, strategy_actions
from rollouts.exchange.export import to_argo
from rollouts.exchange.report import Fate, Imported
from rollouts.models import Strategy
from rollouts.plan import Plan, parse

_EXAMPLE = {
    "steps": [{"setWeight": 10}, {"pause": {"duration": "30s"}}, {"setWeight": 100}],
    "watch": {"duration": "10m", "gates": [{"indicator": "error_ratio", "max": 0.05, "count": None}]},
}
_ROLES = {Fate.HONOURED: "ok", Fate.CHANGED: "warn", Fate.IGNORED: "idle", Fate.REFUSED: "fail"}


class StrategyForm(ReasonForm):
    text = forms.CharField(
        label="Plan",
        widget=forms.Textarea(attrs={"rows": 24, "spellcheck": "false"}),
        help_text="JSON: steps, and background, watch, deadline and sticky as it likes.",
    )
    field_order = ("tenant", "name", "text", "reason")


class NewStrategyForm(StrategyForm):
    tenant = forms.ChoiceField()
    name = forms.SlugField(max_length=63, help_text="What a rollout calls it.")


class ImportForm(ReasonForm):
    tenant = forms.ChoiceField()
    name = forms.SlugField(max_length=63, required=False, help_text="Left out: the name in the text.")
    text = forms.CharField(
        label="YAML",
        widget=forms.Textarea(attrs={"rows": 18, "spellcheck": "false"}),
        help_text="An Argo Rollout with its analysis templates, or a Flagger Canary.",
    )
    field_order = ("tenant", "name", "text", "reason")


@page()
def strategies(request: HttpRequest) -> HttpResponse:
    actor = actor_of(request)
    rows = visible(actor).order_by("name", "pk")
    return render(
        request,
        "rollouts/strategies.html",
        {"rows": [(row, plan_of(row)) for row in rows], "may_edit": bool(_tenants(actor))},
    )


@page()
def strategy(request: HttpRequest, pk: int) -> HttpResponse:
    """The plan in words; `?replay=SERVICE` shows what it would have done, `?export=SERVICE` Argo's YAML."""
    actor = actor_of(request)
    row = found(visible(actor), pk=pk)
    plan = plan_of(row)
    services = Service.objects.for_actor(actor).order_by("name")
    context: dict[str, Any] = {
        "strategy": row,
        "plan": plan,
        "text": json.dumps(strategy_actions.face(row), indent=2),
        "services": services,
        "may_edit": row.tenant is not None and may(actor, "strategy.edit", row.tenant),
    }
    if (name := request.GET.get("replay")) is not None:
        context["replayed"] = name
        context["replay"] = replay.over_past(plan, found(services, name=name), hours=24, starts=20).as_json()
    if (name := request.GET.get("export")) is not None:
        exported = to_argo(plan, name=row.name, service=found(services, name=name).name)
        context |= {"exported": exported.text, "lines": lines_of(exported.report.lines)}
    return render(request, "rollouts/strategy.html", context)


@page("GET", "HEAD", "POST")
def new(request: HttpRequest) -> HttpResponse:
    actor = actor_of(request)
    form = NewStrategyForm(request.POST or None, initial={"text": json.dumps(_EXAMPLE, indent=2)})
    form.fields["tenant"].choices = _tenants(actor)  # type: ignore[attr-defined]  # a ChoiceField
    if request.method == "POST" and form.is_valid():
        typed = form.cleaned_data
        try:
            made = strategy_actions.create(
                typed["name"],
                _plan_in(typed["text"]),
                tenant=found(visible_tenants(actor), slug=typed["tenant"]),
                actor=actor,
                reason=typed["reason"],
            )
        except OperationError as error:
            refuse(form, error)
        else:
            return HttpResponseRedirect(_address(made))
    return _form(
        request, form, title="New strategy", action="Save strategy", back=reverse("rollouts:strategies")
    )


@page("GET", "HEAD", "POST")
def edit(request: HttpRequest, pk: int) -> HttpResponse:
    actor = actor_of(request)
    row = found(visible(actor), pk=pk)
    seen = request.POST.get("revision", "")
    form = StrategyForm(
        request.POST or None, initial={"text": json.dumps(strategy_actions.face(row), indent=2)}
    )
    if request.method == "POST" and form.is_valid():
        typed = form.cleaned_data
        try:
            strategy_actions.edit(
                row,
                _plan_in(typed["text"]),
                actor=actor,
                reason=typed["reason"],
                revision=int(seen) if seen.isdigit() else None,
            )
        except OperationError as error:
            refuse(form, error)
        else:
            return HttpResponseRedirect(_address(row))
    return _form(
        request,
        form,
        title=f"Edit {row.name}",
        action="Save strategy",
        back=_address(row),
        revision=row.revision,
    )


@page("GET", "HEAD", "POST")
def delete(request: HttpRequest, pk: int) -> HttpResponse:
    actor = actor_of(request)
    row = found(visible(actor), pk=pk)

    def preview() -> Dialog:
        return Dialog(
            title=f"Delete strategy {row.name}",
            action="Delete strategy",
            url=request.path,
            sentence="New rollouts can no longer name it. Rollouts that have begun keep their copy of its steps.",
            kind="danger",
            back=_address(row),
        )

    def act(reason: str, _: int | None) -> Done:
        strategy_actions.delete(row, actor=actor, reason=reason)
        return Done(f"Deleted strategy {row.name}.", reverse("rollouts:strategies"), leave=True)

    return with_preview(request, preview, act)


@page("GET", "HEAD", "POST")
def read(request: HttpRequest) -> HttpResponse:
    """Import: the first press shows a word on each field, the second saves."""
    actor = actor_of(request)
    form = ImportForm(request.POST or None)
    form.fields["tenant"].choices = _tenants(actor)  # type: ignore[attr-defined]  # a ChoiceField
    context: dict[str, Any] = {"form": form}
    if request.method == "POST" and form.is_valid():
        try:
            imported = exchange.read(form.cleaned_data["text"])
            context |= {"imported": imported, "lines": lines_of(imported.report.lines)}
            if "save" in request.POST and imported.strategy is not None:
                return HttpResponseRedirect(_address(_save(imported, form.cleaned_data, actor)))
        except OperationError as error:
            refuse(form, error)
    return render(request, "rollouts/import.html", context, status=422 if form.errors else 200)


def _save(imported: Imported, typed: dict[str, Any], actor: Actor) -> Strategy:
    name = typed["name"] or slugify(imported.name)[:63]
    if not name:
        raise Invalid("This strategy cannot be made.", fields={"name": "the text names none; give one"})
    return strategy_actions.create(
        name,
        imported.strategy,
        tenant=found(visible_tenants(actor), slug=typed["tenant"]),
        actor=actor,
        reason=typed["reason"],
        source=typed["text"],
    )


def visible(actor: Actor) -> QuerySet[Strategy]:
    return Strategy.objects.for_actor(actor).select_related("tenant")


def plan_of(row: Strategy) -> Plan:
    return parse(row.steps, options=row.options)


def lines_of(lines: list[Any]) -> list[dict[str, str]]:
    """The report with a role for each fate, the worst first."""
    order = [Fate.REFUSED, Fate.CHANGED, Fate.IGNORED, Fate.HONOURED]
    found_ = [
        {"path": one.path, "word": one.fate.value, "role": _ROLES[one.fate], "why": one.why} for one in lines
    ]
    return sorted(found_, key=lambda one: order.index(Fate(one["word"])))


def _tenants(actor: Actor) -> list[tuple[str, str]]:
    rows = visible_tenants(actor).order_by("slug")
    return [(one.slug, one.slug) for one in rows if may(actor, "strategy.edit", one)]


def _plan_in(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise Invalid("The plan is no JSON.", fields={"text": f"is no JSON: {error}"}) from None


def _address(row: Strategy) -> str:
    return reverse("rollouts:strategy", args=[row.pk])


def _form(request: HttpRequest, form: forms.BaseForm, **context: Any) -> HttpResponse:
    status = 422 if form.errors else 200
    return render(request, "rollouts/strategy_form.html", {"form": form, **context}, status=status)
