"""Strategies, rollouts, measurements and decisions."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from console.kit.errors import Conflict
from console.services.models import Service
from console.tenants.models import Tenant
from inference.models import Version
from rollouts.plan import Plan, parse
from rollouts.querysets import RolloutQuerySet, StrategyQuerySet
from rollouts.states import FACES, TERMINAL, TRANSITIONS, Face, Reason, State


class Strategy(models.Model):
    """A named list of steps, validated when saved. tenant null: offered to everyone."""

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, null=True, related_name="strategies")
    name = models.SlugField(max_length=63)
    steps = models.JSONField(help_text="validated by rollouts.plan")
    options = models.JSONField(default=dict, help_text="background, watch, deadline, sticky; likewise")
    source = models.TextField(blank=True, help_text="the foreign text it was imported from, as it was given")
    revision = models.PositiveIntegerField(default=1)

    objects = StrategyQuerySet.as_manager()

    class Meta:
        verbose_name_plural = "strategies"
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "name"], nulls_distinct=False, name="one_strategy_per_tenant_and_name"
            )
        ]

    def __str__(self) -> str:
        return self.name


class Rollout(models.Model):
    """One attempt to move a service to another version. The steps are a snapshot: later edits do not reach it."""

    service = models.ForeignKey(Service, on_delete=models.CASCADE, related_name="rollouts")
    from_version = models.ForeignKey(Version, on_delete=models.PROTECT, null=True, related_name="+")
    to_version = models.ForeignKey(Version, on_delete=models.PROTECT, related_name="rollouts")
    strategy_name = models.CharField(max_length=63, blank=True)
    steps = models.JSONField()
    options = models.JSONField(default=dict)
    on_new_version = models.CharField(max_length=9, default="supersede")

    state = models.CharField(max_length=11, choices=State, default=State.QUEUED)
    reason = models.CharField(max_length=24, choices=Reason, default=Reason.NONE, blank=True)
    message = models.CharField(
        max_length=500, blank=True, help_text="the reason as a sentence with its numbers"
    )
    step_index = models.PositiveSmallIntegerField(default=0)
    weight_percent = models.PositiveSmallIntegerField(default=0, help_text="wanted canary weight")
    # Times are stored, sleeps are not counted: a controller that was away resumes as if it had watched.
    step_started_at = models.DateTimeField(
        null=True, help_text="the step's own clock: starts when its weight is real"
    )
    judged_from = models.DateTimeField(
        null=True, help_text="gates count the measurements of the step since then"
    )
    beside_from = models.DateTimeField(
        null=True,
        help_text="the gates beside the steps count since then: a person resumed what they had stopped",
    )
    begun_at = models.DateTimeField(
        null=True, help_text="its turn came; the plan's deadline counts from here"
    )
    paused_at = models.DateTimeField(null=True)
    placed_at = models.DateTimeField(null=True, help_text="the canary's replicas were asked for")
    traffic_since = models.DateTimeField(null=True, help_text="every node sent the canary its first requests")
    moved_at = models.DateTimeField(null=True, help_text="of the last decision; deadlines count from it")
    outages = models.PositiveSmallIntegerField(
        default=0, help_text="times the canary lost its last ready replica"
    )
    measured = models.PositiveIntegerField(
        default=0, help_text="measurements taken; two ticks cannot take the same"
    )
    settled_at = models.DateTimeField(
        null=True, help_text="after the end: the fleet does what the state says and the lease is given back"
    )
    watch_until = models.DateTimeField(null=True, help_text="the promoted version is watched until then")
    watch_ended_at = models.DateTimeField(null=True)
    watch_outcome = models.CharField(max_length=9, blank=True, help_text="kept, returned or cancelled")
    retry_of = models.ForeignKey("self", on_delete=models.PROTECT, null=True, related_name="retries")

    revision = models.PositiveIntegerField(
        default=1, help_text="grows with every change; writes are conditional on it"
    )
    created_by = models.CharField(max_length=150)
    created_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True)

    objects = RolloutQuerySet.as_manager()

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["service"],
                condition=Q(state__in=["progressing", "paused"]),
                name="one_active_rollout_per_service",
            )
        ]
        indexes = [
            models.Index(fields=["state"], name="rollout_by_state"),
            # What every tick asks for, once a second, for as long as the history grows.
            models.Index(fields=["id"], condition=Q(settled_at__isnull=True), name="rollout_not_settled"),
            models.Index(
                fields=["id"],
                condition=Q(watch_until__isnull=False, watch_ended_at__isnull=True),
                name="rollout_watched",
            ),
        ]

    def __str__(self) -> str:
        return f"rollout {self.pk}: {self.service} to {self.to_version.number}"

    @property
    def is_terminal(self) -> bool:
        return State(self.state) in TERMINAL

    @property
    def is_settled(self) -> bool:
        return self.settled_at is not None

    @property
    def is_waiting_for_person(self) -> bool:
        return self.state == State.PAUSED

    @property
    def face(self) -> Face:
        return FACES[State(self.state)]

    @property
    def plan(self) -> Plan:
        return parse(self.steps, options=self.options)

    @property
    def target(self) -> str:
        """What its lease is on."""
        return f"service:{self.service.name}"

    @property
    def owner(self) -> str:
        """Its name as the holder of a lease and as an actor."""
        return f"rollout:{self.pk}"

    @property
    def topics(self) -> list[str]:
        return [f"rollout:{self.pk}", "rollouts", f"service:{self.service.name}"]

    def check_move(self, to: State) -> None:
        """Raises Conflict unless the state table has this transition; staying is none."""
        if to != self.state and to not in TRANSITIONS[State(self.state)]:
            raise Conflict(f"Rollout {self.pk} is {self.state}; from there it cannot become {to}.")


class Measurement(models.Model):
    """One reading of one gate: query as sent, raw value, requests it rests on, limit, verdict."""

    rollout = models.ForeignKey(Rollout, on_delete=models.CASCADE, related_name="measurements")
    step_index = models.PositiveSmallIntegerField()
    gate = models.CharField(max_length=63)
    indicator = models.CharField(max_length=32, blank=True)
    metric = models.CharField(
        max_length=100, blank=True, help_text="of the judge, which looks at several; @ names a stratum"
    )
    at = models.DateTimeField()
    verdict = models.CharField(
        max_length=14, help_text="pass, fail, inconclusive, no_data, provider_error, low_evidence"
    )
    value = models.FloatField(null=True)
    requests = models.FloatField(null=True)
    limit = models.CharField(max_length=63)
    stable_value = models.FloatField(null=True, help_text="of the stable version, where it was asked for")
    source = models.CharField(max_length=16)
    query = models.TextField()
    detail = models.CharField(max_length=500, blank=True)
    evidence = models.JSONField(default=dict, help_text="the judge's counts, e-values and interval")

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.gate} {self.verdict}"


class Decision(models.Model):
    """One immutable record for each transition: what was decided, by whom, on which numbers."""

    rollout = models.ForeignKey(Rollout, on_delete=models.CASCADE, related_name="decisions")
    at = models.DateTimeField()
    actor = models.CharField(max_length=150)
    kind = models.CharField(
        max_length=24, help_text="request, begin, place, shift, next_step, pause, resume, promote, abort, ..."
    )
    step_index = models.PositiveSmallIntegerField()
    from_state = models.CharField(max_length=11)
    to_state = models.CharField(max_length=11)
    weight_percent = models.PositiveSmallIntegerField()
    sentence = models.CharField(max_length=500)
    evidence = models.JSONField(default=dict)
    revision = models.PositiveIntegerField(help_text="of the rollout after this decision")

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["rollout", "revision"], name="one_decision_per_rollout_revision")
        ]

    def __str__(self) -> str:
        return self.sentence
