from collections.abc import Iterator
from typing import Any

from django.apps import AppConfig


class AuditConfig(AppConfig):
    name = "console.audit"
    label = "audit"

    def ready(self) -> None:
        from console.audit.models import Entry
        from console.kit.metrics import register_gauge

        def backlog() -> Iterator[tuple[dict[str, Any], float]]:
            yield {}, float(Entry.objects.not_announced().count())

        register_gauge("pilothouse_outbox_backlog", "Audit rows whose topics are not announced yet.", backlog)
