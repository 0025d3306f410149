"""`pilothouse rollout`: start, follow and steer rollouts. The exit code tells a pipeline how it ended."""

import re
import time
from pathlib import Path
from typing import Any

import click
import yaml

from console.cli.client import ApiError, Client, CliError, Unreachable
from console.cli.output import json_option, note, show, table

ABORTED, TIMED_OUT, NEEDS_PERSON, FAILED = 3, 4, 5, 1
_EXIT_CODES = {"promoted": 0, "aborted": ABORTED, "needs_person": NEEDS_PERSON}

# Short, so that a person sees each decision soon after it was made.
_POLL_SECONDS = 5
# A console that restarts in the middle of a wait is no reason to give up on the rollout.
_RECONNECT_SECONDS = 2.0

_COLUMNS = {
    "id": "ID",
    "service": "SERVICE",
    "from_version": "FROM",
    "version": "TO",
    "state": "STATE",
    "weight_percent": "WEIGHT %",
    "message": "WHY",
}
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}


class Span(click.ParamType[float]):
    """Seconds: 90, 90s, 5m or 1h."""

    name = "span"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, int | float):
            return float(value)
        match = re.fullmatch(r"(\d{1,7})([smh]?)", value)
        if match is None:
            self.fail(f"{value!r} is not a span such as 90s, 5m or 1h", param, ctx)
        return float(int(match[1]) * _UNITS[match[2]])


_timeout_option = click.option(
    "--timeout", type=Span(), default="30m", show_default=True, help="How long to wait; then exit code 4."
)
_reason_option = click.option("--reason", default="", help="For the audit log.")


@click.group()
def rollout() -> None:
    """Roll versions out behind a canary.

    Waiting commands exit with 0 promoted, 3 aborted, 4 timed out, 5 needs a person, 1 anything else.
    """


@rollout.command()
@click.argument("service")
@click.option(
    "--version", "version", type=click.IntRange(min=1), required=True, help="Number of the version."
)
@click.option("--strategy", help="Name of a strategy; `canary` when left out.")
@click.option(
    "-f",
    "--file",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="YAML or JSON with `steps`, and background, watch, deadline and sticky as it likes.",
)
@click.option(
    "--on-new-version",
    type=click.Choice(["supersede", "queue", "reject"]),
    default="supersede",
    show_default=True,
    help="What becomes of this rollout when a newer one is asked for.",
)
@click.option("--wait", is_flag=True, help="Wait for the end.")
@_timeout_option
@click.option("--dry-run", is_flag=True, help="Only print the plan.")
@click.option(
    "--key", help="Idempotency-Key: the same key starts one rollout only, however often it is sent."
)
@_reason_option
@json_option
@click.pass_context
def start(
    context: click.Context,
    service: str,
    version: int,
    strategy: str | None,
    file: Path | None,
    on_new_version: str,
    wait: bool,
    timeout: float,
    dry_run: bool,
    key: str | None,
    reason: str,
) -> None:
    """Start a rollout of SERVICE."""
    if strategy and file:
        raise click.UsageError("Give --strategy or --file, not both.")
    body = {
        "service": service,
        "version": version,
        "strategy": _plan_in(file) if file else strategy,
        "on_new_version": on_new_version,
        "reason": reason,
    }
    client = Client()
    if dry_run:
        plan = client.post("rollouts", body, dry_run=True)
        show(plan, lambda: _plan_text(plan))
        return
    made = client.post("rollouts", body, key=key)
    if not wait:
        show(made, f"Rollout {made['id']} of {service} to version {version} is {made['state']}.")
        return
    note(f"Rollout {made['id']} of {service} to version {version}.")
    context.exit(_follow(client, made["id"], timeout))


@rollout.command()
@click.argument("rollout_id", type=int)
@_timeout_option
@json_option
@click.pass_context
def watch(context: click.Context, rollout_id: int, timeout: float) -> None:
    """Follow a rollout to its end."""
    context.exit(_follow(Client(), rollout_id, timeout))


@rollout.command(name="list")
@click.option("--service", help="Only of this service.")
@click.option("--state", help="Only in this state.")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True)
@json_option
def list_(service: str | None, state: str | None, limit: int) -> None:
    """Rollouts, newest first."""
    rows = list(Client().pages("rollouts", most=limit, service=service, state=state))
    show(rows, lambda: table(rows, _COLUMNS, empty="There are no rollouts here."))


def _verb(name: str, sentence: str) -> None:
    """Adds `pilothouse rollout NAME ID`."""

    @click.argument("rollout_id", type=int)
    @click.option("--dry-run", is_flag=True, help="Only say what would happen.")
    @_reason_option
    @json_option
    def act(rollout_id: int, dry_run: bool, reason: str) -> None:
        client = Client()
        if dry_run:
            preview = client.post(f"rollouts/{rollout_id}/{name}", {}, dry_run=True)
            show(preview, preview["effect"])
            return
        row = client.post(f"rollouts/{rollout_id}/{name}", {"reason": reason})
        show(row, f"Rollout {row['id']} is {row['state']}: {row['message']}")

    rollout.command(name=name, help=sentence)(act)


_verb("promote", "Skip every remaining step; the version becomes stable once it is ready.")
_verb("pause", "Hold every step; the traffic stays as it is.")
_verb("resume", "Go on.")
_verb("abort", "Give up: stable gets all the traffic.")
_verb("retry", "Start again what was aborted, as a new rollout.")
_verb("skip", "Leave the present step undone.")


def _follow(client: Client, rollout_id: int, timeout: float) -> int:
    """Say each decision as it is made; the exit code tells how it ended."""
    deadline = time.monotonic() + timeout
    said = 0
    body: dict[str, Any] | None = None
    while True:
        left = deadline - time.monotonic()
        body = _poll(client, rollout_id, max(0.0, min(_POLL_SECONDS, left))) or body
        for decision in body["decisions"] if body else ():
            if decision["id"] > said:
                said = decision["id"]
                note(f"{decision['at'][11:19]}  {decision['weight_percent']:>3} %  {decision['sentence']}")
        if body is not None and not body["timed_out"]:
            break
        if time.monotonic() >= deadline:
            return _give_up(body, rollout_id, timeout)
        if body is None:
            time.sleep(_RECONNECT_SECONDS)
    state = body["state"]
    show(body, f"{state}: {body['message'].removeprefix(f'{state.capitalize()}: ')}")
    return _EXIT_CODES.get(body["outcome"], FAILED)


def _poll(client: Client, rollout_id: int, seconds: float) -> dict[str, Any] | None:
    """None: the console is away for the moment."""
    try:
        answer: dict[str, Any] = client.request(
            "GET", f"rollouts/{rollout_id}/wait", params={"timeout": seconds}, timeout=seconds + 10
        )
    except Unreachable:
        return None
    except ApiError as error:
        if error.status >= 500:
            return None
        raise
    return answer


def _give_up(body: dict[str, Any] | None, rollout_id: int, timeout: float) -> int:
    if body is None:
        raise CliError(f"The console did not answer about rollout {rollout_id} for {timeout:g} s.")
    show(body, f"still {body['state']} after {timeout:g} s: {body['message']}")
    return TIMED_OUT


def _plan_in(file: Path) -> dict[str, Any]:
    try:
        found = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise click.UsageError(f"{file} cannot be read: {error}") from None
    plan: dict[str, Any] = found if isinstance(found, dict) else {"steps": found}
    if not isinstance(plan.get("steps"), list):
        raise click.UsageError(f"{file} holds no list of steps.")
    return plan


def _plan_text(plan: dict[str, Any]) -> str:
    lines = [plan["effect"], *(f"  {step['index'] + 1}. {step['sentence']}" for step in plan["steps"])]
    lines += [f"  {bake['sentence']}" for bake in plan["bakes"]]
    return "\n".join([*lines, *(f"  - {line}" for line in plan["affected"])])
