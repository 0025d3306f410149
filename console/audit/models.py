"""The audit log, which is also the outbox: `topics` not yet announced are swept by console.live."""

from typing import Any, NoReturn

from django.db import models

_MAY_CHANGE = frozenset({"announced_at"})


class ImmutableError(TypeError):
    """The audit log only grows: a programmer's error, not a refusal to a caller."""


class EntryQuerySet(models.QuerySet["Entry"]):
    def not_announced(self) -> "EntryQuerySet":
        return self.filter(announced_at__isnull=True)

    def update(self, **changes: Any) -> int:
        if not _MAY_CHANGE.issuperset(changes):
            raise ImmutableError(f"audit rows keep their {', '.join(sorted(changes.keys() - _MAY_CHANGE))}")
        return super().update(**changes)

    def bulk_update(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise ImmutableError("audit rows are written once")

    def delete(self) -> NoReturn:
        raise ImmutableError("audit rows are not deleted")


class Entry(models.Model):
    at = models.DateTimeField(auto_now_add=True, db_index=True)
    actor = models.CharField(max_length=170, help_text="user:ada, token:ci, rollout:42, system")
    verb = models.CharField(max_length=63, help_text="service.register, rollout.abort, ...")
    target = models.CharField(max_length=255, help_text="rollout:42, service:file-type, ...")
    tenant = models.CharField(
        max_length=63, blank=True, db_index=True, help_text="slug; empty for the whole house"
    )
    reason = models.CharField(max_length=500, blank=True)
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)
    topics = models.JSONField(default=list)
    announced_at = models.DateTimeField(null=True)

    objects = EntryQuerySet.as_manager()

    class Meta:
        verbose_name_plural = "entries"
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["target", "-id"], name="audit_by_target"),
            models.Index(
                fields=["id"], condition=models.Q(announced_at__isnull=True), name="audit_not_announced"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.actor} {self.verb} {self.target}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        if not self._state.adding and not _MAY_CHANGE.issuperset(
            kwargs.get("update_fields") or {"everything"}
        ):
            raise ImmutableError("audit rows are written once")
        super().save(*args, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise ImmutableError("audit rows are not deleted")
