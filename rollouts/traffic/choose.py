"""The table of traffic targets."""

from rollouts.traffic.base import TrafficTarget
from rollouts.traffic.embedded import EmbeddedTarget

TARGETS: dict[str, type[TrafficTarget]] = {"embedded": EmbeddedTarget}


def target(kind: str = "embedded") -> TrafficTarget:
    return TARGETS[kind]()
