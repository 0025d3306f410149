"""The frame around every page: signing in, tenants, theme, rail, Jump, errors, and what the browser may load."""

from typing import Any

import pytest
from django.test import Client

from console.tenants.models import Membership, Role
from console.ui.models import Preference
from inference.models import Version
from tests import factories
from tests.cast import PASSWORD, Cast

pytestmark = pytest.mark.django_db

HTMX = {"HX-Request": "true"}


def test_pages_ask_a_stranger_to_sign_in_and_remember_the_way() -> None:
    answer = Client().get("/rollouts?state=paused")
    assert (answer.status_code, answer["Location"]) == (302, "/login?next=%2Frollouts%3Fstate%3Dpaused")


def test_a_fragment_sends_the_whole_page_to_sign_in() -> None:
    answer = Client().get("/?part=needs", headers={**HTMX, "HX-Current-URL": "http://testserver/rollouts/4"})
    assert (answer.status_code, answer["HX-Redirect"]) == (401, "/login?next=%2Frollouts%2F4")


def test_login_says_when_to_try_again(cast: Cast) -> None:
    for _ in range(5):
        Client().post("/login", {"username": "ada", "password": "wrong"})
    answer = Client().post("/login", {"username": "ada", "password": PASSWORD})
    assert answer.status_code == 429
    assert "Try again in 15 min" in answer.content.decode()


def test_login_goes_to_no_other_site(cast: Cast) -> None:
    answer = Client().post("/login?next=//evil.example/", {"username": "ada", "password": PASSWORD})
    assert answer["Location"] == "/"


def test_every_page_carries_a_policy_that_forbids_inline_script_and_style(cast: Cast) -> None:
    answer = cast.ada.pages().get("/")
    policy = answer["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
    assert "no-store" in answer["Cache-Control"]


def test_nothing_in_the_templates_would_break_the_policy() -> None:
    import re
    from pathlib import Path

    templates = Path(__file__).resolve().parents[2] / "templates"
    forbidden = re.compile(r"<script(?![^>]*\bsrc=)|\sstyle=|\son[a-z]+=|javascript:|hx-on|<style")
    found = [
        f"{path.name}: {match.group()}"
        for path in templates.rglob("*.html")
        for match in forbidden.finditer(path.read_text(encoding="utf-8"))
    ]
    assert not found


def test_a_missing_page_and_one_of_another_tenant_look_the_same(cast: Cast) -> None:
    factories.stable(1)
    cleo = cast.cleo.pages()
    missing, foreign = cleo.get("/services/nothing"), cleo.get("/services/file-type")
    assert (missing.status_code, foreign.status_code) == (404, 404)
    assert "There is no such page" in foreign.content.decode()


def test_a_refusal_says_which_role_it_needs(cast: Cast) -> None:
    answer = cast.ben.pages().get("/settings/tenants/platform/tokens/new")
    assert answer.status_code == 403
    assert "needs the role operator; yours is viewer" in answer.content.decode()


def test_the_chosen_tenant_narrows_lists_and_is_forgotten_with_the_membership(cast: Cast) -> None:
    factories.stable(1)
    factories.stable(1, of=factories.service("acme-own", owner="acme"))
    membership = Membership.objects.create(tenant=cast.acme, user=cast.ada.user, role=Role.VIEWER)
    ada = cast.ada.pages()
    assert _names(ada) == {"file-type", "acme-own"}
    ada.post("/tenant", {"tenant": "acme", "next": "/services"})
    assert _names(ada) == {"acme-own"}
    assert ada.get("/services/file-type").status_code == 200  # it narrows lists, not rights
    membership.delete()
    assert _names(ada) == {"file-type"}


def test_nobody_chooses_a_foreign_tenant(cast: Cast) -> None:
    ada = cast.ada.pages()
    ada.post("/tenant", {"tenant": "strange"})
    assert "tenant" not in ada.session


def _names(client: Client) -> set[str]:
    return {line.service.name for line in client.get("/services").context["lines"]}


def test_theme_and_density_come_with_the_page(cast: Cast) -> None:
    ada = cast.ada.pages()
    assert 'data-theme="system"' in ada.get("/").content.decode()
    ada.post("/theme", {"theme": "dark"}, headers=HTMX)
    ada.post("/settings/preferences", {"theme": "dark", "density": "compact"})
    page = ada.get("/").content.decode()
    assert 'data-theme="dark" data-density="compact"' in page
    assert "data-keys" not in page.partition("<head>")[0]  # the box of single letters was left empty
    assert Preference.objects.get().user == cast.ada.user


def test_the_rail_counts_only_where_attention_is_owed(cast: Cast) -> None:
    factories.rollout(state="paused", reason="inconclusive", paused_at=None, message="p95 71 ms is unclear")
    factories.replica(Version.objects.get(number=1))
    frame = cast.ben.pages().get("/rail").context["frame"]
    assert {line.key: line.count for line in frame.rail if line.count} == {"rollouts": 1}
    assert frame.worst == "warn"
    assert [line.key for line in frame.rail] == [
        "overview",
        "services",
        "rollouts",
        "loadtests",
        "activity",
        "nodes",
        "settings",
    ]


def test_the_rail_costs_few_queries(cast: Cast, django_assert_max_num_queries: Any) -> None:
    for number in range(12):
        version = factories.stable(1, of=f"service-{number}")
        factories.replica(version)
    ada = cast.ada.pages()
    with django_assert_max_num_queries(16):
        ada.get("/rail")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("file", "file-type"),
        ("abort file", "abort rollout"),
        ("try file", "try file-type"),
        ("nodes", "Nodes"),
        ("zzz", "Nothing matches"),
    ],
)
def test_jump_finds_things_and_verbs(cast: Cast, text: str, found: str) -> None:
    factories.rollout()
    assert found in cast.ada.pages().get("/jump", {"q": text}, headers=HTMX).content.decode()


def test_jump_offers_no_verb_that_the_reader_may_not(cast: Cast) -> None:
    factories.rollout()
    assert (
        "abort"
        not in cast.ben.pages()
        .get("/jump", {"q": "abort file"}, headers=HTMX)
        .content.decode()
        .split("<q>")[0]
    )
    assert "file-type" not in cast.cleo.pages().get("/jump", {"q": "file"}, headers=HTMX).content.decode()


def test_patterns_show_every_role(cast: Cast) -> None:
    page = cast.ben.pages().get("/patterns").content.decode()
    for role in ("ok", "busy", "warn", "fail", "idle", "chaos", "unknown"):
        assert f'class="state" data-role="{role}"' in page


def test_the_failure_page_needs_no_database(settings: object) -> None:
    from django.test import RequestFactory

    from console.kit.pages import failed

    answer = failed(RequestFactory().get("/"))
    assert answer.status_code == 500
    assert "Inference goes on" in answer.content.decode()
