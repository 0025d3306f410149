"""Load tests, run by us or uploaded."""

from __future__ import annotations

from typing import Self

from django.db import models
from django.db.models import Q

from console.loadtests.states import (
    FACES,
    STOPPING,
    TERMINAL,
    TRANSITIONS,
    UNFINISHED,
    VERDICTS,
    Face,
    State,
    Verdict,
)
from console.tenants.models import Tenant
from console.tenants.permissions import Actor, Scope


class Source(models.TextChoices):
    RUN = "run"
    UPLOAD = "upload"


class LoadTestQuerySet(models.QuerySet["LoadTest"]):
    def for_actor(self, actor: Actor) -> Self:
        """Load tests of the actor's tenants."""
        if not actor.holds(Scope.READ):
            return self.none()
        return self if actor.is_superuser else self.filter(tenant__in=list(actor.roles))

    def unfinished(self) -> Self:
        return self.filter(state__in=UNFINISHED)

    def with_names(self) -> Self:
        return self.select_related("tenant")

    def without_report(self) -> Self:
        """For lists: the report of a long run is large."""
        return self.defer("report")


class LoadTest(models.Model):
    """One run of load against a service on behalf of a tenant, or the same figures from somebody else's CSV."""

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="loadtests")
    service = models.CharField(max_length=255, help_text="a name: results outlive the service")
    version = models.PositiveIntegerField(null=True, help_text="pinned; null is whatever the weights choose")
    source = models.CharField(max_length=6, choices=Source, default=Source.RUN)
    title = models.CharField(max_length=120, blank=True)
    settings = models.JSONField(
        help_text="validated by console.loadtests.plan; of an upload the column mapping"
    )
    thresholds = models.JSONField(default=list, help_text="as typed, such as p99=250ms")

    state = models.CharField(max_length=9, choices=State, default=State.QUEUED)
    message = models.CharField(max_length=500, blank=True, help_text="why it is in its state, as a sentence")
    verdict = models.CharField(max_length=6, choices=Verdict, default=Verdict.NONE)
    report = models.JSONField(null=True)
    # Columns of what lists sort and show: a report is read for one page only.
    requests = models.PositiveBigIntegerField(null=True)
    errors = models.PositiveBigIntegerField(null=True)
    qps = models.FloatField(null=True)
    p99_ms = models.FloatField(null=True)

    node = models.CharField(max_length=150, blank=True, help_text="the agent that runs it")
    pid = models.PositiveIntegerField(null=True)
    pid_started = models.PositiveBigIntegerField(
        null=True, help_text="the kernel's start time, tells pids apart"
    )
    beat_at = models.DateTimeField(null=True, help_text="the agent's last sign that the process lives")
    stop_asked_at = models.DateTimeField(null=True)
    token_id = models.PositiveBigIntegerField(
        null=True, help_text="the key made for this run; revoked at its end"
    )
    csv_bytes = models.PositiveBigIntegerField(default=0, help_text="0: not kept, or removed to make room")

    revision = models.PositiveIntegerField(default=1)
    created_by = models.CharField(max_length=170)
    created_at = models.DateTimeField()
    started_at = models.DateTimeField(
        null=True, help_text="the first request; before it the key travels to the planes"
    )
    finished_at = models.DateTimeField(null=True)

    objects = LoadTestQuerySet.as_manager()

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["service"],
                condition=Q(state__in=["queued", "running"]),
                name="one_loadtest_per_service_at_a_time",
            )
        ]
        indexes = [
            models.Index(fields=["tenant", "-id"], name="loadtest_by_tenant"),
            models.Index(
                fields=["id"], condition=Q(state__in=["queued", "running"]), name="loadtest_unfinished"
            ),
        ]

    def __str__(self) -> str:
        return f"load test {self.pk} of {self.service}"

    @property
    def is_terminal(self) -> bool:
        return State(self.state) in TERMINAL

    @property
    def is_upload(self) -> bool:
        return self.source == Source.UPLOAD

    @property
    def face(self) -> Face:
        if self.stop_asked_at is not None and not self.is_terminal:
            return STOPPING
        return FACES[State(self.state)]

    @property
    def judged(self) -> Face:
        """What the thresholds say, as a page shows it."""
        return VERDICTS[Verdict(self.verdict)]

    @property
    def target(self) -> str:
        return f"loadtest:{self.pk}"

    @property
    def topics(self) -> list[str]:
        return [self.target, "loadtests"]

    @property
    def error_ratio(self) -> float | None:
        return None if not self.requests else (self.errors or 0) / self.requests

    def may_become(self, to: State) -> bool:
        return to in TRANSITIONS[State(self.state)]

    @property
    def seconds(self) -> float:
        """How long its run is to take, warm-up included; 0 of an upload."""
        return float(sum(self.settings.get(name) or 0 for name in ("duration_seconds", "warmup_seconds")))
