"""`pilothouse strategy`: named plans, read from Argo and Flagger, written for Argo, tried on past traffic."""

import sys
from pathlib import Path
from typing import Any

import click

from console.cli.client import Client, CliError
from console.cli.output import json_option, note, show, table, wants_json

_COLUMNS = {"id": "ID", "name": "NAME", "tenant": "TENANT", "steps": "STEPS"}
_REPORT = {"fate": "FATE", "path": "FIELD", "why": "WHY"}
_RUNS = {"started_at": "WOULD HAVE BEGUN", "outcome": "END", "sentence": "WHY"}


@click.group()
def strategy() -> None:
    """Named plans of rollouts."""


@strategy.command(name="list")
@json_option
def list_() -> None:
    """Strategies that you may use."""
    rows = list(Client().pages("strategies", most=1000))
    told = [{**row, "tenant": row["tenant"] or "everyone", "steps": len(row["steps"])} for row in rows]
    show(rows, lambda: table(told, _COLUMNS, empty="There are no strategies here."))


@strategy.command(name="import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--tenant", required=True, help="Slug of the tenant that gets the strategy.")
@click.option("--name", default="", help="Left out: the name in the file.")
@click.option("--dry-run", is_flag=True, help="Only say what becomes of each field.")
@click.option("--reason", default="", help="For the audit log.")
@json_option
@click.pass_context
def import_(context: click.Context, file: Path, tenant: str, name: str, dry_run: bool, reason: str) -> None:
    """Read an Argo Rollout with its templates, or a Flagger Canary. Exit code 3 when something is refused."""
    body = {"text": _text(file), "tenant": tenant, "name": name, "reason": reason}
    client = Client()
    # Asked first without saving: a refusal has its report too.
    told = client.post("strategies/import", body, dry_run=True)
    if told["strategy"] is None:
        show(told, lambda: _report(told["report"]))
        note("Nothing was saved: something is refused.")
        context.exit(3)
    if dry_run:
        show(told, lambda: _report(told["report"]))
        return
    made = client.post("strategies/import", body)
    show(made, lambda: _report(made["report"]))
    note(f"Strategy {made['name']} (id {made['id']}) is saved.")


@strategy.command()
@click.argument("name")
@click.option("--service", required=True, help="Whose metrics the queries are about.")
@json_option
def export(name: str, service: str) -> None:
    """Print strategy NAME as Argo's YAML; what Argo cannot say goes to standard error."""
    client = Client()
    told = client.request("GET", f"strategies/{_id_of(client, name)}/export", params={"service": service})
    if wants_json():
        show(told, "")
        return
    sys.stdout.write(told["text"])
    for line in told["report"]:
        note(f"{line['fate']}: {line['path']}: {line['why']}")


@strategy.command()
@click.argument("name")
@click.option("--service", required=True, help="Whose past traffic is used.")
@click.option("--hours", type=click.FloatRange(0.05, 720), default=24.0, show_default=True)
@click.option("--starts", type=click.IntRange(1, 200), default=20, show_default=True)
@json_option
def replay(name: str, service: str, hours: float, starts: int) -> None:
    """Say how often strategy NAME would have aborted the stable version beside itself: false alarms."""
    client = Client()
    body = {"service": service, "hours": hours, "starts": starts}
    told = client.post(f"strategies/{_id_of(client, name)}/replay", body)
    show(
        told, lambda: f"{table(told['runs'], _RUNS, empty='There is no stable version.')}\n{told['sentence']}"
    )


def _id_of(client: Client, name: str) -> int:
    """The caller's own strategy of that name before one that is offered to everyone."""
    rows = [row for row in client.pages("strategies", most=1000) if row["name"] == name]
    if not rows:
        raise CliError(f"There is no strategy {name!r}.")
    found: int = max(rows, key=lambda row: row["tenant"] is not None)["id"]
    return found


def _report(lines: list[dict[str, Any]]) -> str:
    order = ("refused", "changed", "ignored", "honoured")
    return table(
        sorted(lines, key=lambda line: order.index(line["fate"])), _REPORT, empty="No field was read."
    )


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{file} cannot be read: {error}") from None
