"""Every way to say no: a status, a sentence, and for limits the numbers behind them."""

import math
from dataclasses import dataclass

import orjson


@dataclass(frozen=True, slots=True)
class Limit:
    """name: rate, concurrency, queue, worker, connections or memory. remaining: what is left of `value`."""

    name: str
    value: float
    remaining: float
    retry_seconds: float


class RefusedError(Exception):
    """status is HTTP's. limit: set on 429 and 503."""

    def __init__(self, status: int, sentence: str, limit: Limit | None = None) -> None:
        self.status = status
        self.limit = limit
        super().__init__(sentence)


def body(refused: RefusedError) -> bytes:
    """`{"error": sentence}`, and beside it the limit in numbers for programs."""
    told: dict[str, object] = {"error": str(refused)}
    limit = refused.limit
    if limit is not None:
        told["limit"] = {
            "name": limit.name,
            "value": limit.value,
            "remaining": limit.remaining,
            "retry_after_seconds": round(limit.retry_seconds, 3),
        }
    return orjson.dumps(told)


def headers(refused: RefusedError) -> bytes:
    """Header lines, each with its line end."""
    limit = refused.limit
    if limit is None:
        return b'www-authenticate: Bearer realm="pilothouse"\r\n' if refused.status == 401 else b""
    wait = max(1, math.ceil(limit.retry_seconds))
    lines = b"retry-after: %d\r\n" % wait
    if refused.status == 429:
        lines += b"x-ratelimit-limit: %s\r\nx-ratelimit-remaining: %d\r\nx-ratelimit-reset: %d\r\n" % (
            f"{limit.value:g}".encode(),
            limit.remaining,
            wait,
        )
    return lines
