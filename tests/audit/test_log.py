"""The audit log only grows, and is the outbox as well."""

import pytest
from django.db import transaction

from console.audit import log
from console.audit.models import Entry, ImmutableError
from console.kit import clock, events

pytestmark = pytest.mark.django_db


def test_a_row_says_who_did_what_to_what_and_why() -> None:
    entry = log.record(
        "user:ada",
        "quota.set",
        "quota:acme/file-type",
        tenant="acme",
        reason="r" * 600,
        before={"burst": 1},
        after={"burst": 2},
        topics=("tenant:acme", "tenant:acme"),
    )
    entry.refresh_from_db()
    assert (entry.before, entry.after, len(entry.reason)) == ({"burst": 1}, {"burst": 2}, 500)
    assert entry.topics == ["tenant:acme", "activity"]
    assert str(entry) == "user:ada quota.set quota:acme/file-type"


def test_rows_are_neither_changed_nor_deleted() -> None:
    entry = log.record("system", "node.silent", "node:n1")
    entry.verb = "node.happy"
    with pytest.raises(ImmutableError):
        entry.save()
    with pytest.raises(ImmutableError):
        entry.save(update_fields=["verb"])
    with pytest.raises(ImmutableError):
        entry.delete()
    with pytest.raises(ImmutableError):
        Entry.objects.filter(pk=entry.pk).update(verb="node.happy")
    with pytest.raises(ImmutableError):
        Entry.objects.bulk_update([entry], ["verb"])
    with pytest.raises(ImmutableError):
        Entry.objects.all().delete()
    assert Entry.objects.get().verb == "node.silent"


def test_that_a_row_was_announced_may_be_noted() -> None:
    entry = log.record("system", "node.silent", "node:n1")
    Entry.objects.filter(pk=entry.pk).update(announced_at=None)
    assert list(Entry.objects.not_announced()) == [entry]
    entry.announced_at = clock.now()
    entry.save(update_fields=["announced_at"])
    assert not Entry.objects.not_announced().exists()


@pytest.mark.django_db(transaction=True)
def test_topics_are_announced_after_the_commit_and_noted() -> None:
    with transaction.atomic():
        entry = log.record("system", "node.silent", "node:n1", topics=("nodes",))
        assert Entry.objects.not_announced().exists()
    entry.refresh_from_db()
    assert entry.announced_at is not None


@pytest.mark.django_db(transaction=True)
def test_what_could_not_be_announced_stays_in_the_outbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "push_all", lambda topics, version: False)
    log.record("system", "node.silent", "node:n1", topics=("nodes",))
    assert Entry.objects.not_announced().count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_change_that_is_undone_leaves_no_row() -> None:
    with pytest.raises(RuntimeError), transaction.atomic():
        log.record("system", "node.silent", "node:n1")
        raise RuntimeError
    assert not Entry.objects.exists()
