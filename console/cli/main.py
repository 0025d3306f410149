"""`pilothouse`: the entry. Commands live in their own modules and are loaded when named."""

import importlib
import json
import os
import sys
from collections.abc import Sequence
from importlib import metadata
from typing import Any

import click

from console.cli.client import ApiError, CliError
from console.cli.output import json_option, wants_json

FAILED, USAGE = 1, 2

# command -> where it lives
COMMANDS = {
    "up": "console.cli.up:up",
    "serve": "console.cli.serve:serve",
    "model": "console.cli.model:model",
    "rollout": "console.cli.rollout:rollout",
    "strategy": "console.cli.strategy:strategy",
    "token": "console.cli.token:token",
    "doctor": "console.cli.doctor:doctor",
}


class LazyGroup(click.Group):
    """Imports a command when it is asked for: `pilothouse token` should not pay for what `up` needs."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[name].partition(":")
        found: click.Command = getattr(importlib.import_module(module), attribute)
        return found


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(metadata.version("pilothouse"), message="pilothouse %(version)s")
@json_option
def pilothouse() -> None:
    """Operate a fleet of machine-learning models.

    Server address and token are PILOTHOUSE_URL and PILOTHOUSE_TOKEN; without them, those of the `pilothouse up` in
    PILOTHOUSE_HOME (./var) are used.
    """


def run(arguments: Sequence[str] | None = None, *, program: str = "pilothouse") -> int:
    """Run one command and return its exit code: 2 for wrong usage, 1 for any failure that has no code of its own."""
    as_json = "--json" in (sys.argv[1:] if arguments is None else arguments)
    try:
        result: Any = pilothouse.main(args=arguments, prog_name=program, standalone_mode=False)
    except click.UsageError as error:
        error.show()
        return USAGE
    except click.ClickException as error:
        error.show()
        return FAILED
    except (click.Abort, KeyboardInterrupt):
        click.echo("Stopped.", err=True)
        return FAILED
    except CliError as error:
        _explain(error, as_json=as_json)
        return error.exit_code
    except BrokenPipeError:  # `pilothouse model list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    return (
        result if isinstance(result, int) else 0
    )  # click hands the code of context.exit() back as the result


def _explain(error: CliError, *, as_json: bool) -> None:
    if as_json or wants_json():
        problem = error.problem if isinstance(error, ApiError) else {"code": "failed", "detail": str(error)}
        click.echo(json.dumps({"error": problem}, indent=2), err=True)
    else:
        click.echo(f"Error: {error}", err=True)


def main() -> None:
    """The console script."""
    sys.exit(run())


if __name__ == "__main__":
    main()
