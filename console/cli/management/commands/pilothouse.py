"""`python manage.py pilothouse ...` is the same as `pilothouse ...`."""

import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from console.cli.main import run


class Command(BaseCommand):
    help = "The pilothouse command line."
    requires_system_checks = []

    def run_from_argv(self, argv: list[str]) -> None:
        """Past argparse, which would take --help, --version and --settings for itself."""
        sys.exit(run(argv[2:], program="manage.py pilothouse"))

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("arguments", nargs="*")

    def handle(self, *args: Any, arguments: list[str], **options: Any) -> None:
        if code := run(arguments):
            raise CommandError(f"pilothouse {' '.join(arguments)} failed", returncode=code)
