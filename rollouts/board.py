"""What rollouts tell the overview, the rail and Jump."""

from datetime import timedelta

from django.db.models import Exists, OuterRef
from django.urls import reverse

from console.kit import clock
from console.tenants.permissions import Actor, may
from console.ui import board
from console.ui.board import Entry, Jump, Need, Running, matches
from rollouts.models import Rollout
from rollouts.states import Reason, State

# An abort that nobody followed up is worth a look for this long.
ABORT_SHOWN = timedelta(hours=4)
_MOST = 100
_MOST_JUMPS = 8

# What a pause asks of a person, by its reason: (word, next action).
ASKED = {
    Reason.PAUSE_STEP: ("waits for you", "Review"),
    Reason.MANUAL: ("paused by hand", "Resume or abort"),
    Reason.INCONCLUSIVE: ("gate inconclusive", "Review"),
    Reason.NO_DATA: ("no data", "Review"),
    Reason.LOW_EVIDENCE: ("too few requests", "Review"),
    Reason.PROVIDER_ERROR: ("no signal source", "Review"),
}


def title_of(rollout: Rollout) -> str:
    before = f"{rollout.from_version.number} → " if rollout.from_version else ""
    return f"{rollout.service.name} {before}{rollout.to_version.number}"


def address_of(rollout: Rollout) -> str:
    return reverse("rollouts:rollout", args=[rollout.pk])


class RolloutsSection(board.Section):
    entries = (Entry("rollouts", "Rollouts", "rollouts:rollouts", "r", 30, on_phone=True),)

    def needs(self, reader: Actor) -> list[Need]:
        rows = Rollout.objects.for_actor(reader).with_names()
        paused = [self._paused(one) for one in rows.filter(state=State.PAUSED)[:_MOST]]
        later = Rollout.objects.filter(service=OuterRef("service"), pk__gt=OuterRef("pk"))
        since = clock.now() - ABORT_SHOWN
        failed = rows.filter(state=State.ABORTED, finished_at__gte=since).exclude(reason=Reason.MANUAL)
        return paused + [self._failed(one) for one in failed.exclude(Exists(later))[:_MOST]]

    def _paused(self, rollout: Rollout) -> Need:
        word, action = ASKED.get(Reason(rollout.reason), ("paused", "Review"))
        url = address_of(rollout)
        return Need(
            "rollouts", "warn", word, title_of(rollout), url, rollout.paused_at, rollout.message, action, url
        )

    def _failed(self, rollout: Rollout) -> Need:
        url = address_of(rollout)
        return Need(
            "rollouts",
            "fail",
            rollout.face.word,
            title_of(rollout),
            url,
            rollout.finished_at,
            rollout.message,
            "See why",
            url,
        )

    def running(self, reader: Actor) -> list[Running]:
        rows = Rollout.objects.for_actor(reader).unfinished().with_names()[:_MOST]
        return [
            Running(
                role=one.face.role,
                word=one.face.word,
                subject=title_of(one),
                url=address_of(one),
                why=one.message,
                done_percent=round(100 * one.step_index / max(len(one.steps), 1)),
                service=one.service.name,
            )
            for one in rows
        ]

    def jumps(self, reader: Actor, text: str) -> list[Jump]:
        found = []
        for rollout in Rollout.objects.for_actor(reader).with_names()[:50]:
            label = f"rollout {rollout.pk}: {title_of(rollout)}"
            if text and matches(text, label, rollout.state):
                found.append(Jump(label, rollout.state, address_of(rollout)))
            for verb in sorted(rollout.face.verbs):
                if (
                    text
                    and matches(text, verb, label)
                    and may(reader, f"rollout.{verb}", rollout.service.tenant)
                ):
                    url = reverse("rollouts:verb", args=[rollout.pk, verb])
                    found.append(Jump(f"{verb} {label}", "verb", url, dialog=True))
        if text and matches(text, "start rollout", "new"):
            found.append(Jump("start a rollout", "verb", reverse("rollouts:new")))
        return found[: 2 * _MOST_JUMPS]


def may_hear(actor: Actor, name: str) -> bool:
    return (
        name.isdigit() and len(name) < 19 and Rollout.objects.for_actor(actor).filter(pk=int(name)).exists()
    )
