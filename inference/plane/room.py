"""Who makes room when a version has too much: pure answers from who has how much in hand and weighs how much."""

from collections.abc import Mapping


def may_displace(tenant: str, held: Mapping[str, int], weights: Mapping[str, int], limit: int) -> list[str]:
    """Tenants whose newest request may go for one of `tenant`, furthest above its share first; it must be below its.

    held: requests in hand by tenant. limit: of all together.
    """
    active = {name: count for name, count in held.items() if count}
    total = sum(weights.get(name, 1) for name in {*active, tenant})
    shares = {name: limit * weights.get(name, 1) / total for name in {*active, tenant}}
    if active.get(tenant, 0) + 1 > shares[tenant]:
        return []
    above = [name for name in active if name != tenant and active[name] > shares[name]]
    return sorted(above, key=lambda name: shares[name] - active[name])


def is_shed_first(tenant: str, held: Mapping[str, int], weights: Mapping[str, int]) -> bool:
    """Whoever weighs less than another who is here; among equals, whoever has more in hand than its share."""
    active = {name: count for name, count in held.items() if count}
    own = weights.get(tenant, 1)
    told = [weights.get(name, 1) for name in active]
    if own < max(told, default=own):
        return True
    return active.get(tenant, 0) > sum(active.values()) * own / (sum(told) or 1)
