"""What every command prints: text for people, with `--json` one JSON document for programs."""

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import click

_JSON = "pilothouse.json"
F = TypeVar("F", bound=Callable[..., Any])


def _remember(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        context.meta[_JSON] = True


def json_option(command: F) -> F:
    """Adds `--json`; the command asks `wants_json()` or just calls `show`."""
    option = click.option(
        "--json",
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=_remember,
        help="Print JSON.",
    )
    return option(command)


def wants_json() -> bool:
    context = click.get_current_context(silent=True)
    return bool(context and context.meta.get(_JSON))


def show(data: Any, text: str | Callable[[], str]) -> None:
    """data: printed with --json, text: printed without."""
    if wants_json():
        click.echo(json.dumps(data, indent=2, default=str))
    else:
        click.echo(text() if callable(text) else text)


def note(sentence: str) -> None:
    """For the person beside the result: stderr, and not at all with --json."""
    if not wants_json():
        click.echo(sentence, err=True)


def table(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str], *, empty: str) -> str:
    """Aligned columns. columns: key of the row -> heading. empty: the sentence when there are no rows."""
    if not rows:
        return empty
    cells = [list(columns.values()), *([_cell(row.get(key)) for key in columns] for row in rows)]
    widths = [max(len(line[n]) for line in cells) for n in range(len(columns))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    )


def confirm(sentence: str, *, yes: bool) -> None:
    """Ask before a disruptive verb. Without a terminal nobody can answer, so `--yes` must have been given."""
    if yes:
        return
    click.echo(sentence, err=True)
    if not sys.stdin.isatty():
        raise click.UsageError("Nobody is there to confirm this; give --yes.")
    click.confirm("Go on?", abort=True, err=True)


def _cell(value: Any) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, str):
        return value
    if isinstance(value, Iterable) and not isinstance(value, Mapping):
        return ",".join(str(item) for item in value)
    return str(value)
