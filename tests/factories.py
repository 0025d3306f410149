"""Rows for tests: one line each, naming only what the test is about. They bypass the actions on purpose."""

import hashlib
from datetime import datetime, timedelta
from typing import Any

from console.kit import clock
from console.services.models import Service
from console.tenants.models import Quota, Tenant, Token
from inference.models import Alias, Node, Placement, Replica, Version
from rollouts.models import Rollout, Strategy

STEPS: list[dict[str, Any]] = [
    {"setWeight": 10},
    {"pause": {"duration": 5}},
    {"setWeight": 50},
    {"setWeight": 100},
]
CONTRACT: dict[str, Any] = {
    "apiVersion": "pilothouse.dev/v1",
    "kind": "ModelContract",
    "metadata": {"name": "file-type", "version": "1"},
    "spec": {
        "platform": "onnx",
        "inputs": [{"name": "bytes", "datatype": "INT32", "shape": [-1, 2048]}],
        "outputs": [{"name": "target_label", "datatype": "FP32", "shape": [-1, 214]}],
    },
}
SIGNATURE: dict[str, Any] = {
    "inputs": [{"name": "bytes", "datatype": "INT32", "shape": [-1, 2048]}],
    "outputs": [{"name": "target_label", "datatype": "FP32", "shape": [-1, 214]}],
    "opset": 17,
    "parameters": 0,
    "size": 0,
    "quantization": "none",
}


def tenant(slug: str = "platform", **fields: Any) -> Tenant:
    """The tenant of that name; made when there is none."""
    made, _ = Tenant.objects.get_or_create(slug=slug, defaults={"name": slug.capitalize(), **fields})
    return made


def service(name: str = "file-type", *, owner: Tenant | str = "platform", **fields: Any) -> Service:
    """The service of that name; made when there is none."""
    owner = tenant(owner) if isinstance(owner, str) else owner
    made, _ = Service.objects.get_or_create(name=name, defaults={"tenant": owner, **fields})
    return made


def version(number: int = 1, *, of: Service | str = "file-type", **fields: Any) -> Version:
    """A registered version without blobs; the digest is made up from name and number."""
    of = service(of) if isinstance(of, str) else of
    defaults = {
        "digest": hashlib.sha256(f"{of.name}:{number}".encode()).hexdigest(),
        "files": [],
        "contract": CONTRACT,
        "signature": SIGNATURE,
        "created_by": "system",
    }
    return Version.objects.create(service=of, number=number, **{**defaults, **fields})


def placement(of: Version, *, role: str = "stable", weight: int | None = None, **fields: Any) -> Placement:
    """weight: default 100 for stable, 0 for the others."""
    weight = (100 if role == "stable" else 0) if weight is None else weight
    return Placement.objects.create(
        service=of.service, version=of, role=role, weight_percent=weight, **fields
    )


def stable(number: int = 1, *, of: Service | str = "file-type", replicas: int = 1) -> Version:
    """A version that is the service's stable one: registered, alias moved, all traffic."""
    made = version(number, of=of)
    Alias.objects.update_or_create(service=made.service, name="stable", defaults={"version": made})
    placement(made, replicas=replicas)
    return made


def make_stable(made: Version) -> None:
    """Move all traffic of its service to a version that is there already."""
    Placement.objects.filter(service=made.service).delete()
    placement(made)


def node(name: str = "node-1", *, silent_seconds: float = 0, **fields: Any) -> Node:
    """A node whose last report is `silent_seconds` old."""
    now = clock.now()
    defaults: dict[str, Any] = {
        "plane_url": "http://127.0.0.1:8080",
        "reported_at": now - timedelta(seconds=silent_seconds),
        "started_at": now - timedelta(hours=1),
        "plane_state": "ready",
        "profile": {
            "cores": 2,
            "memory_bytes": 4 << 30,
            "cpu_flags": [],
            "runtime": "1.32.0",
            "providers": ["cpu"],
        },
    }
    made, _ = Node.objects.update_or_create(name=name, defaults={**defaults, **fields})
    return made


def replica(
    of: Version, *, state: str = "ready", on: Node | None = None, ordinal: int = 0, **fields: Any
) -> Replica:
    """One worker of `of`, on the default node unless told otherwise."""
    fields.setdefault("since", clock.now())
    return Replica.objects.create(
        node=on or node(), service=of.service, version=of, ordinal=ordinal, state=state, **fields
    )


def strategy(name: str = "careful", *, steps: list[dict[str, Any]] | None = None, **fields: Any) -> Strategy:
    return Strategy.objects.create(name=name, steps=STEPS if steps is None else steps, **fields)


def rollout(
    to: Version | None = None,
    *,
    state: str = "progressing",
    created_at: datetime | None = None,
    **fields: Any,
) -> Rollout:
    """A rollout of `to` (default version 2 of file-type, over a stable version 1) in the given state."""
    if to is None:
        from_version = stable(1)
        to = version(2, of=from_version.service)
        fields.setdefault("from_version", from_version)
    defaults: dict[str, Any] = {"steps": STEPS, "strategy_name": "careful", "created_by": "user:ada"}
    return Rollout.objects.create(
        service=to.service,
        to_version=to,
        state=state,
        created_at=created_at or clock.now(),
        **{**defaults, **fields},
    )


def token(
    of: Tenant | str = "acme", *, secret: str = "pht_test", scopes: tuple[str, ...] = ("read",)
) -> Token:
    """A token known by `secret`; only its hash is kept, as in the product."""
    of = tenant(of) if isinstance(of, str) else of
    digest = hashlib.sha256(secret.encode()).hexdigest()
    return Token.objects.create(tenant=of, name="test", hint=secret[:8], sha256=digest, scopes=list(scopes))


def quota(of: Tenant | str = "acme", *, on: Service | str = "file-type", **limits: Any) -> Quota:
    """The grant of a tenant to call a service; limits: requests_per_second, burst, concurrency."""
    of = tenant(of) if isinstance(of, str) else of
    name = on if isinstance(on, str) else on.name
    return Quota.objects.create(tenant=of, service=name, **limits)
