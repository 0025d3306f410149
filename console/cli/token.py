"""`pilothouse token`: make, list, rotate and revoke tokens."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from console.cli.client import Client
from console.cli.output import confirm, json_option, note, show, table

_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_COLUMNS = {
    "id": "ID",
    "tenant": "TENANT",
    "name": "NAME",
    "hint": "STARTS WITH",
    "scopes": "SCOPES",
    "state": "STATE",
    "expires_at": "EXPIRES",
    "last_used_at": "LAST USED",
}


class Lifetime(click.ParamType[datetime]):
    """`30d`, `12h`, `90m`, `2w`, or a date such as 2026-12-31; becomes a time."""

    name = "lifetime"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        if match := re.fullmatch(r"(\d{1,5})([mhdw])", value):
            return datetime.now(UTC) + timedelta(**{_UNITS[match[2]]: int(match[1])})
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is neither a span such as 30d nor a date such as 2026-12-31", param, ctx)
        return found if found.tzinfo else found.replace(tzinfo=UTC)


@click.group()
def token() -> None:
    """Tokens for the REST API (pht_...) and keys for inference (ph_...)."""


@token.command()
@click.option("--tenant", required=True, help="Slug of the tenant the token stands for.")
@click.option(
    "--scope",
    "scopes",
    required=True,
    multiple=True,
    help="read, models:write, rollouts:write, nodes:write, tenants:write, or infer for an inference key. Repeat it.",
)
@click.option("--name", default="cli", show_default=True, help="To tell it from others.")
@click.option("--expires", type=Lifetime(), help="30d, 12h, or a date; never when left out.")
@click.option(
    "--most-weight",
    type=click.IntRange(0, 100),
    help="With rollouts:write: how many percent it may give to a new version before a person has to look.",
)
@click.option("--reason", default="", help="For the audit log.")
@json_option
def create(
    tenant: str,
    scopes: tuple[str, ...],
    name: str,
    expires: datetime | None,
    most_weight: int | None,
    reason: str,
) -> None:
    """Make a token. Its secret is printed once, alone on stdout."""
    body = {
        "tenant": tenant,
        "name": name,
        "scopes": [part for scope in scopes for part in scope.split(",") if part],
        "most_weight_percent": most_weight,
        "expires_at": expires.isoformat() if expires else None,
        "reason": reason,
    }
    made = Client().post("tokens", body)
    note(f"Token {made['name']} (id {made['id']}) of {made['tenant']}, scopes {', '.join(made['scopes'])}.")
    note("Keep the secret now: it is not shown again.")
    show(made, made["secret"])


@token.command(name="list")
@click.option("--tenant", help="Only of this tenant.")
@click.option("--state", type=click.Choice(["active", "expired", "revoked"]), help="Only in this state.")
@json_option
def list_(tenant: str | None, state: str | None) -> None:
    """Tokens you may see, newest first."""
    rows = list(Client().pages("tokens", tenant=tenant, state=state))
    show(rows, lambda: table(rows, _COLUMNS, empty="There are no tokens here."))


@token.command()
@click.argument("token_id", type=int)
@click.option("--grace", default=3600, show_default=True, help="Seconds that the old secret goes on working.")
@click.option("--reason", default="", help="For the audit log.")
@json_option
def rotate(token_id: int, grace: int, reason: str) -> None:
    """Make a successor with a new secret; the old one ends after the grace."""
    made = Client().post(f"tokens/{token_id}/rotate", {"grace_seconds": grace, "reason": reason})
    note(f"Token {made['name']} has the new id {made['id']}; the old secret ends in {grace} s.")
    show(made, made["secret"])


@token.command()
@click.argument("token_id", type=int)
@click.option("--reason", default="", help="For the audit log.")
@click.option("--dry-run", is_flag=True, help="Only say what would happen.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def revoke(token_id: int, reason: str, dry_run: bool, yes: bool) -> None:
    """End a token at once and for good."""
    client = Client()
    preview = client.post(f"tokens/{token_id}/revoke", {}, dry_run=True)
    if dry_run:
        show(preview, preview["effect"])
        return
    confirm(preview["effect"], yes=yes)
    ended = client.post(f"tokens/{token_id}/revoke", {"reason": reason})
    show(ended, f"Token {ended['name']} (id {ended['id']}) is {ended['state']}.")
