"""`/settings`: a person's own preferences, tenants, and accounts."""

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse

from console.kit.errors import OperationError
from console.tenants import actions
from console.tenants.models import FailMode, Tenant
from console.tenants.permissions import actor_of, may, require, visible_tenants
from console.ui.access import found, page
from console.ui.forms import PlainForm, ReasonForm, refuse
from console.ui.views.session import preference_form

FAIL_MODES = [(FailMode.OPEN, "open: let requests pass"), (FailMode.CLOSED, "closed: refuse requests")]


class TenantForm(ReasonForm):
    slug = forms.CharField(
        max_length=63, help_text="Its name in addresses and metrics. It cannot be changed later."
    )
    name = forms.CharField(max_length=120, required=False)
    weight = forms.IntegerField(
        initial=1, label="Share", help_text="Weight in fair scheduling between tenants: 1 to 100."
    )
    fail_mode = forms.ChoiceField(
        choices=FAIL_MODES, label="When a quota's state is unknown", initial=FailMode.OPEN
    )
    field_order = ("slug", "name", "weight", "fail_mode", "reason")


class TenantChangeForm(TenantForm):
    slug = None  # type: ignore[assignment]  # removes the inherited field, as Django's forms document it
    revision = forms.IntegerField(widget=forms.HiddenInput)


class AccountForm(PlainForm):
    username = forms.CharField(max_length=150)
    password = forms.CharField(
        widget=forms.PasswordInput, help_text="At least 8 characters, none of the common ones."
    )
    is_superuser = forms.BooleanField(
        required=False, label="Superuser", help_text="May do everything in every tenant."
    )


@page()
def settings(request: HttpRequest) -> HttpResponse:
    actor = actor_of(request)
    tenants = visible_tenants(actor).prefetch_related("memberships")
    context = {
        "form": preference_form(request),
        "tenants": [(tenant, actor.role_in(tenant)) for tenant in tenants],
        "may_create": may(actor, "tenant.create", None),
    }
    return render(request, "settings/settings.html", context)


@page("GET", "HEAD", "POST")
def new_tenant(request: HttpRequest) -> HttpResponse:
    actor = actor_of(request)
    require(actor, "tenant.create", None)
    form = TenantForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            tenant = actions.create_tenant(**form.cleaned_data, actor=actor)
        except OperationError as error:
            refuse(form, error)
        else:
            messages.success(request, f"Made the tenant {tenant.slug}.", extra_tags="ok")
            return HttpResponseRedirect(reverse("ui:tenant", args=[tenant.slug]))
    return form_page(request, form, title="New tenant", action="Create tenant", back=reverse("ui:settings"))


@page("GET", "HEAD", "POST")
def new_account(request: HttpRequest) -> HttpResponse:
    actor = actor_of(request)
    require(actor, "user.create", None)
    form = AccountForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            user = actions.create_user(**form.cleaned_data, actor=actor)
        except OperationError as error:
            refuse(form, error)
        else:
            text = f"Made the account {user.username}. It sees nothing until it is a member of a tenant."
            messages.success(request, text, extra_tags="ok")
            return HttpResponseRedirect(reverse("ui:settings"))
    return form_page(request, form, title="New account", action="Create account", back=reverse("ui:settings"))


@page("GET", "HEAD", "POST")
def edit_tenant(request: HttpRequest, slug: str) -> HttpResponse:
    actor = actor_of(request)
    tenant = visible_tenant(request, slug)
    require(actor, "tenant.edit", tenant)
    start = {name: getattr(tenant, name) for name in ("name", "weight", "fail_mode", "revision")}
    form = TenantChangeForm(request.POST or None, initial=start)
    back = reverse("ui:tenant", args=[slug])
    if request.method == "POST" and form.is_valid():
        typed = dict(form.cleaned_data)
        reason, revision = typed.pop("reason"), typed.pop("revision")
        try:
            actions.edit_tenant(tenant, typed, actor=actor, reason=reason, expected_revision=revision)
        except OperationError as error:
            refuse(form, error)
        else:
            messages.success(request, f"Saved {slug}.", extra_tags="ok")
            return HttpResponseRedirect(back)
    return form_page(request, form, title=f"Edit {slug}", action="Save tenant", back=back)


def visible_tenant(request: HttpRequest, slug: str) -> Tenant:
    return found(visible_tenants(actor_of(request)), slug=slug)


def form_page(
    request: HttpRequest, form: forms.BaseForm, *, title: str, action: str, back: str, **more: Any
) -> HttpResponse:
    """A form as a page of its own; 422 with everything that was typed when it was refused."""
    context = {"form": form, "title": title, "action": action, "back": back, **more}
    return render(request, "settings/form.html", context, status=422 if form.errors else 200)
