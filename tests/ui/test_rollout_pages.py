"""Rollouts as pages: list, detail, new, and the ladder of their verbs."""

import json
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from console.audit.models import Entry
from console.kit import clock
from rollouts.models import Measurement, Rollout
from tests import factories
from tests.cast import Cast
from tests.ui import scene

pytestmark = pytest.mark.django_db

HTMX = {"HX-Request": "true"}
STEPS: list[dict[str, Any]] = [
    {"setWeight": 10},
    {"analysis": {"gates": [{"name": "errors", "indicator": "error_ratio", "max": 0.02, "count": 3}]}},
    {"setWeight": 100},
]


def running(**fields: Any) -> Rollout:
    return factories.rollout(**{"steps": STEPS, "step_index": 1, "weight_percent": 10, **fields})


def test_the_list_knows_three_kinds_of_empty(cast: Cast) -> None:
    ben = cast.ben.pages()
    assert "No rollout yet." in ben.get("/rollouts").content.decode()
    factories.rollout()
    page = ben.get("/rollouts?state=aborted").content.decode()
    assert "No rollout matches" in page
    assert "state:aborted" in page


def test_the_list_takes_the_same_queries_for_many(cast: Cast, django_assert_max_num_queries: Any) -> None:
    to = factories.version(2, of=factories.stable(1).service)
    for _ in range(30):
        factories.rollout(to, state="promoted")
    ben = cast.ben.pages()
    with django_assert_max_num_queries(22):
        page = ben.get("/rollouts").content.decode()
    assert "1 to 25 of 30 rollouts" in page


def test_the_bar_shows_done_now_and_next_with_the_reason_to_wait(cast: Cast) -> None:
    rollout = running(message="Judging: errors 1 of 3 passed")
    answer = cast.ben.pages().get(f"/rollouts/{rollout.pk}")
    assert [(cell.title, cell.at) for cell in answer.context["cells"]] == [
        ("10 %", "done"),
        ("Judge", "now"),
        ("100 %", "next"),
        ("Promote", "next"),
    ]
    assert "Judging: errors 1 of 3 passed" in answer.content.decode()


def test_a_gate_shows_value_requests_and_limit_in_the_same_unit(cast: Cast) -> None:
    rollout = running(state="aborted", reason="breach")
    Measurement.objects.create(
        rollout=rollout,
        step_index=1,
        gate="errors",
        indicator="error_ratio",
        at=rollout.created_at,
        verdict="fail",
        value=0.31,
        requests=94,
        limit="2.0 %",
        source="embedded",
        query="q",
        detail="error ratio 31.0 % over 94 requests is above the limit 2.0 %",
    )
    (gate,) = cast.ben.pages().get(f"/rollouts/{rollout.pk}").context["gates"]
    assert (gate.role, gate.word, gate.value, gate.n, gate.limit) == ("fail", "fail", "31.0 %", 94, "2.0 %")


def test_a_viewer_sees_no_verbs_and_who_can_help(cast: Cast) -> None:
    rollout = running()
    page = cast.ben.pages().get(f"/rollouts/{rollout.pk}").content.decode()
    assert 'id="verb-' not in page
    assert "need the role operator in platform" in page
    refused = cast.ben.pages().post(f"/rollouts/{rollout.pk}/abort", headers=HTMX)
    assert "needs the role operator" in _told(refused)["toast"]["text"]
    rollout.refresh_from_db()
    assert rollout.state == "progressing"


def test_a_foreign_rollout_is_not_there(cast: Cast) -> None:
    rollout = running()
    cleo = cast.cleo.pages()
    assert cleo.get(f"/rollouts/{rollout.pk}").status_code == 404
    assert cleo.post(f"/rollouts/{rollout.pk}/abort").status_code == 404


@pytest.mark.parametrize("state", ["queued", "progressing", "paused"])
def test_abort_needs_no_question_in_any_unfinished_state(cast: Cast, state: str) -> None:
    rollout = running(state=state)
    told = _told(cast.ada.pages().post(f"/rollouts/{rollout.pk}/abort", headers=HTMX))
    assert told["toast"]["role"] == "ok"
    assert f"rollout:{rollout.pk}" in told
    rollout.refresh_from_db()
    assert rollout.state == "aborted"


def test_pause_offers_its_undo(cast: Cast) -> None:
    rollout = running()
    told = _told(cast.ada.pages().post(f"/rollouts/{rollout.pk}/pause", headers=HTMX))
    assert told["toast"]["undo"] == {"label": "Undo", "url": f"/rollouts/{rollout.pk}/resume"}


def test_a_preview_is_numbers_from_the_server_and_changes_nothing(cast: Cast) -> None:
    rollout = running()
    dialog = cast.ada.pages().get(f"/rollouts/{rollout.pk}/promote", headers=HTMX).context["dialog"]
    assert (dialog.before, dialog.after, dialog.revision) == ("10 %", "100 %", rollout.revision)
    assert "2 steps with their gates are skipped" in dialog.sentence
    assert f"/api/v1/rollouts/{rollout.pk}/promote" in dialog.curl
    rollout.refresh_from_db()
    assert rollout.step_index == 1


def test_a_stale_preview_is_refused_and_drawn_again(cast: Cast) -> None:
    rollout = running()
    ada = cast.ada.pages()
    seen = ada.get(f"/rollouts/{rollout.pk}/promote", headers=HTMX).context["dialog"]
    Rollout.objects.filter(pk=rollout.pk).update(
        step_index=2, weight_percent=100, revision=rollout.revision + 1
    )
    form = {"revision": seen.revision, "was": seen.fingerprint(), "reason": "looks fine"}
    answer = ada.post(f"/rollouts/{rollout.pk}/promote", form, headers=HTMX)
    page = answer.content.decode()
    assert answer.status_code == 409
    assert "changed while you were reading" in page
    assert "1 steps with their gates are skipped" in page
    assert "looks fine" in page
    again = answer.context["dialog"]
    done = ada.post(
        f"/rollouts/{rollout.pk}/promote",
        {"revision": again.revision, "was": again.fingerprint()},
        headers=HTMX,
    )
    assert done.status_code == 204
    assert Entry.objects.filter(verb="rollout.promote", actor="user:ada").exists()


def test_a_verb_whose_state_is_over_is_a_sentence_not_a_failure(cast: Cast) -> None:
    rollout = running(state="promoted")
    refused = _told(cast.ada.pages().get(f"/rollouts/{rollout.pk}/promote", headers=HTMX))
    assert "promote is not possible now" in refused["toast"]["text"]
    assert cast.ada.pages().get(f"/rollouts/{rollout.pk}/explode").status_code == 404


def test_without_javascript_a_verb_is_a_form_and_a_message(cast: Cast) -> None:
    rollout = running()
    ada = cast.ada.pages()
    assert "<h1" in ada.get(f"/rollouts/{rollout.pk}/skip").content.decode()
    page = ada.post(f"/rollouts/{rollout.pk}/pause", follow=True).content.decode()
    assert "Paused file-type 1 → 2." in page


def test_retry_leads_to_the_new_rollout(cast: Cast) -> None:
    rollout = running(state="aborted", reason="breach")
    ada = cast.ada.pages()
    dialog = ada.get(f"/rollouts/{rollout.pk}/retry", headers=HTMX).context["dialog"]
    done = ada.post(
        f"/rollouts/{rollout.pk}/retry",
        {"revision": dialog.revision, "was": dialog.fingerprint()},
        headers=HTMX,
    )
    assert done["HX-Redirect"] == f"/rollouts/{Rollout.objects.latest('pk').pk}"


class TestNew:
    def form(self, **changes: str) -> dict[str, str]:
        given = {"service": "file-type", "version": "2", "strategy": "canary", "on_new_version": "supersede"}
        return {**given, **changes}

    @pytest.fixture
    def ada(self, cast: Cast) -> Client:
        factories.version(2, of=factories.stable(1).service)
        return cast.ada.pages()

    def test_the_plan_stands_beside_the_form(self, ada: Client) -> None:
        page = ada.get("/rollouts/new?service=file-type").content.decode()
        assert "file-type goes from version 1 to version 2 in" in page
        assert "Send 10 % to the new version" in page

    def test_what_was_not_seen_is_not_started(self, ada: Client) -> None:
        answer = ada.post("/rollouts/new", self.form())
        assert answer.status_code == 409
        assert not Rollout.objects.exists()

    def test_the_plan_that_was_seen_is_started(self, ada: Client) -> None:
        seen = ada.post("/rollouts/new", self.form()).context["plan"].print
        answer = ada.post("/rollouts/new", self.form(print=seen, reason="try it"))
        assert answer["Location"] == f"/rollouts/{Rollout.objects.get().pk}"

    def test_own_steps_are_checked_by_path(self, ada: Client) -> None:
        wrong = self.form(strategy="-", steps='[{"setWeigth": 10}]')
        page = ada.post("/rollouts/new", wrong).content.decode()
        assert "setWeigth" in page
        assert "is unknown" in page

    def test_steps_that_are_no_json_name_their_field(self, ada: Client) -> None:
        page = ada.post("/rollouts/new", self.form(strategy="-", steps="[")).content.decode()
        assert 'id="id_steps_error"' in page

    def test_the_stable_version_cannot_be_rolled_out(self, ada: Client) -> None:
        plan = ada.get("/rollouts/new/plan", self.form(version="1")).content.decode()
        assert "is the stable version of file-type already" in plan

    def test_a_viewer_sees_the_plan_but_no_button(self, ada: Client, cast: Cast) -> None:
        page = cast.ben.pages().get("/rollouts/new?service=file-type").content.decode()
        assert 'id="start"' not in page
        assert "needs the role operator" in page

    def test_an_impossible_version_is_refused_by_the_form(self, ada: Client) -> None:
        assert ada.post("/rollouts/new", self.form(version="99")).status_code == 422
        assert ada.get("/rollouts/new?service=nothing").status_code == 404


def _told(answer: Any) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(answer["X-Pilothouse-Events"])
    return told


def test_an_ended_rollout_shows_the_minute_before_its_end_and_not_now(
    cast: Cast, redis_server: object
) -> None:
    place = scene.build()
    scene.samples(seconds=900)
    now = clock.now()
    # Its canary had traffic in the last 140 s only: ten minutes ago there was none.
    Rollout.objects.filter(pk=place.rollout.pk).update(
        state="aborted", finished_at=now - timedelta(seconds=600)
    )
    page = cast.ben.pages().get(f"/rollouts/{place.rollout.pk}?part=sides")
    traffic = next(line for line in page.context["compared"] if line.name == "Traffic")
    assert traffic.stable.known and traffic.stable.value > 0
    assert traffic.canary.value == 0
    text = page.content.decode()
    assert "the minute before its end" in text
    assert "Replicas ready" not in text
    assert "live:beat" not in text
