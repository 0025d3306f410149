"""Changes of strategies. Rollouts keep a copy of their steps, so none of this reaches one that has begun."""

from typing import Any

from django.db import IntegrityError, transaction

from console.audit import log as audit
from console.kit import etags
from console.kit.errors import Conflict
from console.tenants.models import Tenant
from console.tenants.permissions import Actor, require
from rollouts.models import Strategy
from rollouts.plan import parse


def create(
    name: str,
    steps: Any,
    *,
    tenant: Tenant,
    actor: Actor,
    options: Any = None,
    reason: str = "",
    source: str = "",
) -> Strategy:
    """steps: a list, or an object with steps and options. source: the foreign text it comes from."""
    require(actor, "strategy.edit", tenant)
    plan = parse(steps, options=options)
    try:
        with transaction.atomic():
            strategy = Strategy.objects.create(
                tenant=tenant, name=name, steps=plan.as_json(), options=plan.options_as_json(), source=source
            )
            _audit(actor, "strategy.create", strategy, reason=reason, after=face(strategy))
    except IntegrityError:
        raise Conflict(f"{tenant} has a strategy {name} already.", fields={"name": "taken"}) from None
    return strategy


def edit(
    strategy: Strategy,
    steps: Any,
    *,
    actor: Actor,
    options: Any = None,
    reason: str = "",
    revision: int | None = None,
) -> Strategy:
    require(actor, "strategy.edit", strategy.tenant)
    plan = parse(steps, options=options)
    before = face(strategy)
    with transaction.atomic():
        strategy = etags.write(
            strategy, expected=revision, steps=plan.as_json(), options=plan.options_as_json()
        )
        _audit(actor, "strategy.edit", strategy, reason=reason, before=before, after=face(strategy))
    return strategy


def face(strategy: Strategy) -> dict[str, Any]:
    """What an audit row says of a strategy."""
    return {"steps": strategy.steps, **strategy.options}


def delete(strategy: Strategy, *, actor: Actor, reason: str = "") -> None:
    require(actor, "strategy.edit", strategy.tenant)
    with transaction.atomic():
        _audit(actor, "strategy.delete", strategy, reason=reason, before=face(strategy))
        strategy.delete()


def _audit(
    actor: Actor, verb: str, strategy: Strategy, *, reason: str, before: Any = None, after: Any = None
) -> None:
    tenant = strategy.tenant.slug if strategy.tenant else ""
    audit.record(
        actor,
        verb,
        f"strategy:{strategy.name}",
        tenant=tenant,
        reason=reason,
        before=before,
        after=after,
        topics=["rollouts"],
    )
