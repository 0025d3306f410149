from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from console.kit.errors import OperationError
from inference.demo import DemoUnavailable, seed


class Command(BaseCommand):
    help = "Make the demo: tenants, people, keys and three versions of a real model. Safe to repeat."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--url", default="http://127.0.0.1:8000", help="the console's address, for the file"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            for made in seed.make(url=options["url"], plane_url=settings.PLANE_URL):
                self.stdout.write(f"made {made}")
        except (OperationError, DemoUnavailable) as error:
            raise CommandError(str(error)) from None
