"""Changes of tenants, members and quotas: who may, what is refused by field, what the audit row says."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import transaction

from console.audit.models import Entry
from console.kit import events
from console.kit.errors import Conflict, Forbidden, Invalid, NotFound, Stale
from console.tenants import actions
from console.tenants.models import Membership, Quota, Role
from tests import factories
from tests.cast import Cast


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What the listeners of `identity` heard."""
    heard: list[str] = []
    monkeypatch.setitem(events._listeners, "identity", [lambda: heard.append("identity")])
    yield heard


def test_only_a_superuser_makes_tenants(cast: Cast) -> None:
    made = actions.create_tenant("hooli", name="Hooli", actor=cast.root.actor, reason="signed")
    assert (made.slug, made.weight, made.fail_mode) == ("hooli", 1, "open")
    entry = Entry.objects.get(verb="tenant.create")
    assert (entry.actor, entry.target, entry.tenant, entry.reason) == (
        "user:root",
        "tenant:hooli",
        "hooli",
        "signed",
    )
    assert entry.topics == ["tenants", "tenant:hooli", "activity"]
    with pytest.raises(Forbidden):
        actions.create_tenant("mine", actor=cast.ida.actor)


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"slug": "Not A Slug"}, "slug"),
        ({"slug": "UPPER"}, "slug"),
        ({"slug": "x" * 64}, "slug"),
        ({"slug": "ok", "weight": 0}, "weight"),
        ({"slug": "ok", "weight": 101}, "weight"),
        ({"slug": "ok", "weight": True}, "weight"),
        ({"slug": "ok", "fail_mode": "ajar"}, "fail_mode"),
        ({"slug": "ok", "name": "n" * 121}, "name"),
    ],
)
def test_a_wrong_tenant_is_refused_by_field(cast: Cast, wrong: dict[str, Any], field: str) -> None:
    slug = wrong.pop("slug")
    with pytest.raises(Invalid) as refused:
        actions.create_tenant(slug, **wrong, actor=cast.root.actor)
    assert list(refused.value.fields) == [field]


def test_a_slug_is_taken_once(cast: Cast) -> None:
    with pytest.raises(Conflict) as refused:
        actions.create_tenant("acme", actor=cast.root.actor)
    assert refused.value.code == "taken"


def test_an_edit_is_conditional_on_the_revision(cast: Cast) -> None:
    ida = cast.ida.actor
    tenant = actions.edit_tenant(cast.platform, {"weight": 3}, actor=ida, expected_revision=1)
    assert (tenant.weight, tenant.revision) == (3, 2)
    with pytest.raises(Stale) as refused:
        actions.edit_tenant(cast.platform, {"weight": 4}, actor=ida, expected_revision=1)
    assert "2" in refused.value.fields["If-Match"]
    entry: Any = Entry.objects.get(verb="tenant.edit")
    assert (entry.before["weight"], entry.after["weight"]) == (1, 3)


def test_an_edit_that_changes_nothing_writes_nothing(cast: Cast) -> None:
    actions.edit_tenant(cast.platform, {"weight": 1}, actor=cast.ida.actor)
    assert not Entry.objects.exists()


def test_operators_do_not_edit_and_strangers_do_not_see(cast: Cast) -> None:
    with pytest.raises(Forbidden):
        actions.edit_tenant(cast.platform, {"weight": 2}, actor=cast.ada.actor)
    with pytest.raises(NotFound):
        actions.edit_tenant(cast.platform, {"weight": 2}, actor=cast.cleo.actor)


def test_members_come_change_and_go(cast: Cast) -> None:
    ida = cast.ida.actor
    member = actions.add_member(cast.platform, "cleo", "viewer", actor=ida)
    actions.change_member(member, "operator", actor=ida)
    actions.remove_member(member, actor=ida, reason="left")
    verbs = list(Entry.objects.order_by("id").values_list("verb", "target"))
    assert verbs == [(f"member.{verb}", "member:platform/cleo") for verb in ("add", "change", "remove")]
    assert not Membership.objects.filter(tenant=cast.platform, user=cast.cleo.user).exists()
    with pytest.raises(NotFound):
        actions.remove_member(member, actor=ida)


@pytest.mark.parametrize(
    ("username", "role", "field"), [("nobody", "viewer", "username"), ("cleo", "captain", "role")]
)
def test_a_wrong_member_is_refused_by_field(cast: Cast, username: str, role: str, field: str) -> None:
    with pytest.raises(Invalid) as refused:
        actions.add_member(cast.platform, username, role, actor=cast.ida.actor)
    assert list(refused.value.fields) == [field]


def test_nobody_joins_twice(cast: Cast) -> None:
    with pytest.raises(Conflict):
        actions.add_member(cast.platform, "ben", "admin", actor=cast.ida.actor)


def test_the_last_admin_stays_until_a_superuser_says_otherwise(cast: Cast) -> None:
    ida = Membership.objects.get(tenant=cast.platform, user=cast.ida.user)
    for change in (
        lambda: actions.remove_member(ida, actor=cast.ida.actor),
        lambda: actions.change_member(ida, Role.VIEWER, actor=cast.ida.actor),
    ):
        with pytest.raises(Conflict) as refused:
            change()
        assert refused.value.code == "last_admin"
    actions.remove_member(ida, actor=cast.root.actor)


def test_leaving_is_previewed_with_the_tokens_that_end(cast: Cast) -> None:
    cast.token("read", maker=cast.ada)
    cast.token("infer", maker=cast.ada)
    ada = Membership.objects.get(tenant=cast.platform, user=cast.ada.user)
    preview = actions.preview_remove_member(ada, actor=cast.ida.actor)
    assert preview.affected == ("user:ada", "token:ci")
    assert "1 REST token(s)" in preview.sentence


def test_accounts_are_made_by_superusers_with_a_password_worth_the_name(cast: Cast) -> None:
    made = actions.create_user("dora", "a-long-enough-phrase", actor=cast.root.actor)
    assert made.check_password("a-long-enough-phrase")
    assert "a-long-enough-phrase" not in str(list(Entry.objects.values()))
    with pytest.raises(Invalid) as refused:
        actions.create_user("emil", "12345", actor=cast.root.actor)
    assert list(refused.value.fields) == ["password"]
    with pytest.raises(Invalid) as refused:
        actions.create_user("not a name!", "a-long-enough-phrase", actor=cast.root.actor)
    assert list(refused.value.fields) == ["username"]
    with pytest.raises(Conflict):
        actions.create_user("dora", "a-long-enough-phrase", actor=cast.root.actor)
    with pytest.raises(Forbidden):
        actions.create_user("fritz", "a-long-enough-phrase", actor=cast.ida.actor)


# Quotas


def test_the_owner_of_a_service_grants_it_with_absolute_limits(cast: Cast) -> None:
    factories.service("file-type", owner=cast.platform)
    ida = cast.ida.actor
    quota = actions.set_quota(cast.acme, "file-type", requests_per_second=50, burst=100, actor=ida)
    assert (quota.requests_per_second, quota.burst, quota.concurrency, quota.revision) == (50, 100, None, 1)
    quota = actions.set_quota(cast.acme, "file-type", requests_per_second=80, concurrency=4, actor=ida)
    assert (quota.requests_per_second, quota.burst, quota.concurrency, quota.revision) == (80, None, 4, 2)
    actions.set_quota(cast.acme, "file-type", requests_per_second=80, concurrency=4, actor=ida)
    entries = list(Entry.objects.filter(verb="quota.set"))
    assert len(entries) == 2
    assert entries[0].topics == [
        "tenant:acme",
        "service:file-type",
        "activity",
    ]


@pytest.mark.parametrize(
    ("limits", "field"),
    [
        ({"requests_per_second": 0}, "requests_per_second"),
        ({"requests_per_second": -1}, "requests_per_second"),
        ({"requests_per_second": float("inf")}, "requests_per_second"),
        ({"requests_per_second": float("nan")}, "requests_per_second"),
        ({"requests_per_second": 1, "burst": 0}, "burst"),
        ({"burst": 5}, "burst"),
        ({"concurrency": 0}, "concurrency"),
        ({"concurrency": 2**31}, "concurrency"),
    ],
)
def test_wrong_limits_are_refused_by_field(cast: Cast, limits: dict[str, Any], field: str) -> None:
    factories.service("file-type", owner=cast.platform)
    with pytest.raises(Invalid) as refused:
        actions.set_quota(cast.acme, "file-type", **limits, actor=cast.ida.actor)
    assert list(refused.value.fields) == [field]


def test_a_tenant_cannot_widen_its_own_limits(cast: Cast) -> None:
    factories.service("file-type", owner=cast.platform)
    cleo = cast.cleo.actor
    with pytest.raises(NotFound):  # she does not even see the service
        actions.set_quota(cast.strange, "file-type", actor=cleo)
    quota = factories.quota(cast.strange, on="file-type", requests_per_second=1)
    with pytest.raises(Forbidden):  # now she sees it, and her limits
        actions.set_quota(cast.strange, "file-type", actor=cleo)
    with pytest.raises(Forbidden):
        actions.remove_quota(quota, actor=cleo, reason="more!")
    with pytest.raises(Forbidden):
        actions.set_quota(cast.acme, "file-type", actor=cast.ada.actor)


def test_a_quota_needs_a_service_that_exists(cast: Cast) -> None:
    with pytest.raises(NotFound) as refused:
        actions.set_quota(cast.acme, "ghost", actor=cast.root.actor)
    assert list(refused.value.fields) == ["service"]


def test_taking_a_grant_away_needs_a_reason_and_says_who_is_cut_off(cast: Cast) -> None:
    factories.service("file-type", owner=cast.platform)
    quota = factories.quota(cast.acme, on="file-type", requests_per_second=1)
    cast.token("infer", tenant=cast.acme)
    cast.token("read", tenant=cast.acme)
    preview = actions.preview_remove_quota(quota, actor=cast.ida.actor)
    assert preview.affected == ("token:acme/ci",)
    assert "1 active key(s) are refused" in preview.sentence
    with pytest.raises(Invalid) as refused:
        actions.remove_quota(quota, actor=cast.ida.actor, reason="  ")
    assert list(refused.value.fields) == ["reason"]
    with pytest.raises(Stale):
        actions.remove_quota(quota, actor=cast.ida.actor, reason="unpaid", expected_revision=7)
    actions.remove_quota(quota, actor=cast.ida.actor, reason="unpaid", expected_revision=1)
    assert not Quota.objects.exists()
    assert Entry.objects.get(verb="quota.remove").reason == "unpaid"


# The rest of the house


@pytest.mark.django_db(transaction=True)
def test_every_change_is_told_after_its_commit_and_not_when_it_fails(told: list[str]) -> None:
    from tests.cast import make_cast

    cast = make_cast()
    told.clear()
    with transaction.atomic():
        actions.edit_tenant(cast.platform, {"weight": 3}, actor=cast.ida.actor)
        assert told == []
    assert told == ["identity"]
    with pytest.raises(RuntimeError), transaction.atomic():
        actions.edit_tenant(cast.platform, {"weight": 4}, actor=cast.ida.actor)
        raise RuntimeError
    assert told == ["identity"]
    assert Entry.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_listener_that_fails_does_not_undo_the_change(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.cast import make_cast

    cast = make_cast()

    def broken() -> None:
        raise RuntimeError("no snapshot today")

    monkeypatch.setitem(events._listeners, "identity", [broken])
    assert actions.edit_tenant(cast.platform, {"weight": 3}, actor=cast.ida.actor).weight == 3
