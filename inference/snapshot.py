"""Desired state as one numbered document: built from the rows, put into Redis, announced to the nodes.

Rows are the truth and Redis holds the newest copy. A message that is lost, or a Redis that was wiped, only delays: beat
publishes again every few seconds and every agent reads the key by itself.
"""

import hashlib
import logging
from datetime import timedelta
from typing import Any

import redis
from celery import current_app
from django.conf import settings
from django.db import transaction
from django.db.models import Q
from msgspec import convert

from console.kit import clock
from console.services.models import Service
from console.tenants.models import Quota, Tenant, Token
from inference import playground
from inference.models import Node, Placement, SnapshotState
from inference.protocol import (
    SNAPSHOT_KEY,
    FileRef,
    KeySpec,
    QuotaSpec,
    RoutingSpec,
    ServiceSpec,
    Snapshot,
    TenantSpec,
    VersionSpec,
    encode,
)

log = logging.getLogger(__name__)

NUMBER_KEY = f"{SNAPSHOT_KEY}:number"
INFER_SCOPE = "infer"
_TOLD_WITHIN = timedelta(minutes=1)

# Two publishers may race; the one that read the older rows must not win by being slower.
_SET_IF_NEWER = """
local epoch, number = redis.call('HGET', KEYS[2], 'epoch'), redis.call('HGET', KEYS[2], 'number')
if epoch == ARGV[1] and tonumber(number) > tonumber(ARGV[2]) and redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
redis.call('HSET', KEYS[2], 'epoch', ARGV[1], 'number', ARGV[2])
redis.call('SET', KEYS[1], ARGV[3])
return 1
"""


def publish_on_commit() -> None:
    """What every action calls after changing something that nodes must know.

    The number grows in the action's own transaction: a process that dies right after the commit must not leave behind
    a state that looks as if every node already served it.
    """
    current()
    transaction.on_commit(publish)


def publish() -> Snapshot:
    """Number the present state, put it where nodes read it and tell the live ones. Safe to repeat."""
    snapshot = current()
    try:
        newest = _store(snapshot)
    except redis.RedisError as error:
        log.warning("snapshot %d not stored, beat tries again: %s", snapshot.number, error)
        return snapshot
    if newest:
        _announce(snapshot)
    return snapshot


def current() -> Snapshot:
    """The rows as a snapshot; its number grows when, and only when, the content differs from the last one."""
    with transaction.atomic():
        SnapshotState.objects.get_or_create(id=1)
        # The lock comes before the reads: whoever gets the higher number has also seen the later rows.
        state = SnapshotState.objects.select_for_update().get(id=1)
        content = _content()
        sha256 = hashlib.sha256(encode(content)).hexdigest()
        if sha256 != state.sha256:
            state.number += 1
            state.sha256 = sha256
            state.save(update_fields=["number", "sha256"])
    return Snapshot(epoch=str(state.epoch), number=state.number, **content)


def current_number() -> tuple[str, int]:
    """Epoch and number as last published, without building anything."""
    state = SnapshotState.objects.filter(id=1).first()
    return (str(state.epoch), state.number) if state else ("", 0)


def _content() -> dict[str, Any]:
    return {
        "services": _services(),
        "tenants": tuple(
            TenantSpec(slug=tenant.slug, weight=tenant.weight, fail_mode=tenant.fail_mode)
            for tenant in Tenant.objects.order_by("slug")
        ),
        "keys": _keys(),
        "quotas": tuple(
            QuotaSpec(
                tenant=quota.tenant.slug,
                service=quota.service,
                requests_per_second=quota.requests_per_second,
                burst=quota.burst,
                concurrency=quota.concurrency,
            )
            for quota in Quota.objects.select_related("tenant").order_by("tenant__slug", "service")
        ),
    }


def _services() -> tuple[ServiceSpec, ...]:
    placed: dict[int, list[VersionSpec]] = {}
    routed: dict[int, RoutingSpec] = {}
    placements = Placement.objects.select_related("version").order_by("service_id", "version__number")
    for placement in placements:
        placed.setdefault(placement.service_id, []).append(_version(placement))
        if placement.routing:
            routed[placement.service_id] = convert(placement.routing, RoutingSpec)
    services = Service.objects.filter(id__in=placed).select_related("tenant").order_by("name")
    return tuple(
        ServiceSpec(
            name=service.name,
            tenant=service.tenant.slug,
            versions=tuple(placed[service.pk]),
            routing=routed.get(service.pk),
        )
        for service in services
    )


def _version(placement: Placement) -> VersionSpec:
    version = placement.version
    return VersionSpec(
        number=version.number,
        digest=version.digest,
        files=tuple(FileRef(**file) for file in version.files),
        contract=version.contract,
        replicas=placement.replicas,
        weight_percent=placement.weight_percent,
    )


def _keys() -> tuple[KeySpec, ...]:
    now = clock.now()
    usable = Token.objects.filter(revoked_at=None).filter(Q(expires_at=None) | Q(expires_at__gt=now))
    issued = [
        KeySpec(
            sha256=token.sha256,
            tenant=token.tenant.slug,
            expires_at=token.expires_at.timestamp() if token.expires_at else None,
        )
        for token in usable.select_related("tenant")
        # Filtered here: a JSON "contains" is not portable between SQLite and PostgreSQL.
        if INFER_SCOPE in token.scopes
    ]
    return tuple(sorted([*issued, *playground.key_specs()], key=lambda key: key.sha256))


def _store(snapshot: Snapshot) -> bool:
    """False when Redis already holds a newer one."""
    client = redis.Redis.from_url(settings.REDIS_URL, socket_timeout=2, socket_connect_timeout=1)
    with client:
        stored = client.eval(
            _SET_IF_NEWER, 2, SNAPSHOT_KEY, NUMBER_KEY, snapshot.epoch, str(snapshot.number), encode(snapshot)
        )
    return bool(stored)


def _announce(snapshot: Snapshot) -> None:
    """A nudge to nodes heard of lately; they read the key. Nodes new or silent find it by polling."""
    since = clock.now() - _TOLD_WITHIN
    behind = Q(snapshot_number__lt=snapshot.number) | ~Q(snapshot_epoch=snapshot.epoch)
    for name in Node.objects.filter(behind, reported_at__gte=since).values_list("name", flat=True):
        try:
            current_app.send_task(
                "inference.tasks.apply_snapshot", args=[snapshot.number], queue=f"node.{name}", expires=10
            )
        except Exception as error:  # whatever the broker's client raises: the node polls
            log.warning("node %s not told of snapshot %d: %s", name, snapshot.number, error)
            return
