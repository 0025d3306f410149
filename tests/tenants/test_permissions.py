"""The permission matrix: each verb against each role, each kind of stranger and each token scope."""

import pytest

from console.kit.errors import Forbidden, NotFound
from console.tenants.models import Membership, Role, Tenant
from console.tenants.permissions import (
    ANONYMOUS,
    SYSTEM,
    VERBS,
    Actor,
    Scope,
    may,
    of_user,
    process,
    require,
    visible_tenants,
)
from tests.cast import Cast

HERE, ELSEWHERE = 1, 2
RANK = [Role.VIEWER, Role.OPERATOR, Role.ADMIN]

# Written out once more by hand, so that a slip in the product's own table is seen.
VIEWERS = {
    "tenant.view",
    "member.view",
    "token.view",
    "quota.view",
    "audit.view",
    "service.view",
    "service.try",
    "version.view",
    "rollout.view",
    "strategy.view",
    "loadtest.view",
    "node.view",
    "replica.view",
}
ADMINS = {
    "tenant.create",
    "tenant.edit",
    "member.edit",
    "user.create",
    "quota.edit",
    "service.delete",
}
SCOPE_OF = {
    "tenant": Scope.TENANTS,
    "member": Scope.TENANTS,
    "user": Scope.TENANTS,
    "token": Scope.TENANTS,
    "quota": Scope.TENANTS,
    "service": Scope.MODELS,
    "version": Scope.MODELS,
    "alias": Scope.MODELS,
    "placement": Scope.ROLLOUTS,
    "rollout": Scope.ROLLOUTS,
    "strategy": Scope.ROLLOUTS,
    "loadtest": Scope.LOADTESTS,
    "node": Scope.NODES,
    "replica": Scope.NODES,
}


def least_role(verb: str) -> Role:
    return Role.VIEWER if verb in VIEWERS else Role.ADMIN if verb in ADMINS else Role.OPERATOR


def member(role: Role, *scopes: str) -> Actor:
    return Actor(name="user:x", roles={HERE: role}, scopes=frozenset(scopes) if scopes else None)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("role", RANK)
def test_a_member_may_what_the_role_allows_and_only_at_home(verb: str, role: Role) -> None:
    allowed = RANK.index(role) >= RANK.index(least_role(verb))
    assert may(member(role), verb, HERE) is allowed
    assert not may(member(role), verb, ELSEWHERE)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("role", RANK)
def test_what_is_refused_at_home_is_forbidden_and_elsewhere_not_found(verb: str, role: Role) -> None:
    if not may(member(role), verb, HERE):
        with pytest.raises(Forbidden) as refused:
            require(member(role), verb, HERE)
        assert least_role(verb) in refused.value.detail
    with pytest.raises(NotFound):
        require(member(role), verb, ELSEWHERE)
    with pytest.raises(Forbidden):
        require(member(role), verb, ELSEWHERE, visible=True)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("scope", [s for s in Scope if s is not Scope.EVERY_TENANT])
def test_a_token_needs_the_scope_besides_the_role(verb: str, scope: Scope) -> None:
    needed = Scope.READ if verb in VIEWERS else SCOPE_OF[verb.partition(".")[0]]
    reads = needed is Scope.READ and scope is not Scope.INFER
    assert may(member(Role.ADMIN, scope), verb, HERE) is (reads or scope == needed)
    if not (reads or scope == needed):
        with pytest.raises(Forbidden) as refused:
            require(member(Role.ADMIN, scope), verb, HERE)
        assert refused.value.code == "scope_missing"


@pytest.mark.parametrize("verb", VERBS)
def test_a_scope_never_lends_a_role(verb: str) -> None:
    everything = frozenset(scope for scope in Scope if scope is not Scope.EVERY_TENANT)
    viewer = Actor(name="token:x", roles={HERE: Role.VIEWER}, scopes=everything)
    assert may(viewer, verb, HERE) is (least_role(verb) is Role.VIEWER)


@pytest.mark.parametrize("verb", VERBS)
def test_superusers_and_the_system_may_everything_and_nobody_nothing(verb: str) -> None:
    for actor in (Actor(name="user:root", is_superuser=True), SYSTEM, process("rollout:42")):
        assert may(actor, verb, HERE)
        assert may(actor, verb, None)
    assert not may(ANONYMOUS, verb, HERE)
    assert not may(ANONYMOUS, verb, None)


@pytest.mark.parametrize("verb", VERBS)
def test_the_house_itself_is_seen_by_members_and_changed_by_superusers(verb: str) -> None:
    seen = verb in VIEWERS - {"service.try"}
    assert may(member(Role.ADMIN), verb, None) is seen
    if not seen:
        with pytest.raises(Forbidden):
            require(member(Role.ADMIN), verb, None)


def test_a_verb_that_is_not_in_the_table_is_a_programmers_error() -> None:
    with pytest.raises(LookupError, match=r"rollout\.explode"):
        may(SYSTEM, "rollout.explode", HERE)


def test_an_actor_knows_each_of_its_roles(cast: Cast) -> None:
    Membership.objects.create(tenant=cast.acme, user=cast.ada.user, role=Role.VIEWER)
    ada = of_user(cast.ada.user)
    assert ada.name == "user:ada"
    assert ada.role_in(cast.platform) is Role.OPERATOR
    assert ada.role_in(cast.acme) is Role.VIEWER
    assert ada.role_in(cast.strange) is None
    assert set(visible_tenants(ada)) == {cast.platform, cast.acme}
    assert set(visible_tenants(cast.root.actor)) == set(Tenant.objects.all())


def test_a_deactivated_person_is_nobody(cast: Cast) -> None:
    cast.ada.user.is_active = False
    assert of_user(cast.ada.user) is ANONYMOUS


def test_a_token_never_may_more_than_its_maker_may_now(cast: Cast) -> None:
    token = cast.token("models:write", maker=cast.ada)
    assert may(token.actor, "version.register", cast.platform)
    Membership.objects.filter(user=cast.ada.user).update(role=Role.VIEWER)
    token.token.refresh_from_db()
    assert not may(token.actor, "version.register", cast.platform)
    assert may(token.actor, "version.view", cast.platform)


def test_a_token_for_every_tenant_ends_with_its_makers_rank(cast: Cast) -> None:
    token = cast.token("read", "tenants:all", maker=cast.root)
    assert may(token.actor, "service.view", cast.strange)
    assert not may(token.actor, "service.register", cast.strange)
    cast.root.user.is_superuser = False
    cast.root.user.save()
    token.token.refresh_from_db()
    assert not may(token.actor, "service.view", cast.strange)
