"""What list pages share: filters, sort and page live in the URL, and every list is bounded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from django.core.paginator import Page, Paginator
from django.db.models import QuerySet
from django.http import HttpRequest, QueryDict

M = TypeVar("M")

PER_PAGE = 25
LONGEST_FILTER = 100


@dataclass(frozen=True, slots=True)
class Filters:
    """The filters a reader set; unknown parameters are ignored, long ones cut."""

    values: Mapping[str, str]
    query: QueryDict

    def of(self, name: str) -> str:
        """Not a subscript: templates try that before attributes, and would find every name empty."""
        return self.values.get(name, "")

    @property
    def is_set(self) -> bool:
        return any(self.values.values())

    @property
    def text(self) -> str:
        """The active filters in words, for `No rollout matches ...`."""
        return " ".join(f"{name}:{value}" for name, value in self.values.items() if value)


def filters_of(request: HttpRequest, names: Sequence[str]) -> Filters:
    values = {name: request.GET.get(name, "").strip()[:LONGEST_FILTER] for name in names}
    return Filters(values, request.GET)


@dataclass(frozen=True)
class Listing(Generic[M]):
    """One page of rows. total: all that match the filters."""

    page: Page[M]
    filters: Filters

    @property
    def rows(self) -> list[M]:
        return list(self.page.object_list)

    @property
    def total(self) -> int:
        return self.page.paginator.count


def listed(
    request: HttpRequest, rows: "QuerySet[Any] | Sequence[M]", filters: Filters, *, per_page: int = PER_PAGE
) -> Listing[M]:
    """A page number that is nonsense or too high shows the nearest page there is."""
    return Listing(Paginator(rows, per_page).get_page(request.GET.get("page", "1")[:9]), filters)
