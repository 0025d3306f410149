"""Cursor pages: rows that arrive while a reader turns pages are neither shown twice nor lost."""

from typing import Any

from rest_framework.exceptions import NotFound
from rest_framework.pagination import CursorPagination
from rest_framework.request import Request

from console.kit.errors import Invalid

LIMIT_MAXIMUM = 200


class NewestFirst(CursorPagination):
    """`?limit=` (1 to 200, default 50) and `?cursor=` taken from `next` or `previous`."""

    ordering: Any = "-id"
    page_size = 50
    page_size_query_param = "limit"
    max_page_size = LIMIT_MAXIMUM
    invalid_cursor_message = "This cursor was not made by this list."

    def get_page_size(self, request: Request) -> int:
        raw = request.query_params.get("limit")
        if raw is None:
            return self.page_size
        if not raw.isascii() or not raw.isdigit() or len(raw) > 4 or not 1 <= int(raw) <= LIMIT_MAXIMUM:
            raise Invalid(
                "The limit is out of bounds.", fields={"limit": f"a whole number from 1 to {LIMIT_MAXIMUM}"}
            )
        return int(raw)

    def decode_cursor(self, request: Request) -> Any:
        try:
            return super().decode_cursor(request)
        except NotFound:
            raise Invalid(
                self.invalid_cursor_message, fields={"cursor": "take it from `next` or `previous`"}
            ) from None


class ByName(NewestFirst):
    ordering = "name"


class BySlug(NewestFirst):
    ordering = "slug"
