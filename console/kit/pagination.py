"""Cursor pages: rows that arrive while a reader turns pages are neither shown twice nor lost."""

from typing import Any
from urllib.parse import urlsplit

from django.core import signing
from rest_framework.pagination import Cursor, CursorPagination
from rest_framework.request import Request
from rest_framework.utils.urls import replace_query_param

from console.kit.errors import Invalid

LIMIT_MAXIMUM = 200


class NewestFirst(CursorPagination):
    """`?limit=` (1 to 200, default 50) and `?cursor=` taken from `next` or `previous`."""

    ordering: Any = "-id"
    page_size = 50
    page_size_query_param = "limit"
    max_page_size = LIMIT_MAXIMUM

    def get_page_size(self, request: Request) -> int:
        raw = request.query_params.get("limit")
        if raw is None:
            return self.page_size
        if not raw.isascii() or not raw.isdigit() or len(raw) > 4 or not 1 <= int(raw) <= LIMIT_MAXIMUM:
            raise Invalid(
                "The limit is out of bounds.", fields={"limit": f"a whole number from 1 to {LIMIT_MAXIMUM}"}
            )
        return int(raw)

    # Signed and bound to the list: DRF's own cursor lets a caller put any text into the query on the ordering column.
    def encode_cursor(self, cursor: Any) -> str:
        url = str(self.base_url)
        place = signing.dumps(
            [cursor.offset, cursor.reverse, cursor.position], salt=_salt(urlsplit(url).path)
        )
        return replace_query_param(url, self.cursor_query_param, place)

    def decode_cursor(self, request: Request) -> Any:
        raw = request.query_params.get(self.cursor_query_param)
        if raw is None:
            return None
        try:
            offset, reverse, position = signing.loads(raw, salt=_salt(request.path))
        except signing.BadSignature:
            raise Invalid(
                "This cursor was not made by this list.",
                fields={"cursor": "take it from `next` or `previous`"},
            ) from None
        return Cursor(offset=offset, reverse=reverse, position=position)


def _salt(path: str) -> str:
    return f"cursor:{path}"


class ByName(NewestFirst):
    ordering = "name"


class BySlug(NewestFirst):
    ordering = "slug"
