"""Every change to tenants and members, as one function each; those of tokens and quotas are offered here too.

Each: permission, check, write, audit row, events - in one transaction.
"""

from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import User
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.validators import validate_slug
from django.db import IntegrityError, transaction

from console.audit import log as audit
from console.kit import etags
from console.kit.errors import Conflict, Invalid, NotFound
from console.kit.events import changed
from console.kit.previews import Preview
from console.tenants.models import FailMode, Membership, Role, Tenant
from console.tenants.permissions import Actor, require
from console.tenants.quota_actions import preview_remove_quota, remove_quota, set_quota
from console.tenants.token_actions import (
    create_token,
    preview_revoke_token,
    revoke_token,
    rotate_token,
)

__all__ = [
    "add_member",
    "change_member",
    "create_tenant",
    "create_token",
    "create_user",
    "edit_tenant",
    "preview_remove_member",
    "preview_remove_quota",
    "preview_revoke_token",
    "remove_member",
    "remove_quota",
    "revoke_token",
    "rotate_token",
    "set_quota",
]

_EDITABLE = ("name", "weight", "fail_mode")
_WEIGHT_MAXIMUM = 100


@transaction.atomic
def create_tenant(
    slug: str,
    *,
    actor: Actor,
    name: str = "",
    weight: int = 1,
    fail_mode: str = FailMode.OPEN,
    reason: str = "",
) -> Tenant:
    require(actor, "tenant.create", None)
    wrong = _wrong_tenant({"name": name or slug, "weight": weight, "fail_mode": fail_mode})
    if slug_problem := _wrong_slug(slug):
        wrong["slug"] = slug_problem
    if wrong:
        raise Invalid("This tenant cannot be made.", fields=wrong)
    try:
        with transaction.atomic():
            tenant = Tenant.objects.create(slug=slug, name=name or slug, weight=weight, fail_mode=fail_mode)
    except IntegrityError:
        raise Conflict(
            f"A tenant {slug!r} exists already.", fields={"slug": "already taken"}, code="taken"
        ) from None
    _tell(tenant, actor, "tenant.create", reason=reason, after=_face(tenant))
    return tenant


@transaction.atomic
def edit_tenant(
    tenant: Tenant,
    changes: dict[str, Any],
    *,
    actor: Actor,
    reason: str = "",
    expected_revision: int | None = None,
) -> Tenant:
    """changes: any of name, weight, fail_mode. expected_revision: refuse with Stale when it moved on."""
    require(actor, "tenant.edit", tenant)
    wrong = {key: "cannot be changed" for key in changes if key not in _EDITABLE}
    wrong |= _wrong_tenant({key: changes[key] for key in _EDITABLE if key in changes})
    if wrong:
        raise Invalid("This tenant cannot be changed so.", fields=wrong)
    before = _face(tenant)
    if all(before[key] == value for key, value in changes.items()):
        etags.check_revision(tenant, expected_revision)
        return tenant
    etags.write(tenant, expected=expected_revision, **changes)
    _tell(tenant, actor, "tenant.edit", reason=reason, before=before, after=_face(tenant))
    return tenant


@transaction.atomic
def create_user(
    username: str, password: str, *, actor: Actor, is_superuser: bool = False, reason: str = ""
) -> User:
    """An account without any membership yet. The password is checked by AUTH_PASSWORD_VALIDATORS."""
    require(actor, "user.create", None)
    model = get_user_model()
    user = model(username=username, is_superuser=is_superuser)
    try:
        user.clean_fields(exclude=["password"])
        validate_password(password, user)
    except ValidationError as error:
        fields = (
            {key: " ".join(lines) for key, lines in error.message_dict.items()}
            if hasattr(error, "error_dict")
            else {"password": " ".join(error.messages)}
        )
        raise Invalid("This account cannot be made.", fields=fields) from None
    user.set_password(password)
    try:
        with transaction.atomic():
            user.save()
    except IntegrityError:
        raise Conflict(
            f"An account {username!r} exists already.", fields={"username": "already taken"}, code="taken"
        ) from None
    audit.record(
        actor, "user.create", f"user:{username}", reason=reason, after={"is_superuser": is_superuser}
    )
    return user


@transaction.atomic
def add_member(tenant: Tenant, user: User | str, role: str, *, actor: Actor, reason: str = "") -> Membership:
    """user: an account or its name. Raises Conflict when it is a member already."""
    require(actor, "member.edit", tenant)
    person, known_role = _person(user), _role(role)
    try:
        with transaction.atomic():
            member = Membership.objects.create(tenant=tenant, user=person, role=known_role)
    except IntegrityError:
        raise Conflict(
            f"{person.username} is a member already.", fields={"username": "already a member"}, code="taken"
        ) from None
    _tell(tenant, actor, "member.add", of=person.username, reason=reason, after={"role": known_role})
    return member


@transaction.atomic
def change_member(member: Membership, role: str, *, actor: Actor, reason: str = "") -> Membership:
    require(actor, "member.edit", member.tenant)
    before, after = Role(member.role), _role(role)
    if before is after:
        return member
    _keep_an_admin(member, actor)
    Membership.objects.filter(pk=member.pk).update(role=after)
    member.role = after
    _tell(
        member.tenant,
        actor,
        "member.change",
        of=member.user.username,
        reason=reason,
        before={"role": before},
        after={"role": after},
    )
    return member


def preview_remove_member(member: Membership, *, actor: Actor) -> Preview:
    """Who leaves and which REST tokens stop working with them; inference keys stay."""
    require(actor, "member.edit", member.tenant)
    tokens = [
        token.name
        for token in member.tenant.tokens.active().filter(created_by=member.user_id)
        if not token.is_inference_key
    ]
    who = member.user.username
    stop = f" {len(tokens)} REST token(s) that {who} made stop working." if tokens else ""
    return Preview(
        f"{who} loses the role {member.role} in {member.tenant.slug}.{stop} Inference keys stay valid.",
        affected=(f"user:{who}", *(f"token:{name}" for name in tokens)),
    )


@transaction.atomic
def remove_member(member: Membership, *, actor: Actor, reason: str = "") -> None:
    require(actor, "member.edit", member.tenant)
    _keep_an_admin(member, actor)
    deleted, _ = Membership.objects.filter(pk=member.pk).delete()
    if not deleted:
        raise NotFound(f"{member.user.username} is no longer a member.")
    _tell(
        member.tenant,
        actor,
        "member.remove",
        of=member.user.username,
        reason=reason,
        before={"role": member.role},
    )


def _keep_an_admin(member: Membership, actor: Actor) -> None:
    """A tenant without an admin can only be helped by a superuser, so only a superuser may make one."""
    if member.role != Role.ADMIN or actor.is_superuser:
        return
    # The lock is on all admins of the tenant: two who remove each other at once must not both succeed.
    admins = Membership.objects.select_for_update().filter(tenant_id=member.tenant_id, role=Role.ADMIN)
    if len(admins) <= 1:
        raise Conflict(
            f"{member.user.username} is the only admin of {member.tenant.slug}; name another one first.",
            code="last_admin",
        )


def _person(user: User | str) -> User:
    if isinstance(user, User):
        return user
    found = User.objects.filter(username=user, is_active=True).first()
    if found is None:
        raise Invalid(f"There is no account {user!r}.", fields={"username": "no account has this name"})
    return found


def _role(role: str) -> Role:
    try:
        return Role(role)
    except ValueError:
        raise Invalid(f"{role!r} is no role.", fields={"role": f"one of {', '.join(Role.values)}"}) from None


def _wrong_slug(slug: str) -> str:
    try:
        validate_slug(slug)
    except ValidationError:
        return "letters, digits, - and _ only"
    return "" if len(slug) <= 63 and slug == slug.lower() else "at most 63 lower-case characters"


def _wrong_tenant(values: dict[str, Any]) -> dict[str, str]:
    wrong: dict[str, str] = {}
    if "name" in values and not (0 < len(str(values["name"]).strip()) <= 120):
        wrong["name"] = "1 to 120 characters"
    weight = values.get("weight", 1)
    if not isinstance(weight, int) or isinstance(weight, bool) or not 1 <= weight <= _WEIGHT_MAXIMUM:
        wrong["weight"] = f"a whole number from 1 to {_WEIGHT_MAXIMUM}"
    if values.get("fail_mode", FailMode.OPEN) not in FailMode.values:
        wrong["fail_mode"] = f"one of {', '.join(FailMode.values)}"
    return wrong


def _face(tenant: Tenant) -> dict[str, Any]:
    return {key: getattr(tenant, key) for key in _EDITABLE}


def _tell(
    tenant: Tenant,
    actor: Actor,
    verb: str,
    *,
    of: str = "",
    reason: str = "",
    before: Any = None,
    after: Any = None,
) -> None:
    target = f"member:{tenant.slug}/{of}" if of else f"tenant:{tenant.slug}"
    audit.record(
        actor,
        verb,
        target,
        tenant=tenant.slug,
        reason=reason,
        before=before,
        after=after,
        topics=("tenants", f"tenant:{tenant.slug}"),
    )
    changed("identity")
