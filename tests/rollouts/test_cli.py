"""`pilothouse rollout` against a real console: what it prints and how it ends."""

import json
from pathlib import Path
from typing import Any

import pytest

from console.cli.main import run
from console.tenants.permissions import SYSTEM
from inference.models import Version
from rollouts import actions
from rollouts.models import Rollout
from rollouts.strategies import ensure_defaults
from tests import factories
from tests.cast import Cast, cast

__all__ = ["cast"]
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def canary(cast: Cast, live_server: Any, monkeypatch: pytest.MonkeyPatch) -> Version:
    """Version 2 of a service with a stable version 1; the environment names console and token."""
    monkeypatch.setenv("PILOTHOUSE_URL", live_server.url)
    monkeypatch.setenv("PILOTHOUSE_TOKEN", cast.token("rollouts:write").secret)
    ensure_defaults()
    factories.stable(1)
    return factories.version(2)


def ended(canary: Version, **changes: Any) -> Rollout:
    rollout = actions.start(actions.Wanted(canary.service, canary, "canary"), actor=SYSTEM)
    Rollout.objects.filter(pk=rollout.pk).update(**changes)
    return rollout


def test_start_prints_the_rollout(canary: Version, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rollout", "start", "file-type", "--version", "2", "--json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert (body["state"], body["strategy"], body["created_by"]) == ("queued", "canary", "token:ci")


def test_start_reads_steps_from_a_file(canary: Version, tmp_path: Path) -> None:
    file = tmp_path / "steps.yaml"
    file.write_text("steps:\n- setWeight: 5\n- pause: {duration: 1m}\n- setWeight: 100\n", encoding="utf-8")
    assert run(["rollout", "start", "file-type", "--version", "2", "-f", str(file)]) == 0
    assert Rollout.objects.get().steps[1] == {"pause": {"duration": "1m"}}


def test_a_dry_run_prints_the_plan(canary: Version, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rollout", "start", "file-type", "--version", "2", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "file-type goes from version 1 to version 2" in out
    assert "1. send 10 % to the new version" in out
    assert not Rollout.objects.exists()


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"state": "promoted"}, 0),
        ({"state": "aborted", "reason": "breach", "message": "Aborted: error ratio 31.0 %"}, 3),
        ({"state": "paused", "reason": "no_data"}, 5),
        ({"state": "superseded"}, 1),
    ],
)
def test_the_exit_code_tells_how_it_ended(
    canary: Version, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], code: int
) -> None:
    rollout = ended(canary, **changes)
    Rollout.objects.filter(pk=rollout.pk).update(settled_at=rollout.created_at)
    assert run(["rollout", "watch", str(rollout.pk), "--timeout", "5"]) == code
    captured = capsys.readouterr()
    assert captured.out.startswith(changes["state"])
    assert captured.out.lower().count(f"{changes['state']}: ") == 1
    assert "system asked for version 2 by canary" in captured.err


def test_waiting_too_long_ends_with_4(canary: Version, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rollout", "start", "file-type", "--version", "2", "--wait", "--timeout", "1s"]) == 4
    assert "still queued after 1 s" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["start", "file-type"], 2),
        (["start", "file-type", "--version", "0"], 2),
        (["start", "file-type", "--version", "2", "--strategy", "a", "-f", "pyproject.toml"], 2),
        (["start", "file-type", "--version", "2", "--timeout", "soon"], 2),
        (["start", "file-type", "--version", "9"], 1),
        (["start", "nobody", "--version", "2"], 1),
        (["watch", "4711"], 1),
        (["abort", "4711"], 1),
    ],
)
def test_what_cannot_be_done_has_its_code(canary: Version, arguments: list[str], code: int) -> None:
    assert run(["rollout", *arguments]) == code


def test_verbs_act_and_say_what_they_did(canary: Version, capsys: pytest.CaptureFixture[str]) -> None:
    rollout = ended(canary, state="progressing")
    number = str(rollout.pk)
    assert run(["rollout", "pause", number, "--reason", "lunch"]) == 0
    assert "is paused: Paused by token:ci: lunch" in capsys.readouterr().out
    assert run(["rollout", "resume", number]) == 0
    assert run(["rollout", "abort", number, "--dry-run"]) == 0
    assert "All requests go back to version 1" in capsys.readouterr().out
    assert run(["rollout", "abort", number]) == 0
    assert run(["rollout", "abort", number]) == 1
    assert run(["rollout", "retry", number]) == 0
    capsys.readouterr()
    assert run(["rollout", "list"]) == 0
    assert capsys.readouterr().out.count("file-type") == 2


def test_a_console_that_is_away_ends_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PILOTHOUSE_URL", "http://127.0.0.1:1")
    assert run(["rollout", "list"]) == 1
    assert run(["rollout", "watch", "1", "--timeout", "1"]) == 1
