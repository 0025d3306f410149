"""`/settings/tenants/<slug>`: members, tokens and quotas of one tenant."""

from dataclasses import dataclass
from datetime import timedelta

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse

from console.kit import clock
from console.kit.errors import OperationError
from console.tenants import actions
from console.tenants.models import Membership, Role, Tenant, Token
from console.tenants.permissions import Scope, actor_of, may, require
from console.ui.access import found, page
from console.ui.forms import ReasonForm, refuse
from console.ui.render import page_or_part
from console.ui.verbs import Dialog, Done, with_preview
from console.ui.views.quotas import grants_of, quotas_of
from console.ui.views.settings import form_page, visible_tenant

TOKENS_SHOWN = 100
LIFETIMES = [("", "never"), ("1", "1 day"), ("30", "30 days"), ("90", "90 days"), ("365", "1 year")]


@dataclass(frozen=True, slots=True)
class TokenLine:
    token: Token
    role: str
    is_active: bool


class MemberForm(ReasonForm):
    username = forms.CharField(max_length=150, label="Account")
    role = forms.ChoiceField(
        choices=[
            (Role.VIEWER, "viewer: sees everything of the tenant"),
            (Role.OPERATOR, "operator: also registers, rolls out, restarts"),
            (Role.ADMIN, "admin: also members, tokens, quotas"),
        ]
    )
    field_order = ("username", "role", "reason")


class RoleForm(MemberForm):
    username = None  # type: ignore[assignment]  # removes the inherited field, as Django's forms document it


class TokenForm(ReasonForm):
    name = forms.CharField(max_length=120, help_text="Where it is used, such as ci-main.")
    scopes = forms.MultipleChoiceField(
        choices=[(scope.value, scope.value) for scope in Scope],
        widget=forms.CheckboxSelectMultiple,
        help_text="infer alone makes an inference key for the plane; anything else a REST token.",
    )
    days = forms.ChoiceField(choices=LIFETIMES, required=False, label="Expires after")
    most_weight_percent = forms.IntegerField(
        min_value=0,
        max_value=100,
        required=False,
        label="Most weight, %",
        help_text="With rollouts:write: how far it may move a new version before a person has to look.",
    )
    field_order = ("name", "scopes", "days", "most_weight_percent", "reason")


@page()
def tenant(request: HttpRequest, slug: str) -> HttpResponse:
    actor = actor_of(request)
    row = visible_tenant(request, slug)
    tokens = row.tokens.select_related("created_by").order_by("-id")[:TOKENS_SHOWN]
    context = {
        "tenant": row,
        "role": actor.role_in(row),
        "members": row.memberships.select_related("user").order_by("user__username"),
        "tokens": [_line(token) for token in tokens],
        "quotas": quotas_of(actor, row),
        "grants": grants_of(actor, row),
        "may_edit": may(actor, "tenant.edit", row),
        "may_members": may(actor, "member.edit", row),
        "may_tokens": may(actor, "token.create", row),
    }
    return page_or_part(request, "settings/tenant.html", context, parts={"lists"})


def _line(token: Token) -> TokenLine:
    role = {"active": "ok", "expired": "idle", "revoked": "idle"}[token.state]
    return TokenLine(token, role, token.state == "active")


# Members


@page("GET", "HEAD", "POST")
def new_member(request: HttpRequest, slug: str) -> HttpResponse:
    actor, row = actor_of(request), visible_tenant(request, slug)
    require(actor, "member.edit", row)
    form = MemberForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        typed = form.cleaned_data
        try:
            member = actions.add_member(
                row, typed["username"], typed["role"], actor=actor, reason=typed["reason"]
            )
        except OperationError as error:
            refuse(form, error)
        else:
            return _saved(request, row, f"{member.user.username} is {member.role} of {slug} now.")
    return form_page(request, form, title=f"Add a member to {slug}", action="Add member", back=_of(row))


@page("GET", "HEAD", "POST")
def change_member(request: HttpRequest, slug: str, username: str) -> HttpResponse:
    actor, row = actor_of(request), visible_tenant(request, slug)
    require(actor, "member.edit", row)
    member = _member(row, username)
    form = RoleForm(request.POST or None, initial={"role": member.role})
    if request.method == "POST" and form.is_valid():
        typed = form.cleaned_data
        try:
            actions.change_member(member, typed["role"], actor=actor, reason=typed["reason"])
        except OperationError as error:
            refuse(form, error)
        else:
            return _saved(request, row, f"{username} is {typed['role']} of {slug} now.")
    return form_page(
        request, form, title=f"Role of {username} in {slug}", action="Change role", back=_of(row)
    )


@page("GET", "HEAD", "POST")
def remove_member(request: HttpRequest, slug: str, username: str) -> HttpResponse:
    actor, row = actor_of(request), visible_tenant(request, slug)
    member = _member(row, username)

    def preview() -> Dialog:
        said = actions.preview_remove_member(member, actor=actor)
        return Dialog(
            title=f"Remove {username} from {slug}",
            action="Remove member",
            url=request.path,
            sentence=said.sentence,
            affected=said.affected,
            kind="danger",
            back=_of(row),
        )

    def act(reason: str, revision: int | None) -> Done:
        actions.remove_member(member, actor=actor, reason=reason)
        return Done(f"Removed {username} from {slug}.", _of(row), events=[f"tenant:{slug}"])

    return with_preview(request, preview, act)


def _member(row: Tenant, username: str) -> Membership:
    return found(row.memberships.select_related("user", "tenant"), user__username=username)


# Tokens


@page("GET", "HEAD", "POST")
def new_token(request: HttpRequest, slug: str) -> HttpResponse:
    actor, row = actor_of(request), visible_tenant(request, slug)
    require(actor, "token.create", row)
    form = TokenForm(request.POST or None, initial={"scopes": ["read"], "days": "90"})
    if request.method == "POST" and form.is_valid():
        typed = form.cleaned_data
        end = clock.now() + timedelta(days=int(typed["days"])) if typed["days"] else None
        try:
            token, secret = actions.create_token(
                row,
                name=typed["name"],
                scopes=typed["scopes"],
                actor=actor,
                expires_at=end,
                most_weight_percent=typed["most_weight_percent"],
                reason=typed["reason"],
            )
        except OperationError as error:
            refuse(form, error)
        else:
            return _shown_once(request, row, token, secret)
    return form_page(request, form, title=f"New token of {slug}", action="Create token", back=_of(row))


@page("GET", "HEAD", "POST")
def rotate_token(request: HttpRequest, slug: str, pk: int) -> HttpResponse:
    actor, row = actor_of(request), visible_tenant(request, slug)
    require(actor, "token.rotate", row)
    token = _token(row, pk)
    form = ReasonForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            successor, secret = actions.rotate_token(token, actor=actor, reason=form.cleaned_data["reason"])
        except OperationError as error:
            refuse(form, error)
        else:
            return _shown_once(request, row, successor, secret)
    note = f"A new secret takes the place of {token.hint}... The old one works for one more hour."
    return form_page(
        request, form, title=f"Rotate {token.name}", action="Rotate token", back=_of(row), note=note
    )


@page("GET", "HEAD", "POST")
def revoke_token(request: HttpRequest, slug: str, pk: int) -> HttpResponse:
    actor, row = actor_of(request), visible_tenant(request, slug)
    token = _token(row, pk)

    def preview() -> Dialog:
        said = actions.preview_revoke_token(token, actor=actor)
        return Dialog(
            title=f"Revoke {token.name}",
            action="Revoke token",
            url=request.path,
            sentence=said.sentence,
            affected=said.affected,
            kind="danger",
            confirm=token.name,
            back=_of(row),
        )

    def act(reason: str, revision: int | None) -> Done:
        actions.revoke_token(token, actor=actor, reason=reason)
        return Done(f"Revoked {token.name}.", _of(row), events=[f"tenant:{slug}"])

    return with_preview(request, preview, act)


def _token(row: Tenant, pk: int) -> Token:
    return found(row.tokens.select_related("tenant", "created_by"), pk=pk)


def _shown_once(request: HttpRequest, row: Tenant, token: Token, secret: str) -> HttpResponse:
    return render(request, "settings/secret.html", {"tenant": row, "token": token, "secret": secret})


def _saved(request: HttpRequest, row: Tenant, text: str) -> HttpResponse:
    messages.success(request, text, extra_tags="ok")
    return HttpResponseRedirect(_of(row))


def _of(row: Tenant) -> str:
    return reverse("ui:tenant", args=[row.slug])
