"""`/`: one list, worst first, each line with one next action."""

from datetime import timedelta

import pytest

from console.audit.log import record
from console.kit import clock
from inference.models import Version
from rollouts.models import Rollout
from tests import factories
from tests.cast import Cast
from tests.ui import scene

pytestmark = pytest.mark.django_db


def before(rollout: Rollout) -> Version:
    """The version that it is to replace."""
    assert rollout.from_version is not None
    return rollout.from_version


def test_good_news_names_what_was_looked_at(cast: Cast) -> None:
    factories.replica(factories.stable(1))
    page = cast.ben.pages().get("/").content.decode()
    assert "Nothing needs you." in page
    assert "1 of 1 service healthy" in page


def test_the_worst_comes_first_with_its_reason_and_next_action(cast: Cast) -> None:
    rollout = factories.rollout(
        state="paused",
        reason="inconclusive",
        paused_at=clock.now() - timedelta(minutes=6),
        message="p95 is unclear",
    )
    factories.replica(before(rollout), state="crashed", detail="out of memory")
    factories.node("node-2", silent_seconds=95)
    needs = cast.ben.pages().get("/").context["frame"].needs
    assert [(need.role, need.word, need.action) for need in needs] == [
        ("fail", "not serving", "See replicas"),
        ("warn", "gate inconclusive", "Review"),
        ("unknown", "no report for 30 s", "See the node"),
    ]
    assert "out of memory" in needs[0].why
    assert needs[1].action_url == f"/rollouts/{rollout.pk}"


def test_an_abort_by_the_judge_is_shown_until_somebody_tries_again(cast: Cast) -> None:
    rollout = factories.rollout(
        state="aborted",
        reason="breach",
        finished_at=clock.now(),
        message="error ratio 31.0 % over 94 requests",
    )
    factories.replica(before(rollout))
    ben = cast.ben.pages()
    assert [need.word for need in ben.get("/").context["frame"].needs] == ["aborted"]
    factories.rollout(rollout.to_version, state="promoted")
    assert ben.get("/").context["frame"].needs == []


def test_an_abort_by_a_person_needs_nobody(cast: Cast) -> None:
    rollout = factories.rollout(state="aborted", reason="manual", finished_at=clock.now())
    factories.replica(before(rollout))
    assert cast.ben.pages().get("/").context["frame"].needs == []


def test_numbers_without_a_source_are_marked_as_unknown(cast: Cast) -> None:
    factories.stable(1)
    page = cast.ben.pages().get("/?part=stats").content.decode()
    assert "no answer from embedded" in page
    assert ">0<" not in page.partition("Replicas")[0]


def test_each_tenant_sees_its_own_changes(cast: Cast) -> None:
    record("user:ada", "service.edit", "service:file-type", tenant="platform", reason="ours")
    record("user:cleo", "service.edit", "service:other", tenant="strange", reason="theirs")
    page = cast.ben.pages().get("/?part=changes").content.decode()
    assert "ours" in page
    assert "theirs" not in page


def test_parts_are_rendered_alone_and_unknown_ones_are_not_there(cast: Cast) -> None:
    ben = cast.ben.pages()
    assert "<html" not in ben.get("/?part=running").content.decode()
    assert ben.get("/?part=secrets").status_code == 404


def test_refused_requests_are_a_figure_with_the_limit_that_refused_them(
    cast: Cast, redis_server: object
) -> None:
    scene.build()
    scene.samples(seconds=120)
    page = cast.ben.pages().get("/?part=stats").content.decode()
    assert "Refused" in page
    assert "over the request rate of a quota" in page
    assert "rate 0." in page
