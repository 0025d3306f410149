"""Bodies of the rollouts and strategies endpoints. Answers are made by rollouts.present and only described here."""

from typing import Any

from rest_framework import serializers

from console.kit.serializers import StrictSerializer
from rollouts.actions import ON_NEW_VERSION
from rollouts.models import Strategy
from rollouts.states import Reason, State


class ReasonBody(StrictSerializer):
    reason = serializers.CharField(max_length=500, required=False, allow_blank=True, default="")


class RolloutBody(ReasonBody):
    """strategy: the name of one, or {"steps": [...]}; left out, it is the default strategy."""

    service = serializers.CharField(max_length=255)
    version = serializers.IntegerField(min_value=1)
    strategy = serializers.JSONField(required=False, allow_null=True, default=None)
    on_new_version = serializers.ChoiceField(ON_NEW_VERSION, required=False, default="supersede")

    def validate_strategy(self, value: Any) -> str | list[Any] | None:
        match value:
            case None | str():
                return value
            case {"steps": list(steps), **rest} if not rest:
                return steps
            case _:
                raise serializers.ValidationError('must be a name or {"steps": [...]}')


class StrategyBody(ReasonBody):
    name = serializers.SlugField(max_length=63)
    tenant = serializers.CharField(max_length=63)
    steps = serializers.ListField(child=serializers.JSONField())


class StrategyChange(ReasonBody):
    steps = serializers.ListField(child=serializers.JSONField())


class StrategyOut(serializers.ModelSerializer[Strategy]):
    """tenant null: offered to everyone."""

    tenant = serializers.CharField(source="tenant.slug", default=None)
    steps = serializers.ListField(child=serializers.DictField())

    class Meta:
        model = Strategy
        fields = ["id", "name", "tenant", "steps", "revision"]


class RolloutOut(serializers.Serializer[Any]):
    id = serializers.IntegerField()
    url = serializers.CharField()
    page = serializers.CharField()
    service = serializers.CharField()
    tenant = serializers.CharField()
    version = serializers.IntegerField()
    from_version = serializers.IntegerField(allow_null=True)
    strategy = serializers.CharField(allow_null=True)
    on_new_version = serializers.ChoiceField(ON_NEW_VERSION)
    state = serializers.ChoiceField(State.choices)
    reason = serializers.ChoiceField(Reason.choices)
    message = serializers.CharField()
    needs_person = serializers.BooleanField()
    settled = serializers.BooleanField()
    verbs = serializers.ListField(child=serializers.CharField())
    step_index = serializers.IntegerField()
    step_count = serializers.IntegerField()
    weight_percent = serializers.IntegerField()
    retry_of = serializers.IntegerField(allow_null=True)
    revision = serializers.IntegerField()
    created_by = serializers.CharField()
    created_at = serializers.DateTimeField()
    finished_at = serializers.DateTimeField(allow_null=True)


class RolloutDetailOut(RolloutOut):
    steps = serializers.ListField(child=serializers.DictField())
    measurements = serializers.ListField(child=serializers.DictField())
    decisions = serializers.ListField(child=serializers.DictField())


class WaitOut(RolloutDetailOut):
    """outcome: promoted, aborted, superseded, needs_person; after a timeout: running or settling."""

    outcome = serializers.CharField()
    timed_out = serializers.BooleanField()
