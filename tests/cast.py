"""The cast everyone knows: Ada can, Ben sees, Cleo gets 404, Root may everything.

`make_cast()` inside a database test, or the fixture: `from tests.cast import cast` in a folder's conftest.
"""

from dataclasses import dataclass
from functools import cache

import pytest
from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import User
from django.test import Client as PageClient
from rest_framework.test import APIClient

from console.tenants.models import Membership, Role, Tenant, Token
from console.tenants.permissions import SYSTEM, Actor, of_token, of_user
from console.tenants.token_actions import create_token

PASSWORD = "sea-state-4-rising"


@dataclass(frozen=True)
class Person:
    user: User

    @property
    def actor(self) -> Actor:
        return of_user(self.user)

    def pages(self) -> PageClient:
        """A browser session."""
        client = PageClient()
        client.force_login(self.user)
        return client

    def api(self) -> APIClient:
        """The REST API with this person's session."""
        client = APIClient()
        client.force_login(self.user)
        return client


@dataclass(frozen=True)
class Bearer:
    token: Token
    secret: str

    @property
    def actor(self) -> Actor:
        return of_token(self.token)

    def api(self) -> APIClient:
        """The REST API with this token."""
        client = APIClient()
        client.credentials(HTTP_AUTHORIZATION=f"Bearer {self.secret}")
        return client


@dataclass(frozen=True)
class Cast:
    """platform: the tenant of everyone but Cleo. acme: a client of platform. strange: Cleo's own."""

    platform: Tenant
    acme: Tenant
    strange: Tenant
    ada: Person
    ben: Person
    ida: Person
    cleo: Person
    root: Person

    def token(self, *scopes: str, tenant: Tenant | None = None, maker: Person | None = None) -> Bearer:
        """A token of `tenant` (default platform) with these scopes, made by the house unless a maker is named."""
        token, secret = create_token(
            tenant or self.platform,
            name="ci",
            scopes=scopes,
            actor=maker.actor if maker else SYSTEM,
        )
        return Bearer(token, secret)


@cache
def _hashed() -> str:
    """Hashing is slow on purpose; once for each run is enough."""
    return make_password(PASSWORD)


def person(name: str, *, is_superuser: bool = False) -> Person:
    """An account that may log in with PASSWORD."""
    return Person(User.objects.create(username=name, password=_hashed(), is_superuser=is_superuser))


def make_cast() -> Cast:
    """Ada operates platform, Ben views it, Ida is its admin, Cleo is admin of a strange tenant, Root is superuser."""
    platform, acme, strange = (
        Tenant.objects.get_or_create(slug=slug, defaults={"name": slug.capitalize()})[0]
        for slug in ("platform", "acme", "strange")
    )
    cast = Cast(
        platform=platform,
        acme=acme,
        strange=strange,
        ada=person("ada"),
        ben=person("ben"),
        ida=person("ida"),
        cleo=person("cleo"),
        root=person("root", is_superuser=True),
    )
    for tenant, member, role in (
        (platform, cast.ada, Role.OPERATOR),
        (platform, cast.ben, Role.VIEWER),
        (platform, cast.ida, Role.ADMIN),
        (strange, cast.cleo, Role.ADMIN),
    ):
        Membership.objects.create(tenant=tenant, user=member.user, role=role)
    return cast


@pytest.fixture
def cast(db: None) -> Cast:
    return make_cast()
