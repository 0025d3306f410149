"""Quotas on a tenant's page: what it may call, how much of it, and how much it uses now."""

from dataclasses import dataclass

from django import forms
from django.contrib import messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from console.kit.errors import Invalid, OperationError
from console.metrics.source import Indicator, Query, Value
from console.tenants import actions
from console.tenants.grants import owner_of, services_of
from console.tenants.models import Quota, Tenant
from console.tenants.permissions import Actor, actor_of, may, require, visible_tenants
from console.tenants.quota_actions import require_owner
from console.tenants.quota_api import visible_quotas
from console.ui import signals
from console.ui.access import found, page
from console.ui.forms import ReasonForm, refuse
from console.ui.signals import Figure
from console.ui.verbs import Dialog, Done, with_preview
from console.ui.views.settings import form_page

MOST_LINES = 100
# From here a bar warns: the next bigger batch of work is likely to be refused.
_NEARLY_PERCENT, _FULL_PERCENT = 80, 98


@dataclass(frozen=True, slots=True)
class QuotaLine:
    """used: requests per second of this tenant now. percent: of the rate, None without a rate or a number."""

    quota: Quota
    used: Figure
    percent: int | None
    role: str
    may_edit: bool


class QuotaForm(ReasonForm):
    requests_per_second = forms.FloatField(required=False, help_text="Empty: no limit on the rate.")
    burst = forms.IntegerField(required=False, help_text="Requests at once. Empty: one second of the rate.")
    concurrency = forms.IntegerField(required=False, help_text="Requests in flight. Empty: no limit.")


class NewQuotaForm(QuotaForm):
    tenant = forms.CharField(max_length=63, help_text="Who may call the service from now on.")
    service = forms.CharField(max_length=255, help_text="A service that you administer.")
    field_order = ("tenant", "service", "requests_per_second", "burst", "concurrency", "reason")


class ChangeQuotaForm(QuotaForm):
    revision = forms.IntegerField(widget=forms.HiddenInput)


def quotas_of(actor: Actor, tenant: Tenant) -> list[QuotaLine]:
    """What the tenant may call."""
    return _lines(actor, visible_quotas(actor).filter(tenant=tenant))


def grants_of(actor: Actor, tenant: Tenant) -> list[QuotaLine]:
    """Which other tenants may call this one's services."""
    rows = visible_quotas(actor).filter(service__in=services_of([tenant.pk])).exclude(tenant=tenant)
    return _lines(actor, rows)


def _lines(actor: Actor, rows: QuerySet[Quota]) -> list[QuotaLine]:
    quotas = list(rows.order_by("service", "tenant__slug")[:MOST_LINES])
    queries = {
        quota.pk: Query(Indicator.REQUEST_RATE, quota.service, tenant=quota.tenant.slug) for quota in quotas
    }
    found_rates = signals.readings(queries.values())
    editable = {service: _may_edit(actor, service) for service in {quota.service for quota in quotas}}
    lines = []
    for quota in quotas:
        reading = found_rates[queries[quota.pk]]
        percent = None
        if isinstance(reading, Value) and quota.requests_per_second:
            percent = min(100, round(100 * reading.value / quota.requests_per_second))
        role = (
            ""
            if percent is None or percent < _NEARLY_PERCENT
            else "warn"
            if percent < _FULL_PERCENT
            else "fail"
        )
        figure = signals.figure(Indicator.REQUEST_RATE, reading)
        lines.append(QuotaLine(quota, figure, percent, role, editable[quota.service]))
    return lines


def _may_edit(actor: Actor, service: str) -> bool:
    try:
        return may(actor, "quota.edit", owner_of(service))
    except OperationError:
        return False


@page("GET", "HEAD", "POST")
def new_quota(request: HttpRequest) -> HttpResponse:
    actor = actor_of(request)
    start = {name: request.GET.get(name, "") for name in ("tenant", "service")}
    form = NewQuotaForm(request.POST or None, initial=start)
    if request.method == "POST" and form.is_valid():
        slug, service = form.cleaned_data["tenant"], form.cleaned_data["service"]
        try:
            # Whoever may grant the service may name any tenant; nobody else learns which there are.
            require(actor, "quota.edit", owner_of(service))
            tenant = Tenant.objects.filter(slug=slug).first()
            if tenant is None:
                raise Invalid("This quota cannot be set.", fields={"tenant": "there is no such tenant"})
            return _set(request, form, tenant, service, None)
        except OperationError as error:
            refuse(form, error)
    return form_page(
        request, form, title="Grant a service", action="Grant service", back=reverse("ui:settings")
    )


@page("GET", "HEAD", "POST")
def edit_quota(request: HttpRequest, slug: str, service: str) -> HttpResponse:
    quota = _quota(request, slug, service)
    require_owner(actor_of(request), service, quota.tenant)
    names = ("requests_per_second", "burst", "concurrency", "revision")
    form = ChangeQuotaForm(request.POST or None, initial={name: getattr(quota, name) for name in names})
    if request.method == "POST" and form.is_valid():
        try:
            return _set(request, form, quota.tenant, service, form.cleaned_data["revision"])
        except OperationError as error:
            refuse(form, error)
    title = f"Quota of {slug} on {service}"
    return form_page(request, form, title=title, action="Save quota", back=_back(request, service, slug))


def _set(
    request: HttpRequest, form: QuotaForm, tenant: Tenant, service: str, revision: int | None
) -> HttpResponse:
    typed = form.cleaned_data
    actions.set_quota(
        tenant,
        service,
        actor=actor_of(request),
        reason=typed["reason"],
        expected_revision=revision,
        requests_per_second=typed["requests_per_second"],
        burst=typed["burst"],
        concurrency=typed["concurrency"],
    )
    messages.success(request, f"Saved the quota of {tenant.slug} on {service}.", extra_tags="ok")
    return HttpResponseRedirect(_back(request, service, tenant.slug))


@page("GET", "HEAD", "POST")
def remove_quota(request: HttpRequest, slug: str, service: str) -> HttpResponse:
    actor = actor_of(request)
    quota = _quota(request, slug, service)
    back = _back(request, service, slug)

    def preview() -> Dialog:
        said = actions.preview_remove_quota(quota, actor=actor)
        return Dialog(
            title=f"Take {service} away from {slug}",
            action="Remove grant",
            url=request.path,
            sentence=said.sentence,
            affected=said.affected,
            revision=said.revision,
            kind="danger",
            confirm=slug,
            reason_needed=True,
            back=back,
        )

    def act(reason: str, revision: int | None) -> Done:
        actions.remove_quota(quota, actor=actor, reason=reason, expected_revision=revision)
        return Done(f"{slug} can no longer call {service}.", back, events=[f"tenant:{slug}", "tenants"])

    return with_preview(request, preview, act)


def _quota(request: HttpRequest, slug: str, service: str) -> Quota:
    return found(visible_quotas(actor_of(request)), tenant__slug=slug, service=service)


def _back(request: HttpRequest, service: str, slug: str) -> str:
    """The page of the owner, who granted it; else of the tenant itself."""
    visible = set(visible_tenants(actor_of(request)).values_list("slug", flat=True))
    try:
        owner = owner_of(service).slug
    except OperationError:
        owner = ""
    return next(
        (reverse("ui:tenant", args=[one]) for one in (owner, slug) if one in visible), reverse("ui:settings")
    )
