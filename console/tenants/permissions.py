"""Who may do what: the one permission function. Pages, REST, CLI and controllers all ask here.

A verb needs a role in the tenant that owns the object and, for tokens, a scope. What it may not see is NotFound.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

from django.db.models import Model, QuerySet
from django.http import HttpRequest
from rest_framework.request import Request

from console.kit.errors import Forbidden, NotFound
from console.tenants.models import Membership, Role, Tenant, Token

M = TypeVar("M", bound=Model)


class Scope(StrEnum):
    """What a token may be used for. Any REST scope includes `read`."""

    READ = "read"
    MODELS = "models:write"
    ROLLOUTS = "rollouts:write"
    LOADTESTS = "loadtests:write"
    TENANTS = "tenants:write"
    NODES = "nodes:write"
    INFER = "infer"  # inference only: the secret starts with ph_ and REST refuses it
    EVERY_TENANT = "tenants:all"  # the other scopes reach every tenant; only a superuser hands it out


@dataclass(frozen=True, slots=True)
class Rule:
    """house: with no tenant (nodes, the list of tenants) any member may; otherwise only a superuser."""

    role: Role
    scope: Scope
    house: bool = False


_SEE = Rule(Role.VIEWER, Scope.READ, house=True)
_ROLL = Rule(Role.OPERATOR, Scope.ROLLOUTS)
_MODEL = Rule(Role.OPERATOR, Scope.MODELS)
_LOAD = Rule(Role.OPERATOR, Scope.LOADTESTS)
_NODE = Rule(Role.OPERATOR, Scope.NODES)
_TENANT = Rule(Role.ADMIN, Scope.TENANTS)

VERBS: Mapping[str, Rule] = {
    "tenant.view": _SEE,
    "tenant.create": _TENANT,
    "tenant.edit": _TENANT,
    "member.view": _SEE,
    "member.edit": _TENANT,
    "user.create": _TENANT,
    "token.view": _SEE,
    "token.create": Rule(Role.OPERATOR, Scope.TENANTS),
    "token.revoke": Rule(Role.OPERATOR, Scope.TENANTS),
    "token.rotate": Rule(Role.OPERATOR, Scope.TENANTS),
    "quota.view": _SEE,
    "quota.edit": _TENANT,
    "audit.view": _SEE,
    "service.view": _SEE,
    "service.register": _MODEL,
    "service.edit": _MODEL,
    "service.try": Rule(Role.VIEWER, Scope.READ),
    "service.delete": Rule(Role.ADMIN, Scope.MODELS),
    "version.view": _SEE,
    "version.register": _MODEL,
    "alias.move": _MODEL,
    "placement.edit": _ROLL,
    "rollout.view": _SEE,
    "rollout.start": _ROLL,
    "rollout.pause": _ROLL,
    "rollout.resume": _ROLL,
    "rollout.promote": _ROLL,
    "rollout.skip": _ROLL,
    "rollout.abort": _ROLL,
    "rollout.retry": _ROLL,
    "strategy.view": _SEE,
    "strategy.edit": _ROLL,
    "loadtest.view": _SEE,
    "loadtest.start": _LOAD,
    "loadtest.cancel": _LOAD,
    "node.view": _SEE,
    "node.edit": _NODE,
    "node.drain": _NODE,
    "replica.view": _SEE,
    "replica.restart": _NODE,
}

_KNOWN = "_pilothouse_actor"
_RANK = {Role.VIEWER: 0, Role.OPERATOR: 1, Role.ADMIN: 2}

# What a person must be to hand a scope to a token.
ROLE_FOR_SCOPE: Mapping[Scope, Role] = {
    Scope.READ: Role.VIEWER,
    Scope.MODELS: Role.OPERATOR,
    Scope.ROLLOUTS: Role.OPERATOR,
    Scope.LOADTESTS: Role.OPERATOR,
    Scope.NODES: Role.OPERATOR,
    Scope.INFER: Role.OPERATOR,
    Scope.TENANTS: Role.ADMIN,
    Scope.EVERY_TENANT: Role.ADMIN,
}


@dataclass(frozen=True, slots=True)
class Actor:
    """Whoever acts. scopes None: a person or process, limited by role alone. user_id: also the maker of a token.

    most_weight_percent: of a token that may move a new version only so far before a person has to look.
    """

    name: str
    roles: Mapping[int, Role] = field(default_factory=dict)
    scopes: frozenset[str] | None = None
    is_superuser: bool = False
    user_id: int | None = None
    token_id: int | None = None
    most_weight_percent: int = 100

    def role_in(self, tenant: "Tenant | int") -> Role | None:
        if self.is_superuser:
            return Role.ADMIN
        return self.roles.get(tenant if isinstance(tenant, int) else tenant.pk)

    def holds(self, scope: Scope) -> bool:
        if self.scopes is None:
            return True
        if scope is Scope.READ:
            return bool(self.scopes - {Scope.INFER, Scope.EVERY_TENANT})
        return scope in self.scopes


SYSTEM = Actor(name="system", is_superuser=True)
ANONYMOUS = Actor(name="anonymous")


def process(name: str) -> Actor:
    """A controller or task acting on the house's behalf, such as `rollout:42`; it was allowed when it was started."""
    return Actor(name=name, is_superuser=True)


@dataclass(frozen=True, slots=True)
class TokenBearer:
    """What `request.user` is behind a token: no person, so nothing of Django's own permissions applies."""

    token: Token
    actor: Actor
    is_authenticated: bool = True
    is_active: bool = True
    is_anonymous: bool = False
    pk: None = None

    def get_username(self) -> str:
        return self.actor.name


def actor_of(request: HttpRequest | Request) -> Actor:
    """The actor behind a page or REST request; memberships are read once for each request."""
    user: Any = request.user
    if isinstance(user, TokenBearer):
        return user.actor
    known: Actor | None = vars(request).get(_KNOWN)
    if known is None or known.user_id != user.pk:  # a login changes the user in the middle of a request
        known = vars(request)[_KNOWN] = of_user(user)
    return known


def of_user(user: Any) -> Actor:
    """user: a Django user or AnonymousUser."""
    if not user.is_authenticated or not user.is_active:
        return ANONYMOUS
    roles = {row.tenant_id: Role(row.role) for row in Membership.objects.filter(user_id=user.pk)}
    return Actor(
        name=f"user:{user.get_username()}", roles=roles, is_superuser=user.is_superuser, user_id=user.pk
    )


def of_token(token: Token) -> Actor:
    """A token never may more than its maker may now: who is demoted or removed takes the tokens along.

    Tokens made by the house itself (no maker) stand on their scopes alone.
    """
    maker = token.created_by
    everywhere = Scope.EVERY_TENANT in token.scopes and (maker is None or maker.is_superuser)
    roles: dict[int, Role] = {}
    if maker is None:
        roles = {token.tenant_id: Role.ADMIN}
    elif (role := of_user(maker).role_in(token.tenant_id)) is not None:
        roles = {token.tenant_id: role}
    return Actor(
        name=f"token:{token.name}",
        roles=roles,
        scopes=frozenset(token.scopes),
        is_superuser=everywhere,
        user_id=token.created_by_id,
        token_id=token.pk,
        most_weight_percent=100 if token.most_weight_percent is None else token.most_weight_percent,
    )


def may(actor: Actor, verb: str, tenant: Tenant | int | None) -> bool:
    """Whether the actor may do `verb` on something that belongs to `tenant`; None is the whole house."""
    rule = _rule(verb)
    if not actor.holds(rule.scope):
        return False
    if actor.is_superuser:
        return True
    if tenant is None:
        return rule.house and bool(actor.roles)
    role = actor.role_in(tenant)
    return role is not None and _RANK[role] >= _RANK[rule.role]


def require(actor: Actor, verb: str, tenant: Tenant | int | None, *, visible: bool = False) -> None:
    """Raise unless the actor may. NotFound when the tenant is foreign, so that existence is not told.

    visible: the object may be seen for another reason (a quota row grants the service), so the refusal is Forbidden.
    """
    if may(actor, verb, tenant):
        return
    if tenant is not None and not visible and actor.role_in(tenant) is None:
        raise NotFound("There is no such thing here, or it is not yours to see.")
    raise Forbidden(
        _why_not(actor, verb, tenant), code="scope_missing" if _lacks_scope(actor, verb) else None
    )


def visible_tenants(actor: Actor) -> QuerySet[Tenant]:
    """Every tenant the actor may see."""
    if not actor.holds(Scope.READ):
        return Tenant.objects.none()
    if actor.is_superuser:
        return Tenant.objects.all()
    return Tenant.objects.filter(pk__in=list(actor.roles))


def scoped(actor: Actor, rows: QuerySet[M], tenant_field: str = "tenant") -> QuerySet[M]:
    """Only the rows whose `tenant_field` the actor may see; nothing at all without the scope to read."""
    if not actor.holds(Scope.READ):
        return rows.none()
    if actor.is_superuser:
        return rows
    return rows.filter(**{f"{tenant_field}__in": list(actor.roles)})


def grantable(actor: Actor, scopes: Iterable[str], tenant: Tenant | int) -> dict[str, str]:
    """Why the actor may not hand these scopes to a token: scope -> sentence, empty when all are fine."""
    wrong: dict[str, str] = {}
    role = actor.role_in(tenant)
    for name in scopes:
        if name not in set(Scope):
            wrong[name] = f"unknown; one of {', '.join(sorted(Scope))}"
            continue
        scope = Scope(name)
        if scope is Scope.EVERY_TENANT and not actor.is_superuser:
            wrong[name] = "only a superuser may hand it out"
        elif role is None or _RANK[role] < _RANK[ROLE_FOR_SCOPE[scope]]:
            wrong[name] = f"needs the role {ROLE_FOR_SCOPE[scope]}, yours is {role or 'none'}"
        elif scope is not Scope.INFER and not actor.holds(scope):
            wrong[name] = "the token that asks does not have it itself"
    return wrong


def _rule(verb: str) -> Rule:
    try:
        return VERBS[verb]
    except KeyError:
        raise LookupError(f"verb {verb!r} is missing in console.tenants.permissions.VERBS") from None


def _lacks_scope(actor: Actor, verb: str) -> bool:
    return not actor.holds(_rule(verb).scope)


def _why_not(actor: Actor, verb: str, tenant: Tenant | int | None) -> str:
    rule = _rule(verb)
    if _lacks_scope(actor, verb):
        return f"This token lacks the scope {rule.scope} that {verb} needs."
    if tenant is None:
        return f"{verb} is for superusers."
    role = actor.role_in(tenant)
    return (
        f"{verb} needs the role {rule.role}; yours is {role or 'none'}. An admin of the tenant can change it."
    )
