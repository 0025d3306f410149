"""Tenants whose requests spoil batches: after the third time theirs of that form run alone for a while. Pure."""

from typing import Final

from inference.plane.plans import Wire

STRIKES: Final = 3
FORGET_SECONDS: Final = 600.0
QUARANTINE_SECONDS: Final = 60.0
MOST: Final = 1024


class Quarantine:
    """count: how often somebody was put in."""

    def __init__(self) -> None:
        self.count = 0
        self._strikes: dict[tuple[str, Wire], list[float]] = {}
        self._inside: dict[tuple[str, Wire], tuple[float, Wire]] = {}

    def __bool__(self) -> bool:
        return bool(self._inside)

    def __len__(self) -> int:
        return len(self._inside)

    def strike(self, tenant: str, wire: Wire, now: float) -> Wire | None:
        """A request of theirs failed alone after it made a batch fail. Returns the wire they run on now, if any."""
        key = tenant, wire
        if key in self._inside or any(own is wire for _, own in self._inside.values()):
            return None
        if len(self._strikes) >= MOST:
            self._strikes.clear()
        recent = [at for at in self._strikes.pop(key, []) if now - at < FORGET_SECONDS]
        recent.append(now)
        if len(recent) < STRIKES:
            self._strikes[key] = recent
            return None
        self.count += 1
        # Equal in all but identity, so that nothing joins it.
        own = Wire(wire.batched, wire.inputs, wire.outputs)
        self._inside[key] = now + QUARANTINE_SECONDS, own
        return own

    def wire_of(self, tenant: str, wire: Wire) -> Wire:
        """Where a new request belongs."""
        found = self._inside.get((tenant, wire))
        return wire if found is None else found[1]

    def release(self, now: float) -> list[Wire]:
        """The wires of those whose time is over."""
        over = [key for key, (until, _) in self._inside.items() if until <= now]
        return [self._inside.pop(key)[1] for key in over]

    def inside(self) -> list[str]:
        return sorted({tenant for tenant, _ in self._inside})
