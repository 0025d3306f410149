"""What a verb would do, in numbers, computed by the same code that does it; also the answer to `?dry_run=true`."""

import math
from collections.abc import Callable
from typing import Any

from console.kit.previews import Preview
from console.metrics.choose import source
from console.metrics.source import Indicator, Query, Value
from console.tenants.permissions import Actor
from rollouts.actions import Draft, check
from rollouts.bake import bakes_of
from rollouts.models import Rollout


def of_start(draft: Draft) -> dict[str, Any]:
    """The plan as it would run, with its estimated minutes and what it touches."""
    wanted, plan = draft.wanted, draft.plan
    stable = f"version {draft.stable.number}" if draft.stable else "nothing"
    minutes = math.ceil(plan.estimated_seconds / 60)
    waits = ", and it pauses until a person resumes" if plan.waits_for_person else ""
    preview = Preview(
        f"{wanted.service} goes from {stable} to version {wanted.version.number} in {len(plan.steps)} steps, "
        f"about {minutes} min{waits}.",
        (
            _traffic(wanted.service.name),
            *(f"rollout {other.pk} to version {other.to_version.number} ends" for other in draft.supersedes),
            *(f"waits for rollout {other.pk} to end" for other in draft.behind),
        ),
    )
    return {
        **preview.as_json(),
        "service": wanted.service.name,
        "from_version": draft.stable.number if draft.stable else None,
        "version": wanted.version.number,
        "strategy": draft.strategy_name or None,
        "estimated_minutes": minutes,
        "waits_for_person": plan.waits_for_person,
        "supersedes": [other.pk for other in draft.supersedes],
        "waits_for": [other.pk for other in draft.behind],
        "bakes": [
            {
                "step": bake.step,
                "gate": bake.gate,
                "equal_seconds": bake.equal_seconds,
                "harmful_seconds": bake.harmful_seconds,
                "sentence": bake.sentence,
            }
            for bake in bakes_of(
                plan, wanted.service.name, draft.stable.number if draft.stable else None, source()
            )
        ],
        "options": plan.options_as_json(),
        "steps": [
            {
                "index": index,
                "spec": step.as_json(),
                "sentence": step.sentence,
                "weight_percent": plan.weight_at(index),
                "estimated_seconds": step.seconds,
            }
            for index, step in enumerate(plan.steps)
        ],
    }


def of_verb(rollout: Rollout, verb: str, *, actor: Actor) -> dict[str, Any]:
    """Raises what the verb itself would raise."""
    check(rollout, verb, actor=actor)
    preview = Preview(_EFFECTS[verb](rollout), (_traffic(rollout.service.name),), rollout.revision)
    return {
        **preview.as_json(),
        "id": rollout.pk,
        "state": rollout.state,
        "from_percent": rollout.weight_percent,
        "to_percent": _weight_after(rollout, verb),
    }


def _weight_after(rollout: Rollout, verb: str) -> int:
    match verb:
        case "abort":
            return 0
        case "promote":
            return 100
        case "skip" | "resume":
            passes = verb == "skip" or rollout.reason == "pause_step"
            index = rollout.step_index + passes
            return 100 if index >= len(rollout.steps) else rollout.plan.weight_at(index)
        case "retry":
            return rollout.plan.weight_at(0)
        case _:
            return rollout.weight_percent


def _promote(rollout: Rollout) -> str:
    left = len(rollout.steps) - rollout.step_index
    return (
        f"Version {rollout.to_version.number} gets all the requests of {rollout.service} "
        f"({rollout.weight_percent} % -> 100 %); {left} steps with their gates are skipped."
    )


def _abort(rollout: Rollout) -> str:
    stable = rollout.from_version.number if rollout.from_version else "none"
    return f"All requests go back to version {stable} ({rollout.weight_percent} % -> 0 %)."


def _skip(rollout: Rollout) -> str:
    step = rollout.plan.step(rollout.step_index)
    undone = f"is left undone: {step.sentence}" if step is not None else "is the last"
    return f"Step {rollout.step_index + 1} of {len(rollout.steps)} {undone}."


def _pause(rollout: Rollout) -> str:
    return f"Every step holds; version {rollout.to_version.number} keeps {rollout.weight_percent} %."


def _resume(rollout: Rollout) -> str:
    return f"The rollout goes on at step {rollout.step_index + 1} of {len(rollout.steps)}."


def _retry(rollout: Rollout) -> str:
    return f"A new rollout of version {rollout.to_version.number} begins at step 1 of {len(rollout.steps)}."


_EFFECTS: dict[str, Callable[[Rollout], str]] = {
    "pause": _pause,
    "resume": _resume,
    "skip": _skip,
    "promote": _promote,
    "abort": _abort,
    "retry": _retry,
}


def _traffic(service: str) -> str:
    reading = source().read(Query(Indicator.REQUEST_RATE, service, window_seconds=60))
    if isinstance(reading, Value):
        return f"{service} answers about {reading.value:.3g} requests/s"
    return f"how many requests {service} gets is not known: {reading.reason}"
