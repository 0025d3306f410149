"""Strategies as pages: by hand, read from Argo with a word on each field, replayed, exported; the judge's evidence."""

import json
from pathlib import Path

import pytest

from console.kit import clock
from rollouts.models import Measurement, Strategy
from tests import factories
from tests.cast import Cast

pytestmark = pytest.mark.django_db

ARGO = (Path(__file__).parents[1] / "rollouts" / "foreign" / "argo-canary.yaml").read_text()
PLAN = {
    "steps": [{"setWeight": 10}, {"setWeight": 100}],
    "sticky": {"by": "tenant"},
    "deadline": {"step": "1h"},
}


def test_a_strategy_is_written_read_changed_and_deleted(cast: Cast) -> None:
    ada = cast.ada.pages()
    typed = {"tenant": "platform", "name": "mine", "text": json.dumps(PLAN)}
    address = ada.post("/strategies/new", typed)["Location"]
    text = ada.get(address).content.decode()
    assert "Send 10 % to the new version" in text
    assert "Deadlines: a step 1h at most, then abort." in text
    assert "Each tenant stays with the version it met." in text
    changed = json.dumps({"steps": [{"setWeight": 5}]})
    assert ada.post(f"{address}/edit", {"text": changed, "revision": "1"})["Location"] == address
    assert Strategy.objects.get(name="mine").steps == [{"setWeight": 5}]
    stale = ada.post(f"{address}/edit", {"text": changed, "revision": "1"})
    assert (stale.status_code, "changed meanwhile" in stale.content.decode()) == (422, True)
    ada.post(f"{address}/delete", {"reason": "done"})
    assert not Strategy.objects.filter(name="mine").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "Is no JSON"),
        ('{"steps": [{"setWeigth": 1}]}', "steps[0].setWeigth: is unknown"),
        ("[]", "at least one step"),
    ],
)
def test_a_wrong_plan_keeps_what_was_typed_and_says_where(cast: Cast, text: str, words: str) -> None:
    answer = cast.ada.pages().post("/strategies/new", {"tenant": "platform", "name": "mine", "text": text})
    assert answer.status_code == 422
    assert words in answer.content.decode()


def test_an_import_shows_its_report_before_it_saves(cast: Cast) -> None:
    ada = cast.ada.pages()
    typed = {"tenant": "platform", "text": ARGO}
    first = ada.post("/strategies/import", typed)
    assert "Rollout guestbook can be kept." in first.content.decode()
    assert not Strategy.objects.filter(name="guestbook").exists()
    address = ada.post("/strategies/import", {**typed, "save": "1"})["Location"]
    saved = Strategy.objects.get(name="guestbook")
    assert (address, saved.source.strip()) == (f"/strategies/{saved.pk}", ARGO.strip())


def test_an_import_that_would_lie_cannot_be_saved(cast: Cast) -> None:
    broken = ARGO.replace("successCondition: result[0] >= 0.95", "sucessCondition: result[0] >= 0.95")
    answer = cast.ada.pages().post("/strategies/import", {"tenant": "platform", "text": broken, "save": "1"})
    text = answer.content.decode()
    assert "cannot be kept: something is refused" in text
    assert "sucessCondition" in text
    assert 'id="save"' not in text
    assert not Strategy.objects.filter(name="guestbook").exists()


def test_an_export_and_a_replay_stand_on_the_page(cast: Cast) -> None:
    factories.stable(1)
    row = Strategy.objects.get(name="canary", tenant=None)
    page = cast.ada.pages().get(f"/strategies/{row.pk}?export=file-type").content.decode()
    assert "kind: Rollout" in page
    assert "compares two versions" in page
    said = cast.ada.pages().get(f"/strategies/{row.pk}?replay=file-type")
    assert said.context["replay"]["starts"] == 20


def test_strategies_of_others_are_not_there(cast: Cast) -> None:
    row = Strategy.objects.create(tenant=cast.platform, name="ours", steps=PLAN["steps"])
    cleo = cast.cleo.pages()
    assert cleo.get(f"/strategies/{row.pk}").status_code == 404
    assert "ours" not in cleo.get("/strategies").content.decode()
    assert cast.ben.pages().post(f"/strategies/{row.pk}/edit", {"text": "{}"}).status_code in (403, 422)


def test_the_judges_evidence_is_shown_in_percent_of_the_proof(cast: Cast) -> None:
    judge = {"name": "judge", "judge": {"metrics": ["error_ratio"]}}
    rollout = factories.rollout(
        steps=[{"setWeight": 10}, {"analysis": {"gates": [judge]}}], step_index=1, weight_percent=10
    )
    Measurement.objects.create(
        rollout=rollout,
        step_index=1,
        gate="judge",
        metric="error_ratio",
        at=clock.now(),
        verdict="low_evidence",
        limit="",
        source="embedded",
        query="q",
        detail="not decided yet",
        evidence={
            "window": [10, 1, 90, 1],
            "canary": [100, 3],
            "stable": [900, 9],
            "e_worse": 10.0,
            "e_worse_limit": 100.0,
            "e_acceptable": 0.5,
            "e_acceptable_limit": 20.0,
            "ratio_low": 0.7,
            "ratio_high": None,
        },
    )
    ben = cast.ben.pages()
    (row,) = ben.get(f"/rollouts/{rollout.pk}").context["judged"]
    assert (row.canary, row.stable, row.worse, row.acceptable) == (
        "3 of 100 (3.0 %)",
        "9 of 900 (1.0 %)",
        50,
        0,
    )
    answer = ben.get(
        f"/api/v1/rollouts/{rollout.pk}/evidence?gate=judge&metric=error_ratio&proof=worse"
    ).json()
    assert [value for _, value in answer["points"]] == [50]
    wrong = ben.get(f"/api/v1/rollouts/{rollout.pk}/evidence?gate=judge&proof=best")
    assert (wrong.status_code, "proof" in wrong.json()["fields"]) == (400, True)
