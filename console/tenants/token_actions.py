"""Tokens: made, rotated, revoked. A secret is returned once by the function that makes it and kept nowhere."""

from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from console.audit import log as audit
from console.kit import clock
from console.kit.errors import Conflict, Forbidden, Invalid
from console.kit.events import changed
from console.kit.previews import Preview
from console.tenants import tokens
from console.tenants.models import Tenant, Token
from console.tenants.permissions import Actor, Scope, grantable, require

ROTATION_GRACE = timedelta(hours=1)
_GRACE_MAXIMUM = timedelta(days=7)


@transaction.atomic
def create_token(
    tenant: Tenant,
    *,
    name: str,
    scopes: list[str] | tuple[str, ...],
    actor: Actor,
    expires_at: datetime | None = None,
    most_weight_percent: int | None = None,
    reason: str = "",
) -> tuple[Token, str]:
    """A new token and its secret. Scope `infer` alone makes an inference key (`ph_...`), anything else a REST token.

    Raises Invalid by field, also when the actor may not hand out one of the scopes.
    """
    require(actor, "token.create", tenant)
    wrong = _wrong(name, scopes, expires_at) | _wrong_limit(scopes, most_weight_percent, actor)
    if not wrong and (refused := grantable(actor, scopes, tenant)):
        wrong["scopes"] = "; ".join(f"{scope}: {why}" for scope, why in refused.items())
    if wrong:
        raise Invalid("This token cannot be made.", fields=wrong)
    token, secret = _make(tenant, name.strip(), sorted(set(scopes)), actor, expires_at, most_weight_percent)
    _tell(token, actor, "token.create", reason=reason, after=face(token))
    return token, secret


def preview_revoke_token(token: Token, *, actor: Actor) -> Preview:
    """Who is cut off, and when the token was last used."""
    _require_for(token, "token.revoke", actor)
    used = (
        f"last used {token.last_used_at:%Y-%m-%d %H:%M} UTC" if token.last_used_at else "use is not recorded"
    )
    what = "inference requests" if token.is_inference_key else "REST requests"
    return Preview(
        f"{what.capitalize()} of {token.tenant.slug} with {token.hint}... are refused from now on ({used}). "
        "This cannot be undone.",
        affected=(f"token:{token.name}",),
    )


@transaction.atomic
def revoke_token(token: Token, *, actor: Actor, reason: str = "") -> Token:
    """For good. Revoking twice changes nothing and is no error."""
    _require_for(token, "token.revoke", actor)
    now = clock.now()
    if not Token.objects.filter(pk=token.pk, revoked_at__isnull=True).update(revoked_at=now):
        token.refresh_from_db()
        return token
    token.revoked_at = now
    _tell(token, actor, "token.revoke", reason=reason, before={"state": "active"}, after={"state": "revoked"})
    return token


def preview_rotate_token(token: Token, *, actor: Actor, grace: timedelta = ROTATION_GRACE) -> Preview:
    """What happens to the old secret."""
    _require_for(token, "token.rotate", actor)
    _check_grace(grace)
    return Preview(
        f"A new secret is made for {token.name}; {token.hint}... works for another {int(grace.total_seconds())} s.",
        affected=(f"token:{token.name}",),
    )


@transaction.atomic
def rotate_token(
    token: Token, *, actor: Actor, grace: timedelta = ROTATION_GRACE, reason: str = ""
) -> tuple[Token, str]:
    """A successor with the same name, scopes and lifetime; the old secret works until `grace` is over."""
    _require_for(token, "token.rotate", actor)
    _check_grace(grace)
    now = clock.now()
    end = now + grace if token.expires_at is None else min(token.expires_at, now + grace)
    if not Token.objects.active().filter(pk=token.pk).update(expires_at=end):
        raise Conflict("Only an active token can be rotated; make a new one.", code="not_active")
    lifetime = token.expires_at - token.created_at if token.expires_at else None
    token.expires_at = end
    successor, secret = _make(
        token.tenant,
        token.name,
        token.scopes,
        actor,
        now + lifetime if lifetime else None,
        token.most_weight_percent,
    )
    _tell(
        token,
        actor,
        "token.rotate",
        reason=reason,
        before={"hint": token.hint},
        after={**face(successor), "old_expires_at": end.isoformat()},
    )
    return successor, secret


def face(token: Token) -> dict[str, Any]:
    """What an audit row may say of a token."""
    return {
        "id": token.pk,
        "name": token.name,
        "hint": token.hint,
        "scopes": token.scopes,
        "most_weight_percent": token.most_weight_percent,
        "expires_at": token.expires_at.isoformat() if token.expires_at else None,
    }


def _make(
    tenant: Tenant,
    name: str,
    scopes: list[str],
    actor: Actor,
    expires_at: datetime | None,
    most_weight_percent: int | None,
) -> tuple[Token, str]:
    prefix = tokens.INFERENCE_PREFIX if Scope.INFER in scopes else tokens.REST_PREFIX
    secret = tokens.mint(prefix)
    token = Token.objects.create(
        tenant=tenant,
        created_by_id=actor.user_id,
        name=name,
        hint=tokens.hint_of(secret),
        sha256=tokens.digest(secret),
        scopes=scopes,
        most_weight_percent=most_weight_percent,
        expires_at=expires_at,
    )
    return token, secret


def _check_grace(grace: timedelta) -> None:
    if not timedelta(0) <= grace <= _GRACE_MAXIMUM:
        raise Invalid("The grace is too long.", fields={"grace_seconds": "0 seconds to 7 days"})


def _require_for(token: Token, verb: str, actor: Actor) -> None:
    """Besides the verb: who may not hand out a token's scopes may not take them away either."""
    require(actor, verb, token.tenant)
    known = [scope for scope in token.scopes if scope in set(Scope)]
    if refused := grantable(actor, known, token.tenant):
        raise Forbidden(
            "You could not have made this token: "
            + "; ".join(f"{scope} {why}" for scope, why in refused.items())
        )


def _wrong(name: str, scopes: list[str] | tuple[str, ...], expires_at: datetime | None) -> dict[str, str]:
    wrong: dict[str, str] = {}
    if not (0 < len(name.strip()) <= 120) or not name.isprintable():
        wrong["name"] = "1 to 120 printable characters"
    if not scopes:
        wrong["scopes"] = f"at least one of {', '.join(sorted(Scope))}"
    elif Scope.INFER in scopes and len(set(scopes)) > 1:
        wrong["scopes"] = "infer stands alone: an inference key opens nothing else"
    elif set(scopes) == {Scope.EVERY_TENANT}:
        wrong["scopes"] = "tenants:all only widens other scopes; add one"
    if expires_at is not None and expires_at <= clock.now():
        wrong["expires_at"] = "is in the past"
    return wrong


def _wrong_limit(
    scopes: list[str] | tuple[str, ...], most_weight_percent: int | None, actor: Actor
) -> dict[str, str]:
    """A limit of rollouts; a token that has one cannot hand out a wider one."""
    if most_weight_percent is None:
        told = actor.most_weight_percent < 100 and Scope.ROLLOUTS in scopes
        most = actor.most_weight_percent
        return {"most_weight_percent": f"at most {most}, your own limit"} if told else {}
    if Scope.ROLLOUTS not in scopes:
        return {"most_weight_percent": "belongs to scope rollouts:write"}
    if not 0 <= most_weight_percent <= min(100, actor.most_weight_percent):
        return {"most_weight_percent": f"0 to {min(100, actor.most_weight_percent)} percent"}
    return {}


def _tell(
    token: Token, actor: Actor, verb: str, *, reason: str = "", before: Any = None, after: Any = None
) -> None:
    slug = token.tenant.slug
    audit.record(
        actor,
        verb,
        f"token:{slug}/{token.name}",
        tenant=slug,
        reason=reason,
        before=before,
        after=after,
        topics=(f"tenant:{slug}",),
    )
    changed("identity")
