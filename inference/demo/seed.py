"""Tenants, people, keys and versions of the demo, made through the same actions that users call. Safe to repeat."""

import importlib
import json
import os
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from django.conf import settings
from django.contrib.auth.models import User

from console.kit.files import write_atomic
from console.services.models import Service
from console.tenants import actions as identity
from console.tenants.models import Membership, Quota, Role, Tenant, Token
from console.tenants.permissions import SYSTEM, Scope
from console.tenants.tokens import digest
from inference.actions import register_version
from inference.demo import SERVICE
from inference.models import Version

OWNER = "platform"
TENANTS = {OWNER: "Platform team", "acme": "Acme", "globex": "Globex"}
QUOTAS: dict[str, dict[str, Any]] = {
    "acme": {"requests_per_second": 200.0, "burst": 400, "concurrency": 256},
    # Small on purpose: some of its traffic is refused, so that a page shows what that looks like.
    "globex": {"requests_per_second": 4.0, "burst": 8, "concurrency": 4},
}
PEOPLE = {"ada": Role.OPERATOR, "ben": Role.VIEWER}
ADMIN = "admin"
REST_SCOPES: tuple[str, ...] = (Scope.READ, Scope.MODELS, Scope.ROLLOUTS, Scope.NODES, Scope.TENANTS)

# note -> the function of inference.demo.variants that writes the folder
VERSIONS = [
    ("As magika ships it", "as_shipped"),
    ("Good: matrix products in INT8, same labels", "quantized"),
    ("Broken on purpose: fails on inputs whose first byte is 128 or more", "broken"),
]

Credentials = dict[str, Any]


class _Kept(msgspec.Struct):
    """The shape that the file must have to be of use."""

    users: dict[str, dict[str, str]] = {}
    tenants: dict[str, dict[str, str]] = {}
    token: str = ""
    url: str = ""
    plane_url: str = ""


def path() -> Path:
    found: Path = settings.HOME / "credentials.json"
    return found


def make(*, url: str = "", plane_url: str = "") -> Iterator[str]:
    """Make what is missing and yield a sentence for each thing made."""
    known = _read()
    for slug, name in TENANTS.items():
        if not Tenant.objects.filter(slug=slug).exists():
            identity.create_tenant(slug, name=name, actor=SYSTEM)
            yield f"tenant {slug}"
    yield from _people(known)
    yield from _secrets(known)
    known["url"], known["plane_url"] = url or known.get("url", ""), plane_url or known.get("plane_url", "")
    _write(known)
    yield from _versions()
    for slug, limits in QUOTAS.items():
        if not Quota.objects.filter(tenant__slug=slug, service=SERVICE).exists():
            identity.set_quota(Tenant.objects.get(slug=slug), SERVICE, actor=SYSTEM, **limits)
            yield f"quota of {slug} on {SERVICE}"


def _people(known: Credentials) -> Iterator[str]:
    """Accounts with generated passwords. A password that somebody changed is theirs: it is not set again."""
    kept = known.setdefault("users", {})
    for name in (ADMIN, *PEOPLE):
        if not User.objects.filter(username=name).exists():
            password = secrets.token_urlsafe(12)
            identity.create_user(name, password, actor=SYSTEM, is_superuser=name == ADMIN)
            kept[name] = {"password": password}
            _write(known)
            yield f"user {name}"
    owner = Tenant.objects.get(slug=OWNER)
    for name, role in PEOPLE.items():
        if not Membership.objects.filter(tenant=owner, user__username=name).exists():
            identity.add_member(owner, name, role, actor=SYSTEM)


def _secrets(known: Credentials) -> Iterator[str]:
    """A REST token for pipelines, and an inference key for each tenant; made anew when the file lost them."""
    if not _works(known.get("token")):
        _, known["token"] = identity.create_token(
            Tenant.objects.get(slug=OWNER), name="ci", scopes=REST_SCOPES, actor=SYSTEM
        )
        _write(known)
        yield "REST token ci"
    kept = known.setdefault("tenants", {})
    for slug in TENANTS:
        entry = kept.setdefault(slug, {})
        if not _works(entry.get("infer")):
            tenant = Tenant.objects.get(slug=slug)
            _, entry["infer"] = identity.create_token(
                tenant, name=f"{slug} inference", scopes=[Scope.INFER], actor=SYSTEM
            )
            _write(known)
            yield f"inference key of {slug}"


def _works(secret: str | None) -> bool:
    return bool(secret) and Token.objects.filter(sha256=digest(str(secret)), revoked_at=None).exists()


def _versions() -> Iterator[str]:
    owner = Tenant.objects.get(slug=OWNER)
    service = Service.objects.filter(name=SERVICE).first()
    have = Version.objects.of(service).count() if service else 0
    parent: Version | None = Version.objects.filter(service__name=SERVICE, number=1).first()
    for note, name in VERSIONS[have:]:
        with tempfile.TemporaryDirectory(prefix="pilothouse-demo-") as folder:
            # Loaded when needed: onnx and its runtime would cost every later start a second.
            variants = importlib.import_module("inference.demo.variants")
            getattr(variants, name)(Path(folder))
            version = register_version(
                SERVICE, Path(folder), tenant=owner, actor=SYSTEM, note=note, parent=parent
            )
        parent = parent or version
        yield f"{version}: {note}"


def _read() -> Credentials:
    """Empty when there is no file or somebody broke it: secrets are made anew then, passwords are not."""
    try:
        found = msgspec.json.decode(path().read_bytes(), type=_Kept)
    except (OSError, ValueError, msgspec.MsgspecError):
        return {}
    return msgspec.to_builtins(found) if found.users or found.tenants or found.token else {}


def _write(known: Credentials) -> None:
    """After each secret: one that is in the database but not in the file could never be shown again."""
    path().parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path(), json.dumps(known, indent=2).encode() + os.linesep.encode(), mode=0o600)
