"""What surrounds every page: the person's preferences, tenants, the rail and the worst state. Read when first asked."""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from django.http import HttpRequest
from django.urls import reverse

from console.kit import request_ids
from console.tenants.models import Tenant
from console.tenants.permissions import actor_of, visible_tenants
from console.ui import board
from console.ui.models import Preference, Theme
from console.ui.scope import chosen_tenant, reader_of


@dataclass(frozen=True, slots=True)
class RailLine:
    key: str
    label: str
    url: str
    letter: str
    is_current: bool
    count: int
    role: str
    on_phone: bool


class Frame:
    themes = Theme.values
    sheets = tuple(f"css/{name}.css" for name in ("tokens", "base", "layout", "components", "pages"))

    def __init__(self, request: HttpRequest) -> None:
        self._request = request

    @property
    def is_signed_in(self) -> bool:
        user = getattr(self._request, "user", None)
        return bool(user is not None and user.is_authenticated)

    @cached_property
    def preference(self) -> Preference:
        if not self.is_signed_in:
            return Preference()
        return Preference.objects.filter(user=self._request.user.pk).first() or Preference()

    @cached_property
    def tenants(self) -> list[Tenant]:
        return list(visible_tenants(actor_of(self._request))) if self.is_signed_in else []

    @cached_property
    def tenant(self) -> Tenant | None:
        return chosen_tenant(self._request) if self.is_signed_in else None

    @cached_property
    def needs(self) -> list[board.Need]:
        return board.needs(reader_of(self._request)) if self.is_signed_in else []

    @property
    def worst(self) -> str:
        return board.worst(need.role for need in self.needs)

    @cached_property
    def rail(self) -> list[RailLine]:
        counted = Counter(need.section for need in self.needs)
        here = self._here
        return [
            RailLine(
                key=entry.key,
                label=entry.label,
                url=reverse(entry.view),
                letter=entry.letter,
                is_current=entry.key == here,
                count=counted[entry.key],
                role=board.worst(need.role for need in self.needs if need.section == entry.key),
                on_phone=entry.on_phone,
            )
            for entry in board.entries()
        ]

    @property
    def request_id(self) -> str:
        return request_ids.current()

    @property
    def _here(self) -> str:
        """The section of the present page: of the rail's own refresh, the page that asked."""
        path = (
            self._request.GET.get("at", "")
            if self._request.path == reverse("ui:rail")
            else self._request.path
        )
        if path == reverse("ui:overview"):
            return "overview"
        inside = [entry for entry in board.entries() if entry.key != "overview"]
        return next((entry.key for entry in inside if path.startswith(reverse(entry.view))), "")


def frame(request: HttpRequest) -> dict[str, Frame]:
    """Context processor. Nothing is read unless the template asks for it."""
    return {"frame": Frame(request)}
