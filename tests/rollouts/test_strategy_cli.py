"""`pilothouse strategy` against a real console."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from console.cli.main import run
from rollouts.models import Strategy
from rollouts.strategies import ensure_defaults
from tests import factories
from tests.cast import Cast, cast

__all__ = ["cast"]
pytestmark = pytest.mark.django_db(transaction=True)
FOREIGN = Path(__file__).parent / "foreign"


@pytest.fixture(autouse=True)
def console(cast: Cast, live_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PILOTHOUSE_URL", live_server.url)
    monkeypatch.setenv("PILOTHOUSE_TOKEN", cast.token("rollouts:write").secret)
    ensure_defaults()
    factories.stable(1)


def test_an_import_saves_and_prints_its_report(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["strategy", "import", str(FOREIGN / "flagger-canary.yaml"), "--tenant", "platform"]) == 0
    out = capsys.readouterr()
    rows = [line.split(maxsplit=2) for line in out.out.splitlines()[1:]]
    assert ["changed", "documents[0].spec.analysis.webhooks[1]", "a person resumes here instead"] in rows
    assert "Strategy podinfo" in out.err
    assert Strategy.objects.get(name="podinfo").source


def test_an_import_that_is_refused_saves_nothing_and_exits_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rollout.yaml"
    file.write_text(
        "kind: Rollout\nmetadata: {name: r}\nspec: {strategy: {blueGreen: {}}}\n", encoding="utf-8"
    )
    assert run(["strategy", "import", str(file), "--tenant", "platform"]) == 3
    assert "blue-green is not offered" in capsys.readouterr().out
    assert not Strategy.objects.filter(name="r").exists()


def test_an_export_prints_yaml_and_what_is_lost(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["strategy", "export", "canary", "--service", "file-type"]) == 0
    out = capsys.readouterr()
    assert next(yaml.safe_load_all(out.out))["kind"] == "Rollout"
    assert "refused: steps[2].latency: compares two versions" in out.err


def test_a_replay_without_history_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["strategy", "replay", "canary", "--service", "file-type", "--starts", "3", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["starts"], told["aborted"]) == (3, 0)


def test_an_unknown_strategy_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["strategy", "export", "absent", "--service", "file-type"]) == 1
    assert "There is no strategy 'absent'." in capsys.readouterr().err
