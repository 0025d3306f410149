"""REST of tenants, members, tokens, quotas and audit, as a client sees it."""

from typing import Any

import pytest
from django.test.utils import CaptureQueriesContext

from console.audit import log as audit
from console.audit.models import Entry
from console.tenants.models import Membership, Quota, Tenant, Token
from tests import factories
from tests.cast import Cast

API = "/api/v1"


@pytest.fixture(autouse=True)
def _service(cast: Cast) -> None:
    factories.service("file-type", owner=cast.platform)


def test_ada_ben_and_cleo(cast: Cast) -> None:
    """The three answers of the house: may, may look, does not exist."""
    for who, look, change in (
        (cast.ida, 200, 200),
        (cast.ben, 200, 403),
        (cast.cleo, 404, 404),
    ):
        api = who.api()
        assert api.get(f"{API}/tenants/platform").status_code == look
        answer = api.patch(f"{API}/tenants/platform", {"name": "P"}, format="json")
        assert answer.status_code == change, answer.content


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("get", "tenants/platform"),
        ("patch", "tenants/platform"),
        ("get", "tenants/platform/members"),
        ("post", "tenants/platform/members"),
        ("patch", "tenants/platform/members/ben"),
        ("delete", "tenants/platform/members/ben"),
        ("get", "tokens/{token}"),
        ("post", "tokens/{token}/revoke"),
        ("post", "tokens/{token}/rotate"),
        ("get", "quotas/acme/file-type"),
        ("delete", "quotas/acme/file-type?reason=x"),
        ("delete", "quotas/acme/file-type?dry_run=true"),
    ],
)
def test_what_is_foreign_does_not_exist(cast: Cast, method: str, path: str) -> None:
    token = cast.token("read").token
    factories.quota(cast.acme, requests_per_second=1)
    path = f"{API}/{path.format(token=token.pk)}"
    foreign = getattr(cast.cleo.api(), method)(path, {}, format="json")
    assert foreign.status_code == 404
    known = getattr(cast.ida.api(), method)(path, {}, format="json")
    assert known.status_code != 404
    before = Entry.objects.count()
    assert foreign.json()["code"] == "not_found"
    assert Entry.objects.count() == before


def test_without_a_token_or_session_nothing_is_told(cast: Cast) -> None:
    from rest_framework.test import APIClient

    for path in ("me", "tenants", "tokens", "quotas", "audit"):
        answer = APIClient().get(f"{API}/{path}")
        assert (answer.status_code, answer.json()["code"]) == (401, "not_authenticated")


def test_a_session_needs_the_csrf_token_to_write(cast: Cast) -> None:
    from rest_framework.test import APIClient

    client = APIClient(enforce_csrf_checks=True)
    client.force_login(cast.ida.user)
    answer = client.patch(f"{API}/tenants/platform", {"name": "P"}, format="json")
    assert (answer.status_code, answer.json()["code"]) == (403, "csrf")


def test_lists_hold_what_the_caller_may_see(cast: Cast) -> None:
    cast.token("read")
    factories.quota(cast.acme, requests_per_second=1)
    factories.quota(cast.strange, requests_per_second=1)

    def seen(who: Any, path: str) -> list[Any]:
        return list(who.api().get(f"{API}/{path}").json()["results"])

    assert [row["slug"] for row in seen(cast.root, "tenants")] == ["acme", "platform", "strange"]
    assert [row["slug"] for row in seen(cast.ben, "tenants")] == ["platform"]
    assert len(seen(cast.ben, "tokens")) == 1
    assert seen(cast.cleo, "tokens") == []
    assert {row["tenant"] for row in seen(cast.ben, "quotas")} == {"acme", "strange"}
    assert {row["tenant"] for row in seen(cast.cleo, "quotas")} == {"strange"}
    assert {row["tenant"] for row in seen(cast.ben, "quotas?tenant=acme&service=file-type")} == {"acme"}


def test_tenants_are_made_and_edited_with_etags(cast: Cast) -> None:
    api = cast.root.api()
    made = api.post(f"{API}/tenants", {"slug": "hooli", "weight": 2}, format="json")
    assert (made.status_code, made["ETag"]) == (201, '"1"')
    body = made.json()
    assert body.pop("created_at")
    assert body == {"slug": "hooli", "name": "hooli", "weight": 2, "fail_mode": "open", "revision": 1}
    path = f"{API}/tenants/hooli"
    edited = api.patch(path, {"weight": 3}, format="json", HTTP_IF_MATCH='"1"')
    assert (edited.status_code, edited["ETag"]) == (200, '"2"')
    lost = api.patch(path, {"weight": 4}, format="json", HTTP_IF_MATCH='"1"')
    assert (lost.status_code, lost.json()["code"]) == (409, "stale")
    assert Tenant.objects.get(slug="hooli").weight == 3
    for empty in ("", '""'):
        answer = api.patch(path, {"weight": 4}, format="json", HTTP_IF_MATCH=empty)
        assert (answer.status_code, answer.json()["code"]) == (409, "stale")
        assert "names no revision" in answer.json()["detail"]
    wrong = api.patch(path, {"weight": 4}, format="json", HTTP_IF_MATCH="three")
    assert (wrong.status_code, list(wrong.json()["fields"])) == (400, ["If-Match"])


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({}, {"slug"}),
        ({"slug": 7}, {"slug"}),
        ({"slug": "ok", "wieght": 3}, {"wieght"}),
        ({"slug": "ok", "weight": "3", "colour": 1}, {"weight", "colour"}),
        ({"slug": "ok", "weight": True}, {"weight"}),
        ({"slug": "ok", "weight": 1.5}, {"weight"}),
        ({"slug": "ok", "weight": 10**400}, {"weight"}),
        ({"slug": "ok", "name": None}, {"name"}),
        ({"slug": "ok\u0000"}, {"slug"}),
        ({"slug": "ok", "name": "\ud800"}, {"name"}),
    ],
)
def test_a_wrong_body_is_refused_by_field(cast: Cast, body: dict[str, Any], fields: set[str]) -> None:
    import json

    answer = cast.root.api().generic(
        "POST", f"{API}/tenants", json.dumps(body), content_type="application/json"
    )
    assert answer.status_code == 400
    assert set(answer.json()["fields"]) == fields, answer.json()


def test_members_by_rest(cast: Cast) -> None:
    api, path = cast.ida.api(), f"{API}/tenants/platform/members"
    made = api.post(path, {"username": "cleo", "role": "viewer"}, format="json")
    assert (made.status_code, made.json()) == (201, {"username": "cleo", "role": "viewer"})
    changed = api.patch(f"{path}/cleo", {"role": "operator"}, format="json")
    assert changed.json()["role"] == "operator"
    preview = api.delete(f"{path}/cleo?dry_run=true")
    assert preview.json()["dry_run"] is True
    assert Membership.objects.filter(tenant=cast.platform, user=cast.cleo.user).exists()
    assert api.delete(f"{path}/cleo?reason=moved").status_code == 204
    assert api.delete(f"{path}/cleo").status_code == 404
    assert Entry.objects.get(verb="member.remove").reason == "moved"
    assert len(api.get(path).json()["results"]) == 3


def test_tokens_by_rest_show_the_secret_once(cast: Cast) -> None:
    api = cast.ada.api()
    made = api.post(
        f"{API}/tokens", {"tenant": "platform", "name": "ci", "scopes": ["read"]}, format="json"
    ).json()
    assert made["secret"].startswith("pht_")
    assert (made["kind"], made["state"], made["created_by"]) == ("rest", "active", "user:ada")
    shown = api.get(f"{API}/tokens/{made['id']}").json()
    assert "secret" not in shown
    rotated = api.post(f"{API}/tokens/{made['id']}/rotate", {"grace_seconds": 0}, format="json")
    assert rotated.status_code == 201
    assert rotated.json()["secret"] != made["secret"]
    assert api.get(f"{API}/tokens?state=expired").json()["results"][0]["id"] == made["id"]
    preview = api.post(f"{API}/tokens/{rotated.json()['id']}/revoke?dry_run=true", {}, format="json")
    assert preview.json()["affected"] == ["token:ci"]
    assert Token.objects.active().count() == 1
    api.post(f"{API}/tokens/{rotated.json()['id']}/revoke", {"reason": "done"}, format="json")
    assert Token.objects.active().count() == 0
    assert api.get(f"{API}/tokens?state=asleep").json()["fields"].keys() == {"state"}


def test_a_token_for_a_tenant_that_is_not_seen_is_refused_like_an_unknown_one(cast: Cast) -> None:
    for slug in ("strange", "nowhere"):
        answer = cast.ada.api().post(
            f"{API}/tokens", {"tenant": slug, "name": "x", "scopes": ["read"]}, format="json"
        )
        assert (answer.status_code, answer.json()["fields"]) == (
            400,
            {"tenant": "there is no such tenant"},
        )


def test_quotas_by_rest(cast: Cast) -> None:
    api, path = cast.ida.api(), f"{API}/quotas/acme/file-type"
    body = {"tenant": "acme", "service": "file-type", "requests_per_second": 5, "burst": 10}
    made = api.post(f"{API}/quotas", body, format="json")
    assert (made.status_code, made["ETag"]) == (201, '"1"')
    again = api.post(f"{API}/quotas", body, format="json")
    assert (again.status_code, again.json()["code"]) == (409, "taken")
    put = api.put(path, {"requests_per_second": 7.5}, format="json", HTTP_IF_MATCH='"1"')
    assert put.json() == {
        "tenant": "acme",
        "service": "file-type",
        "requests_per_second": 7.5,
        "burst": None,
        "concurrency": None,
        "revision": 2,
    }
    assert api.put(path, {}, format="json", HTTP_IF_MATCH='"1"').status_code == 409
    wrong = api.put(path, {"requests_per_second": -1, "burst": 0, "concurrency": 0}, format="json")
    assert set(wrong.json()["fields"]) == {"requests_per_second", "burst", "concurrency"}
    preview = api.delete(f"{path}?dry_run=true")
    assert (preview.json()["revision"], Quota.objects.count()) == (2, 1)
    assert api.delete(path).json()["fields"] == {"reason": "is required"}
    assert api.delete(f"{path}?reason=unpaid").status_code == 204
    assert api.delete(f"{path}?reason=unpaid").status_code == 404
    assert api.get(path).status_code == 404


def test_a_service_that_is_not_seen_is_refused_like_an_unknown_one(cast: Cast) -> None:
    bodies = [
        cast.cleo.api().put(f"{API}/quotas/acme/{service}", {}, format="json").json()
        for service in ("file-type", "ghost-file")
    ]
    for body in bodies:
        body.pop("request_id")
        body["detail"] = body["detail"].replace("file-type", "S").replace("ghost-file", "S")
    assert bodies[0] == bodies[1]
    assert bodies[0]["status"] == 404


def test_whoever_may_not_grant_learns_no_tenant(cast: Cast) -> None:
    for slug in ("acme", "nowhere"):
        answer = cast.cleo.api().put(f"{API}/quotas/{slug}/file-type", {}, format="json")
        assert answer.status_code == 404
        answer = cast.ben.api().put(f"{API}/quotas/{slug}/file-type", {}, format="json")
        assert answer.status_code == 403
    answer = cast.ida.api().put(f"{API}/quotas/nowhere/file-type", {}, format="json")
    assert answer.json()["fields"] == {"tenant": "there is no such tenant"}


def test_a_scope_is_needed_besides_the_role(cast: Cast) -> None:
    reader = cast.token("read").api()
    assert reader.get(f"{API}/quotas").status_code == 200
    answer = reader.put(f"{API}/quotas/acme/file-type", {}, format="json")
    assert (answer.status_code, answer.json()["code"]) == (403, "scope_missing")
    writer = cast.token("tenants:write").api()
    assert writer.put(f"{API}/quotas/acme/file-type", {}, format="json").status_code == 200
    assert writer.get(f"{API}/tenants/strange").status_code == 404
    everywhere = cast.token("read", "tenants:all").api()
    assert everywhere.get(f"{API}/tenants/strange").status_code == 200
    answer = everywhere.patch(f"{API}/tenants/strange", {"weight": 2}, format="json")
    assert answer.json()["code"] == "scope_missing"


def test_dry_run_takes_yes_or_no(cast: Cast) -> None:
    answer = cast.ida.api().delete(f"{API}/tenants/platform/members/ben?dry_run=perhaps")
    assert (answer.status_code, list(answer.json()["fields"])) == (400, ["dry_run"])
    assert Membership.objects.filter(user=cast.ben.user).exists()


# Audit


def test_the_audit_log_is_filtered_and_scoped(cast: Cast) -> None:
    for actor, verb, target, tenant in (
        ("user:ada", "rollout.start", "rollout:1", "platform"),
        ("user:ada", "rollout.abort", "rollout:1", "platform"),
        ("system", "node.silent", "node:n1", ""),
        ("user:cleo", "tenant.edit", "tenant:strange", "strange"),
    ):
        audit.record(actor, verb, target, tenant=tenant)

    def verbs(who: Any, query: str = "") -> list[str]:
        return [row["verb"] for row in who.api().get(f"{API}/audit?{query}").json()["results"]]

    assert verbs(cast.root) == ["tenant.edit", "node.silent", "rollout.abort", "rollout.start"]
    assert verbs(cast.ben) == ["rollout.abort", "rollout.start"]
    assert verbs(cast.cleo) == ["tenant.edit"]
    assert verbs(cast.ben, "verb=rollout.start") == ["rollout.start"]
    assert verbs(cast.root, "verb=rollout.") == ["rollout.abort", "rollout.start"]
    assert verbs(cast.root, "actor=system") == ["node.silent"]
    assert verbs(cast.root, "target=rollout:1&tenant=platform&limit=1") == ["rollout.abort"]
    assert verbs(cast.ben, "tenant=strange") == []
    assert verbs(cast.root, "from=2000-01-01T00:00:00Z&to=2000-01-02") == []
    assert len(verbs(cast.root, "from=2000-01-01T00:00:00+02:00")) == 4
    wrong = cast.root.api().get(f"{API}/audit?from=yesterday")
    assert (wrong.status_code, list(wrong.json()["fields"])) == (400, ["from"])


def test_lists_take_the_same_queries_whatever_their_length(cast: Cast) -> None:
    from django.db import connection

    def queries(path: str) -> int:
        api = cast.ben.api()
        with CaptureQueriesContext(
            connection,
        ) as seen:
            assert api.get(f"{API}/{path}").status_code == 200
        return len(seen)

    paths = ("tenants", "tokens", "quotas", "audit", "tenants/platform/members")
    before = [queries(path) for path in paths]
    for number in range(5):
        cast.token("read")
        factories.quota(cast.acme, on=f"other-{number}")
        factories.service(f"other-{number}", owner=cast.platform)
    assert [queries(path) for path in paths] == before


def test_the_schema_has_no_warnings() -> None:
    from drf_spectacular.drainage import GENERATOR_STATS
    from drf_spectacular.generators import SchemaGenerator

    with GENERATOR_STATS.silence():
        generator: Any = SchemaGenerator
        schema = generator().get_schema(public=True)
    ours = ("/tenants", "/tokens", "/quotas", "/audit", "/me")
    wrong = [*GENERATOR_STATS._warn_cache, *GENERATOR_STATS._error_cache]
    assert [line for line in wrong if "console/tenants" in line] == []
    assert all(any(path.startswith(f"/api/v1{our}") for path in schema["paths"]) for our in ours)
