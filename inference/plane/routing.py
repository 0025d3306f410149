"""Which version answers a request: pinned cohorts first, then who stays with what they met, then the weights. Pure."""

import hashlib
from collections.abc import Mapping

from inference.plane.router import Wheel
from inference.protocol import RoutingSpec

_STEPS = 10_000


class Chooser:
    """One service's choice. headers: names in lower case whose values `choose` wants to see."""

    def __init__(self, weights: Mapping[int, int], routing: RoutingSpec | None) -> None:
        self._wheel = Wheel(list(weights.items()))
        self._weights = dict(weights)
        self._routing = routing
        self._tenants = frozenset(routing.tenants) if routing else frozenset()
        self._sticky_header = ""
        if routing is not None and routing.sticky.startswith("header:"):
            self._sticky_header = routing.sticky.removeprefix("header:")
        names = {match.header for match in routing.matches} if routing else set()
        self.headers = frozenset(names | ({self._sticky_header} - {""}))
        self.is_plain = routing is None or not (self._tenants or self.headers or routing.sticky)

    def same_as(self, weights: Mapping[int, int], routing: RoutingSpec | None) -> bool:
        """Nothing changed: the wheel goes on where it is."""
        return self._weights == dict(weights) and self._routing == routing

    def choose(self, tenant: str, headers: Mapping[str, str]) -> int | None:
        """The version's number; None when no version takes traffic. headers: of the request, by lower-case name."""
        routing = self._routing
        if routing is None or self.is_plain:
            return self._wheel.next()
        if tenant in self._tenants or self._matches(routing, headers):
            return routing.version
        share = self._weights.get(routing.version, 0)
        if routing.sticky and 0 < share < 100:
            key = headers.get(self._sticky_header, "") if self._sticky_header else tenant
            if key:
                return self._sticky(routing.version, share, key)
        return self._wheel.next()

    @staticmethod
    def _matches(routing: RoutingSpec, headers: Mapping[str, str]) -> bool:
        for match in routing.matches:
            value = headers.get(match.header)
            if value is None:
                continue
            if value == match.exact or (match.prefix is not None and value.startswith(match.prefix)):
                return True
        return False

    def _sticky(self, canary: int, share: int, key: str) -> int | None:
        """By a hash, so that every plane and node agrees without a word; who once met the canary stays as it grows."""
        digest = hashlib.blake2b(f"{canary}:{key}".encode(), digest_size=8).digest()
        if int.from_bytes(digest, "big") % _STEPS < share * _STEPS // 100:
            return canary
        return next(
            (number for number, weight in self._weights.items() if weight and number != canary), canary
        )


class Mirror:
    """Every request whose share of the mirrored percent is due, evenly spread."""

    __slots__ = ("_due", "percent")

    def __init__(self, percent: int) -> None:
        self.percent = percent
        self._due = 0

    def next(self) -> bool:
        self._due += self.percent
        if self._due < 100:
            return False
        self._due -= 100
        return True
