"""Which topics there are and who may hear them.

A message tells a topic and a number, nothing else; still, that `rollout:42` moved is a fact of its tenant alone. Apps
above register how to ask for their kind in AppConfig.ready.
"""

import re
from collections.abc import Callable

from console.tenants.permissions import Actor, visible_tenants

LONGEST = 300
_SHAPE = re.compile(r"[a-z]+(:[A-Za-z0-9][A-Za-z0-9._-]{0,254})?")

# (actor, the part behind the colon) -> may this be heard
Check = Callable[[Actor, str], bool]

# Topics of lists: that something in the house moved. Any member may hear them.
LISTS = frozenset({"services", "rollouts", "loadtests", "nodes", "activity", "tenants"})

_checks: dict[str, Check] = {}


def register(kind: str, check: Check) -> None:
    """check: may the actor hear `kind:<name>`."""
    _checks[kind] = check


def may_hear(actor: Actor, topic: object) -> bool:
    """False also for what is no topic at all: a reader is not told which of the two it was."""
    if not isinstance(topic, str) or len(topic) > LONGEST or _SHAPE.fullmatch(topic) is None:
        return False
    kind, _, name = topic.partition(":")
    if not name:
        return kind in LISTS and (actor.is_superuser or bool(actor.roles))
    check = _checks.get(kind)
    return check is not None and check(actor, name)


def _tenant(actor: Actor, slug: str) -> bool:
    return visible_tenants(actor).filter(slug=slug).exists()


register("tenant", _tenant)
