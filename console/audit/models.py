"""The audit log, which is also the outbox: `topics` not yet announced are swept by console.live."""

from django.db import models


class Entry(models.Model):
    at = models.DateTimeField(auto_now_add=True, db_index=True)
    actor = models.CharField(max_length=150, help_text="user:ada, token:ci, rollout:42, system")
    verb = models.CharField(max_length=63, help_text="service.register, rollout.abort, ...")
    target = models.CharField(max_length=255, help_text="rollout:42, service:file-type, ...")
    tenant = models.CharField(max_length=63, blank=True, db_index=True, help_text="slug; empty for the whole house")
    reason = models.CharField(max_length=500, blank=True)
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)
    topics = models.JSONField(default=list)
    announced_at = models.DateTimeField(null=True)

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
