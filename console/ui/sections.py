"""The rail entries and jumps of the pages that belong to no single app."""

from django.urls import reverse

from console.tenants.permissions import Actor, visible_tenants
from console.ui import board
from console.ui.board import Entry, Jump, matches


class HousePages(board.Section):
    entries = (
        Entry("overview", "Overview", "ui:overview", "o", 10, on_phone=True),
        Entry("activity", "Activity", "ui:activity", "a", 80, on_phone=True),
        Entry("settings", "Settings", "ui:settings", "t", 99),
    )

    def jumps(self, reader: Actor, text: str) -> list[Jump]:
        pages = [Jump(entry.label, "page", reverse(entry.view)) for entry in board.entries()]
        pages.append(Jump("Component patterns", "page", reverse("ui:patterns")))
        found = [page for page in pages if matches(text, page.label)]
        if text:
            for tenant in visible_tenants(reader)[:50]:
                if matches(text, tenant.slug, tenant.name, "tenant"):
                    found.append(Jump(tenant.slug, "tenant", reverse("ui:tenant", args=[tenant.slug])))
        return found
