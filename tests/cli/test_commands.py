"""The commands as a person and a pipeline meet them: output, exit codes, no traceback."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
import pytest
from pytest_django.live_server_helper import LiveServer

from console.cli import doctor
from console.cli.main import COMMANDS, run
from console.cli.token import Lifetime
from console.tenants.models import Token
from tests.cast import Cast, make_cast

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PILOTHOUSE_HOME", str(tmp_path))
    monkeypatch.delenv("PILOTHOUSE_TOKEN", raising=False)
    monkeypatch.setenv("PILOTHOUSE_URL", "http://127.0.0.1:1")


@pytest.fixture
def house(live_server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> Cast:
    """A running console; the command line acts with a token for everything in platform."""
    cast = make_cast()
    token = cast.token("tenants:write", "models:write", "read")
    monkeypatch.setenv("PILOTHOUSE_URL", live_server.url)
    monkeypatch.setenv("PILOTHOUSE_TOKEN", token.secret)
    return cast


def test_a_token_is_made_listed_rotated_and_revoked(house: Cast, capsys: pytest.CaptureFixture[str]) -> None:
    create = ["token", "create", "--tenant", "platform", "--scope", "read", "--name", "nightly"]
    assert run([*create, "--expires", "30d"]) == 0
    out, err = capsys.readouterr()
    secret = out.strip()
    assert secret.startswith("pht_")
    assert "nightly" in err
    token = Token.objects.get(name="nightly")
    assert token.expires_at is not None
    assert timedelta(days=29) < token.expires_at - datetime.now(UTC) < timedelta(days=31)

    assert run(["token", "list", "--tenant", "platform"]) == 0
    out, _ = capsys.readouterr()
    assert "nightly" in out
    assert secret not in out

    assert run(["token", "rotate", str(token.pk), "--grace", "0", "--json"]) == 0
    rotated = json.loads(capsys.readouterr().out)
    assert rotated["secret"] != secret

    assert run(["token", "revoke", str(rotated["id"]), "--dry-run"]) == 0
    assert "refused from now on" in capsys.readouterr().out
    assert run(["token", "revoke", str(rotated["id"])]) == 2  # nobody is there to confirm
    assert run(["token", "revoke", str(rotated["id"]), "--yes", "--reason", "done"]) == 0
    assert "is revoked" in capsys.readouterr().out
    assert run(["--json", "token", "list", "--state", "revoked"]) == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)] == ["nightly"]


def test_a_refusal_is_a_sentence_and_exit_code_1(house: Cast, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["token", "create", "--tenant", "strange", "--scope", "read"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "Error: This token cannot be made. Wrong: tenant.\n  tenant: there is no such tenant\n" or (
        "tenant: there is no such tenant" in err
    )
    assert "Traceback" not in err
    assert run(["token", "create", "--tenant", "strange", "--scope", "read", "--json"]) == 1
    error = json.loads(capsys.readouterr().err)["error"]
    assert (error["code"], error["fields"]) == ("invalid", {"tenant": "there is no such tenant"})


@pytest.mark.parametrize(
    "arguments",
    [
        ["nothing"],
        ["token"],
        ["token", "create"],
        ["token", "revoke", "x"],
        ["token", "create", "--tenant", "t", "--scope", "read", "--expires", "soon"],
        ["doctor", "--port", "x"],
    ],
)
def test_wrong_usage_is_exit_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    assert "Usage:" in capsys.readouterr().err


def test_a_console_that_is_away_is_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["token", "list"]) == 1
    err = capsys.readouterr().err
    assert "not reachable" in err
    assert "Traceback" not in err


def test_every_command_can_be_loaded_and_takes_json(capsys: pytest.CaptureFixture[str]) -> None:
    from console.cli.main import pilothouse

    context = click.Context(pilothouse)

    def leaves(command: click.Command, path: str) -> list[tuple[str, click.Command]]:
        if isinstance(command, click.Group):
            return [leaf for name, sub in command.commands.items() for leaf in leaves(sub, f"{path} {name}")]
        return [(path, command)]

    until_stopped = {"up", "serve"}  # they have no result to print
    for name in COMMANDS:
        command = pilothouse.get_command(context, name)
        assert command is not None
        for path, leaf in leaves(command, name):
            options = {option for parameter in leaf.params for option in parameter.opts}
            assert "--json" in options or name in until_stopped, path
            assert leaf.help, path
    assert run(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(f"  {name} " in out for name in COMMANDS)


@pytest.mark.parametrize(
    "command", [[sys.executable, "-m", "console.cli.main"], [sys.executable, "manage.py", "pilothouse"]]
)
def test_both_entries_are_the_same(command: list[str]) -> None:
    done = subprocess.run(
        [*command, "--version"], cwd=ROOT, capture_output=True, text=True, timeout=60, env=dict(os.environ)
    )
    assert (done.returncode, done.stdout.split()[0]) == (0, "pilothouse")
    done = subprocess.run(
        [*command, "token", "nope"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        env=dict(os.environ),
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("text", "days"), [("30d", 30), ("2w", 14), ("48h", 2), ("1440m", 1), ("2999-01-01", None)]
)
def test_a_lifetime_is_a_span_or_a_date(text: str, days: int | None) -> None:
    found = Lifetime().convert(text, None, None)
    if days is None:
        assert found == datetime(2999, 1, 1, tzinfo=UTC)
    else:
        assert abs(found - datetime.now(UTC) - timedelta(days=days)) < timedelta(minutes=1)


# Doctor


def findings(capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, Any]]:
    return {finding["check"]: finding for finding in json.loads(capsys.readouterr().out)["findings"]}


def test_the_doctor_finds_nothing_on_a_fresh_machine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("PILOTHOUSE_URL", "REDIS_URL", "DATABASE_URL", "PROMETHEUS_URL"):
        monkeypatch.delenv(name, raising=False)
    from tests.services.process import free_port

    ports = ["--port", str(free_port()), "--plane-port", str(free_port())]
    assert run(["doctor", *ports, "--json"]) == 0
    found = findings(capsys)
    assert found["python"]["verdict"] == found["wheels"]["verdict"] == found["redis"]["verdict"] == "ok"
    assert found["database"]["verdict"] == "warn"  # nothing there yet
    assert found["console"]["verdict"] == "warn"
    assert found["console"]["remedy"]


def test_the_doctor_fails_on_what_was_named_and_is_away(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://127.0.0.1:1/0")
    monkeypatch.setenv("PROMETHEUS_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("DATABASE_URL", "postgresql://nobody@127.0.0.1:1/none")
    assert run(["doctor", "--json"]) == 1
    found = findings(capsys)
    for check in ("redis", "prometheus", "database", "console"):
        assert found[check]["verdict"] == "fail", check
        assert found[check]["remedy"], check
    assert "Traceback" not in found["database"]["detail"]


def test_the_doctor_sees_a_broken_database_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("DATABASE_URL", raising=False)
    (tmp_path / "db.sqlite3").write_bytes(b"this is no database" * 100)
    finding = doctor.database()
    assert (finding.verdict, "not a database" in finding.detail) == ("fail", True)
    (tmp_path / "db.sqlite3").write_bytes(b"")
    finding = doctor.database()
    assert (finding.verdict, finding.detail) == ("fail", "migrations are not applied")


def test_the_doctor_looks_behind_a_port_in_use(live_server: LiveServer) -> None:
    import socket

    ours = int(live_server.url.rsplit(":", 1)[1])
    assert doctor.listening(ours, "console").verdict == "ok"
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        finding = doctor.listening(other.getsockname()[1], "console")
    assert finding.verdict == "fail"
    assert "--port" in finding.remedy


def test_the_doctor_looks_where_the_last_up_was_told_to_listen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PILOTHOUSE_URL")
    from tests.services.process import free_port

    port, plane_port = free_port(), free_port()
    known = {"url": f"http://127.0.0.1:{port}", "plane_url": f"http://127.0.0.1:{plane_port}"}
    (tmp_path / "credentials.json").write_text(json.dumps(known))
    run(["doctor", "--json"])
    found = findings(capsys)
    assert str(port) in found["console"]["detail"]
    assert str(plane_port) in found["plane"]["detail"]
    assert {f"port {port}", f"port {plane_port}"} <= found.keys()


def test_the_doctor_reads_what_the_console_says(house: Cast, capsys: pytest.CaptureFixture[str]) -> None:
    run(["doctor"])
    out = capsys.readouterr().out
    assert "warn  console" in out  # degraded: the tests run no Redis here
    assert "redis: does not answer" in out
    assert "Redis does not answer" in out


def test_a_check_that_fails_itself_does_not_hide_the_others() -> None:
    def odd() -> doctor.Finding:
        raise RuntimeError("surprise")

    finding = doctor._guarded(odd)
    assert (finding.check, finding.verdict) == ("odd", "fail")
    assert "surprise" in finding.detail
