"""The boundary around ticks: what goes wrong with one rollout stops no other."""

import logging
from collections.abc import Callable

from rollouts import watch
from rollouts.controller import tick
from rollouts.models import Rollout

log = logging.getLogger(__name__)


def tick_all() -> None:
    # Oldest first: who ends makes room for who waits, in the same round.
    for rollout_id in Rollout.objects.due().order_by("pk").values_list("pk", flat=True):
        tick_safely(rollout_id)
    for rollout_id in Rollout.objects.watched().order_by("pk").values_list("pk", flat=True):
        tick_safely(rollout_id, look=watch.tick)


def tick_safely(rollout_id: int, *, look: Callable[[int], None] | None = None) -> None:
    try:
        (look or tick)(rollout_id)
    except Rollout.DoesNotExist:
        return
    except Exception:
        log.exception("the tick of rollout %s failed", rollout_id)
