"""Settings and Activity: tenants, members, tokens shown once, quotas, and the log of all of it."""

import pytest

from console.audit.log import record
from console.tenants.models import Membership, Quota, Tenant, Token
from tests import factories
from tests.cast import Cast

pytestmark = pytest.mark.django_db


def test_a_superuser_makes_a_tenant_and_others_do_not(cast: Cast) -> None:
    typed = {"slug": "fresh", "name": "Fresh", "weight": "2", "fail_mode": "closed"}
    assert cast.ida.pages().post("/settings/tenants/new", typed).status_code == 403
    assert cast.root.pages().post("/settings/tenants/new", typed)["Location"] == "/settings/tenants/fresh"
    assert Tenant.objects.get(slug="fresh").weight == 2


def test_a_wrong_field_has_its_sentence_and_keeps_the_rest(cast: Cast) -> None:
    typed = {"slug": "Not A Slug", "name": "Kept", "weight": "500", "fail_mode": "open"}
    page = cast.root.pages().post("/settings/tenants/new", typed)
    text = page.content.decode()
    assert page.status_code == 422
    assert 'id="id_slug_error"' in text
    assert 'id="id_weight_error"' in text
    assert 'value="Kept"' in text


def test_an_edit_of_an_older_reading_is_refused(cast: Cast) -> None:
    Tenant.objects.filter(slug="platform").update(revision=5)
    typed = {"name": "New", "weight": "1", "fail_mode": "open", "revision": "4"}
    answer = cast.ida.pages().post("/settings/tenants/platform/edit", typed)
    assert answer.status_code == 422
    assert "changed meanwhile" in answer.content.decode()


def test_a_foreign_tenant_is_not_there(cast: Cast) -> None:
    cleo = cast.cleo.pages()
    for path in ("", "/edit", "/members/new", "/tokens/new", "/members/ada/remove"):
        assert cleo.get(f"/settings/tenants/platform{path}").status_code == 404


def test_members_come_and_go_with_a_preview(cast: Cast) -> None:
    ida = cast.ida.pages()
    ida.post("/settings/tenants/platform/members/new", {"username": "cleo", "role": "viewer"})
    assert Membership.objects.filter(user=cast.cleo.user, tenant=cast.platform).exists()
    ida.post("/settings/tenants/platform/members/cleo/change", {"role": "operator"})
    preview = ida.get("/settings/tenants/platform/members/cleo/remove").content.decode()
    assert "loses the role operator in platform" in preview
    ida.post("/settings/tenants/platform/members/cleo/remove", {"reason": "left"})
    assert not Membership.objects.filter(user=cast.cleo.user, tenant=cast.platform).exists()


def test_the_last_admin_stays(cast: Cast) -> None:
    answer = cast.ida.pages().post("/settings/tenants/platform/members/ida/remove", {"reason": "bye"})
    assert answer.status_code == 409
    assert "only admin" in answer.content.decode()


def test_a_secret_is_shown_once(cast: Cast) -> None:
    ida = cast.ida.pages()
    typed = {"name": "ci-main", "scopes": ["rollouts:write"], "days": "90"}
    page = ida.post("/settings/tenants/platform/tokens/new", typed)
    secret = page.context["secret"]
    assert secret in page.content.decode()
    assert secret not in ida.get("/settings/tenants/platform").content.decode()
    assert Token.objects.get().name == "ci-main"


def test_revoking_a_token_asks_for_its_name(cast: Cast) -> None:
    token = cast.token("read").token
    ida = cast.ida.pages()
    url = f"/settings/tenants/platform/tokens/{token.pk}/revoke"
    refused = ida.post(url, {"confirm": "nope", "reason": "old"})
    assert refused.status_code == 422
    assert "Type ci to confirm." in refused.content.decode()
    ida.post(url, {"confirm": "ci", "reason": "old"})
    token.refresh_from_db()
    assert token.is_revoked


def test_a_quota_is_set_by_the_owner_of_the_service_alone(cast: Cast) -> None:
    factories.stable(1)
    typed = {"tenant": "acme", "service": "file-type", "requests_per_second": "50", "burst": "80"}
    assert cast.ada.pages().post("/settings/quotas/new", typed).status_code == 422
    ida = cast.ida.pages()
    assert ida.post("/settings/quotas/new", typed)["Location"] == "/settings/tenants/platform"
    quota = Quota.objects.get()
    assert (quota.tenant.slug, quota.requests_per_second) == ("acme", 50)
    page = ida.get("/settings/tenants/platform").content.decode()
    assert "acme" in page
    url = "/settings/quotas/acme/file-type"
    stale = {"requests_per_second": "10", "revision": str(quota.revision + 3)}
    assert ida.post(f"{url}/edit", stale).status_code == 422
    ida.post(f"{url}/edit", {"requests_per_second": "10", "revision": str(quota.revision)})
    quota.refresh_from_db()
    assert quota.requests_per_second == 10


def test_taking_a_grant_away_needs_the_name_and_a_reason(cast: Cast) -> None:
    factories.stable(1)
    quota = factories.quota("acme")
    ida = cast.ida.pages()
    url = "/settings/quotas/acme/file-type/remove"
    assert "can no longer call file-type" in ida.get(url).content.decode()
    assert ida.post(url, {"confirm": "acme"}).status_code == 422
    ida.post(url, {"confirm": "acme", "reason": "contract ended", "revision": str(quota.revision)})
    assert not Quota.objects.exists()


def test_a_client_sees_its_quota_without_verbs(cast: Cast) -> None:
    factories.stable(1)
    factories.quota("strange", requests_per_second=5)
    page = cast.cleo.pages().get("/settings/tenants/strange").content.decode()
    assert "file-type" in page
    assert "edit-quota" not in page


def test_activity_is_filtered_by_the_address_and_shows_the_difference(cast: Cast) -> None:
    record(
        "user:ada",
        "tenant.edit",
        "tenant:platform",
        tenant="platform",
        before={"weight": 1},
        after={"weight": 3},
    )
    record("token:ci", "rollout.abort", "rollout:7", tenant="platform", reason="too slow")
    ben = cast.ben.pages()
    page = ben.get("/activity?kind=tenant").content.decode()
    assert "<del>1</del>" in page
    assert "<ins>3</ins>" in page
    assert "rollout:7" not in page
    assert "too slow" in ben.get("/activity?q=rollout:7").content.decode()
    assert "No change matches" in ben.get("/activity?actor=nobody").content.decode()


def test_activity_of_another_tenant_is_hidden_whatever_the_filter(cast: Cast) -> None:
    record("user:ada", "tenant.edit", "tenant:platform", tenant="platform", reason="ours alone")
    page = cast.cleo.pages().get("/activity?tenant=platform").content.decode()
    assert "ours alone" not in page


def test_new_changes_are_counted_and_not_swapped_in(cast: Cast) -> None:
    first = record("user:ada", "tenant.edit", "tenant:platform", tenant="platform")
    ben = cast.ben.pages()
    assert f"since={first.pk}" in ben.get("/activity").content.decode()
    assert "hidden" in ben.get(f"/activity?part=news&since={first.pk}").content.decode()
    record("user:ada", "tenant.edit", "tenant:platform", tenant="platform")
    news = ben.get(f"/activity?part=news&since={first.pk}&kind=tenant").content.decode()
    assert "1 new change<" in news
    assert " hidden" not in news


def test_turning_pages_keeps_the_filters(cast: Cast) -> None:
    for number in range(30):
        record("user:ada", "tenant.edit", f"tenant:t{number}", tenant="platform")
    page = cast.ben.pages().get("/activity?kind=tenant").content.decode()
    assert 'href="?kind=tenant&amp;page=2"' in page
