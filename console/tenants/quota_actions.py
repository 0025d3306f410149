"""Quotas: the grant of a tenant to call a service, and its limits. Whoever owns the service decides."""

import math
from typing import Any

from django.db import IntegrityError, transaction

from console.audit import log as audit
from console.kit import etags
from console.kit.errors import Invalid, NotFound, Stale
from console.kit.events import changed
from console.kit.previews import Preview
from console.tenants.grants import no_such_service, owner_of
from console.tenants.models import Quota, Tenant
from console.tenants.permissions import Actor, require

_INTEGER_MAXIMUM = 2_147_483_647  # PostgreSQL's integer
_RATE_MAXIMUM = 1_000_000.0


@transaction.atomic
def set_quota(
    tenant: Tenant,
    service: str,
    *,
    actor: Actor,
    requests_per_second: float | None = None,
    burst: int | None = None,
    concurrency: int | None = None,
    reason: str = "",
    expected_revision: int | None = None,
) -> Quota:
    """Grant `tenant` the service with exactly these limits (None: no limit of that kind); made or changed.

    Absolute, so a repeat is harmless and writes nothing. expected_revision: refuse with Stale when it moved on.
    """
    require_owner(actor, service, tenant)
    limits = {"requests_per_second": requests_per_second, "burst": burst, "concurrency": concurrency}
    if wrong := _wrong(limits):
        raise Invalid("These limits cannot be set.", fields=wrong)
    quota = Quota.objects.filter(tenant=tenant, service=service).first()
    if quota is None:
        quota, made = _create(tenant, service, limits, expected_revision)
        if made:
            _tell(quota, actor, "quota.set", reason=reason, after=face(quota))
            return quota
    before = face(quota)
    if before == limits:
        etags.check_revision(quota, expected_revision)
        return quota
    etags.write(quota, expected=expected_revision, **limits)
    _tell(quota, actor, "quota.set", reason=reason, before=before, after=face(quota))
    return quota


def preview_remove_quota(quota: Quota, *, actor: Actor) -> Preview:
    """Who is cut off: the tenant's active inference keys, by name."""
    owner = require_owner(actor, quota.service, quota.tenant, gone=True)
    if owner is not None and owner.pk == quota.tenant_id:
        sentence = f"{quota.tenant.slug} owns {quota.service} and keeps calling it, without limits."
        return Preview(sentence, revision=quota.revision)
    keys = list(quota.tenant.tokens.active().inference_keys().order_by("pk"))
    return Preview(
        f"{quota.tenant.slug} can no longer call {quota.service} nor see it: "
        f"requests with its {len(keys)} active key(s) are refused from now on.",
        affected=tuple(f"token:{quota.tenant.slug}/{key.name}" for key in keys),
        revision=quota.revision,
    )


@transaction.atomic
def remove_quota(quota: Quota, *, actor: Actor, reason: str, expected_revision: int | None = None) -> None:
    """Take the grant away. reason: required, it is what the tenant's people will read."""
    require_owner(actor, quota.service, quota.tenant, gone=True)
    if not reason.strip():
        raise Invalid("Say why the grant is taken away.", fields={"reason": "is required"})
    rows = Quota.objects.filter(pk=quota.pk)
    if expected_revision is not None:
        rows = rows.filter(revision=expected_revision)
    if not rows.delete()[0]:
        now = Quota.objects.filter(pk=quota.pk).first()
        raise (
            NotFound("This quota is gone already.")
            if now is None
            else etags.stale(now.revision, expected_revision or 0)
        )
    _tell(quota, actor, "quota.remove", reason=reason, before=face(quota))


def face(quota: Quota) -> dict[str, Any]:
    """The limits, for the audit row."""
    return {
        "requests_per_second": quota.requests_per_second,
        "burst": quota.burst,
        "concurrency": quota.concurrency,
    }


def require_owner(actor: Actor, service: str, tenant: Tenant | None, *, gone: bool = False) -> Tenant | None:
    """Only an admin of the service's owner may grant it: a tenant cannot widen its own limits. Returns the owner.

    gone: a service that no longer exists is no error; what is left of it is a superuser's to clean up.
    """
    try:
        owner = owner_of(service)
    except NotFound:
        if not gone:
            raise
        owner = None
    seen = (
        tenant is not None
        and actor.role_in(tenant) is not None
        and Quota.objects.filter(tenant=tenant, service=service).exists()
    )
    try:
        require(actor, "quota.edit", owner, visible=seen)
    except NotFound:
        raise no_such_service(service) from None
    return owner


def _create(
    tenant: Tenant, service: str, limits: dict[str, Any], expected_revision: int | None
) -> tuple[Quota, bool]:
    """A lost race between two first writers ends as a change of the winner's row."""
    if expected_revision is not None:
        raise Stale("There is no such quota (any more).", fields={"If-Match": "no current revision"})
    try:
        with transaction.atomic():
            return Quota.objects.create(tenant=tenant, service=service, **limits), True
    except IntegrityError:
        return Quota.objects.get(tenant=tenant, service=service), False


def _wrong(limits: dict[str, Any]) -> dict[str, str]:
    wrong: dict[str, str] = {}
    rate = limits["requests_per_second"]
    if rate is not None and not (math.isfinite(rate) and 0 < rate <= _RATE_MAXIMUM):
        wrong["requests_per_second"] = "more than 0 and at most 1000000; leave it out for no limit"
    for name in ("burst", "concurrency"):
        value = limits[name]
        if value is not None and not 1 <= value <= _INTEGER_MAXIMUM:
            wrong[name] = f"a whole number from 1 to {_INTEGER_MAXIMUM}; leave it out for no limit"
    if limits["burst"] is not None and rate is None:
        wrong.setdefault("burst", "needs requests_per_second: a burst is filled by the rate")
    return wrong


def _tell(
    quota: Quota, actor: Actor, verb: str, *, reason: str = "", before: Any = None, after: Any = None
) -> None:
    slug = quota.tenant.slug
    audit.record(
        actor,
        verb,
        f"quota:{slug}/{quota.service}",
        tenant=slug,
        reason=reason,
        before=before,
        after=after,
        topics=(f"tenant:{slug}", f"service:{quota.service}"),
    )
    changed("identity")
