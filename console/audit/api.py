"""Reading the audit log over REST. Who may read what is known one layer up: console.tenants.audit_api mounts this."""

from collections.abc import Mapping

from django.db.models import QuerySet
from rest_framework import serializers

from console.audit.models import Entry

FILTERS: Mapping[str, str] = {"actor": "actor", "verb": "verb", "target": "target", "tenant": "tenant"}


class EntryOut(serializers.ModelSerializer[Entry]):
    class Meta:
        model = Entry
        fields = ["id", "at", "actor", "verb", "target", "tenant", "reason", "before", "after"]


def filtered(rows: QuerySet[Entry], wanted: Mapping[str, str]) -> QuerySet[Entry]:
    """Exact matches on actor, verb, target and tenant; a verb that ends in a dot matches all of its kind: `rollout.`"""
    for name, column in FILTERS.items():
        value = wanted.get(name)
        if value:
            lookup = f"{column}__startswith" if name == "verb" and value.endswith(".") else column
            rows = rows.filter(**{lookup: value})
    return rows
