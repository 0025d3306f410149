"""Every change to versions, placements and replicas: for people, for the API and for rollouts.

Placement verbs are absolute and may be repeated. Each carries the fence of the lease it acts under: a controller that
lost its lease and wakes up late is refused, since somebody with a higher fence has written meanwhile.
"""

import re
from pathlib import Path

from celery import current_app
from django.db import transaction
from kombu.exceptions import OperationalError
from msgspec import to_builtins

from console.audit.log import record
from console.kit import clock, etags
from console.kit.errors import Conflict, Invalid, Unavailable
from console.kit.previews import Preview
from console.services.models import Service
from console.tenants.models import Tenant
from console.tenants.permissions import SYSTEM, Actor, require
from inference import registry, snapshot
from inference.models import Alias, Placement, PlacementRole, Replica, Version
from inference.placement import changing, lock, record_change
from inference.protocol import ReplicaState, RoutingSpec

# `stats` is an address of its own under /v2/models/.
_SERVICE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
_RESERVED = {"stats"}


def register_version(
    service_name: str,
    folder: Path,
    *,
    tenant: Tenant,
    actor: Actor,
    contract: str | bytes | None = None,
    note: str = "",
    parent: Version | None = None,
    most_bytes: int | None = None,
) -> Version:
    """A new immutable version; the service is made with its first one, which becomes stable at once.

    folder: a folder or a single .onnx file. contract: YAML text; None: the folder's own, else inferred.
    """
    existing = Service.objects.for_actor(actor).filter(name=service_name).first()
    if existing is None:
        require(actor, "service.register", tenant)
        _check_name(service_name)
    else:
        require(actor, "version.register", existing.tenant, visible=True)
        if existing.tenant != tenant:
            raise Conflict(
                f"{service_name} belongs to {existing.tenant}.", fields={"tenant": "another tenant's service"}
            )
    # Outside the transaction: copying and parsing may take a minute, and a blob without a row harms nobody.
    taken = registry.take_in(folder, name=service_name, contract=contract, most_bytes=most_bytes)
    with transaction.atomic():
        service, _ = Service.objects.get_or_create(name=service_name, defaults={"tenant": tenant})
        if service.tenant_id != tenant.pk:  # somebody else's, so its existence is not told in other words
            raise Conflict(f"The name {service_name} is taken.", fields={"service": "taken"})
        service = lock(service)
        version = Version.objects.create(
            service=service,
            number=Version.objects.next_number(service),
            digest=taken.digest,
            files=[{"path": ref.path, "sha256": ref.sha256, "size": ref.size} for ref in taken.files],
            contract=taken.contract,
            signature=taken.signature,
            note=note[:500],
            parent=parent,
            created_by=actor.name,
        )
        if not service.placements.stable().exists():
            _place_first(service, version)
        after = {"version": version.number, "digest": version.digest, "contract_inferred": taken.inferred}
        record_change(actor, "version.register", service, reason=note, after=after)
        snapshot.publish_on_commit()
    return version


def _check_name(name: str) -> None:
    if _SERVICE_NAME.fullmatch(name) is None or name in _RESERVED:
        why = "letters, digits, dot, dash and underscore, starting with a letter or digit"
        raise Invalid(f"{name[:80]!r} cannot be a service's name.", fields={"service": why})


def _place_first(service: Service, version: Version) -> None:
    Placement.objects.create(
        service=service,
        version=version,
        role=PlacementRole.STABLE,
        replicas=replicas_in(version),
        weight_percent=100,
    )
    Alias.objects.point(service, "stable", version)


def replicas_in(version: Version) -> int:
    """How many workers on each node the contract asks for."""
    replicas: int = version.contract["spec"]["resources"]["replicas"]
    return replicas


def place_canary(service: Service, version: Version, *, replicas: int, actor: Actor, fence: int) -> None:
    """Have the version loaded beside the stable one. Its weight stays what it is, 0 when it is new here."""
    with changing(service, actor, fence) as now:
        placement = now.of(version)
        if placement is not None and placement.role == PlacementRole.STABLE:
            raise Conflict(f"{version} is already the stable version.", fields={"version": "already stable"})
        canary = now.by_role(PlacementRole.CANARY)
        if canary is not None and canary.version_id != version.pk:
            raise Conflict(
                f"{canary.version} is the canary of {service} now.", fields={"version": "another canary"}
            )
        now.put(version, PlacementRole.CANARY, replicas, placement.weight_percent if placement else 0)
        Alias.objects.point(service, "canary", version)
        now.done("placement.place_canary", {"version": version.number, "replicas": replicas})


def shift(service: Service, version: Version, *, weight_percent: int, actor: Actor, fence: int) -> None:
    """Give the canary exactly this share of the requests and the stable version the rest."""
    if not 0 <= weight_percent <= 100:
        raise Invalid("A weight is 0 to 100 percent.", fields={"weight_percent": "0 to 100"})
    with changing(service, actor, fence) as now:
        canary, stable = now.of(version), now.by_role(PlacementRole.STABLE)
        if canary is None or stable is None or canary.role != PlacementRole.CANARY:
            raise Conflict(f"{version} is not the canary of {service}.", fields={"version": "not the canary"})
        if canary.weight_percent == weight_percent and stable.weight_percent == 100 - weight_percent:
            return
        now.weigh({canary: weight_percent, stable: 100 - weight_percent})
        now.done("placement.shift", {"version": version.number, "weight_percent": weight_percent})


def route(service: Service, version: Version, *, routing: RoutingSpec, actor: Actor, fence: int) -> None:
    """Say who reaches the canary besides its weight."""
    told = {} if routing == RoutingSpec(version.number) else to_builtins(routing)
    with changing(service, actor, fence) as now:
        canary = now.of(version)
        if canary is None or canary.role != PlacementRole.CANARY:
            raise Conflict(f"{version} is not the canary of {service}.", fields={"version": "not the canary"})
        if canary.routing == told:
            return
        now.route(canary, told)
        now.done("placement.route", {"version": version.number, "routing": told})


def promote(service: Service, version: Version, *, warm_seconds: float, actor: Actor, fence: int) -> None:
    """The version becomes stable with all traffic; the one before stays loaded, without any, for a quick return."""
    with changing(service, actor, fence) as now:
        placement, before = now.of(version), now.by_role(PlacementRole.STABLE)
        if placement is None:
            raise Conflict(f"{version} is not placed.", fields={"version": "not placed"})
        if before is not None and before.version_id == version.pk:
            return  # a repeat after a crash
        if before is not None:
            now.retire(before, warm_seconds)
        replicas = max(placement.replicas, before.replicas if before else 1)
        now.put(version, PlacementRole.STABLE, replicas, 100)
        Alias.objects.point(service, "stable", version)
        Alias.objects.point(service, "canary", None)
        now.done(
            "placement.promote", {"version": version.number, "was": before.version.number if before else None}
        )


def withdraw(service: Service, version: Version, *, actor: Actor, fence: int) -> None:
    """Take the canary out: no traffic, no workers; the stable version has everything again."""
    with changing(service, actor, fence) as now:
        placement, stable = now.of(version), now.by_role(PlacementRole.STABLE)
        if placement is not None and placement.role == PlacementRole.STABLE:
            raise Conflict(f"{version} is the stable version.", fields={"version": "stable"})
        if placement is None and (stable is None or stable.weight_percent == 100):
            return
        if placement is not None:
            placement.delete()
        if stable is not None:
            now.weigh({stable: 100})
        Alias.objects.point(service, "canary", None)
        now.done("placement.withdraw", {"version": version.number})


def remove_expired_warm() -> int:
    """End what was kept for a quick return and was not needed."""
    removed = 0
    for placement in Placement.objects.expired(clock.now()).select_related("service__tenant", "version"):
        with transaction.atomic():
            # Conditional: it may have been promoted again meanwhile.
            gone, _ = Placement.objects.expired(clock.now()).filter(pk=placement.pk).delete()
            if gone:
                removed += 1
                after = {"version": placement.version.number}
                record_change(SYSTEM, "placement.end_warm", placement.service, after=after)
                snapshot.publish_on_commit()
    return removed


def restart_replica(replica: Replica, *, actor: Actor, reason: str = "") -> None:
    """Have its node end the worker after the batch in hand and start it anew."""
    service = replica.service
    require(actor, "replica.restart", service.tenant, visible=True)
    if "restart" not in replica.face.verbs or replica.pid is None:
        word = replica.face.word
        raise Conflict(f"{replica} is {word}; there is nothing to restart.", fields={"state": word})
    arguments = [service.name, replica.version.number, replica.ordinal, replica.pid]
    with transaction.atomic():
        target = f"replica:{replica.version}#{replica.ordinal}@{replica.node.name}"
        record(
            actor,
            "replica.restart",
            target,
            tenant=service.tenant.slug,
            reason=reason,
            before={"pid": replica.pid, "state": replica.state},
            topics=[f"service:{service.name}", f"node:{replica.node.name}"],
        )
        try:
            # Inside the transaction: an order that was not sent must not be on record as given.
            current_app.send_task(
                "inference.tasks.restart_replica",
                args=arguments,
                queue=f"node.{replica.node.name}",
                expires=30,
            )
        except (OperationalError, OSError) as error:
            raise Unavailable(f"The order could not be sent: {error}.") from None


def preview_restart(replica: Replica, *, actor: Actor) -> Preview:
    """What a restart would touch, and who answers meanwhile."""
    require(actor, "replica.restart", replica.service.tenant, visible=True)
    siblings = Replica.objects.of(replica.version).on_live_nodes(clock.now()).exclude(pk=replica.pk)
    others = siblings.filter(state=ReplicaState.READY).count()
    meanwhile = (
        f"{others} other ready replica{'s' if others != 1 else ''} of the version take its requests meanwhile."
        if others
        else "No other replica of the version is ready: its requests wait until this one is back."
    )
    sentence = f"{replica} ends the batch in hand and starts anew. {meanwhile}"
    return Preview(sentence, affected=(f"service:{replica.service.name}", f"node:{replica.node.name}"))


def edit_service(
    service: Service, *, description: str, actor: Actor, expected_revision: int | None = None
) -> Service:
    """Change what a service says of itself. Raises Stale when it moved on from `expected_revision`."""
    require(actor, "service.edit", service.tenant, visible=True)
    before = {"description": service.description}
    with transaction.atomic():
        etags.write(service, expected=expected_revision, description=description)
        record_change(actor, "service.edit", service, before=before, after={"description": description})
    return service
