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
    """strategy: the name of one, or {"steps": [...], ...} with background, watch, deadline and sticky as it likes.

    Left out, it is the short way back for a version that lately was stable, else the default strategy.
    """

    service = serializers.CharField(max_length=255)
    version = serializers.IntegerField(min_value=1)
    strategy = serializers.JSONField(required=False, allow_null=True, default=None)
    on_new_version = serializers.ChoiceField(ON_NEW_VERSION, required=False, default="supersede")

    def validate_strategy(self, value: Any) -> str | dict[str, Any] | None:
        match value:
            case None | str() | {"steps": list()}:
                return value
            case _:
                raise serializers.ValidationError('must be a name or {"steps": [...]}')


class StrategyChange(ReasonBody):
    """options: background, watch, deadline and sticky, each as it likes."""

    steps = serializers.ListField(child=serializers.JSONField())
    options = serializers.DictField(required=False, default=dict)


class StrategyBody(StrategyChange):
    name = serializers.SlugField(max_length=63)
    tenant = serializers.CharField(max_length=63)


class ImportBody(ReasonBody):
    """text: YAML of an Argo Rollout with its templates, or of a Flagger Canary. name: else the one in the text."""

    text = serializers.CharField(max_length=262_144, trim_whitespace=False)
    tenant = serializers.CharField(max_length=63)
    name = serializers.SlugField(max_length=63, required=False, allow_blank=True, default="")


class ReportLineOut(serializers.Serializer[Any]):
    """fate: honoured, changed, ignored or refused."""

    path = serializers.CharField()
    fate = serializers.CharField()
    why = serializers.CharField(allow_blank=True)


class ImportOut(serializers.Serializer[Any]):
    """id null: nothing was saved, since something was refused or it was a dry run."""

    id = serializers.IntegerField(allow_null=True)
    kind = serializers.CharField()
    name = serializers.CharField()
    strategy = serializers.DictField(allow_null=True)
    report = ReportLineOut(many=True)


class ExportOut(serializers.Serializer[Any]):
    text = serializers.CharField()
    report = ReportLineOut(many=True)


class ReplayBody(StrictSerializer):
    """hours: how far back; every: seconds between the starts that are tried."""

    service = serializers.CharField(max_length=255)
    hours = serializers.FloatField(min_value=0.05, max_value=720, required=False, default=24)
    starts = serializers.IntegerField(min_value=1, max_value=200, required=False, default=20)


class ReplayOut(serializers.Serializer[Any]):
    """How often the strategy would have ended each way over past traffic of the stable version beside itself."""

    starts = serializers.IntegerField()
    promoted = serializers.IntegerField()
    aborted = serializers.IntegerField()
    needs_person = serializers.IntegerField()
    no_history = serializers.IntegerField()
    sentence = serializers.CharField()
    runs = serializers.ListField(child=serializers.DictField())


class StrategyOut(serializers.ModelSerializer[Strategy]):
    """tenant null: offered to everyone."""

    tenant = serializers.CharField(source="tenant.slug", default=None)
    steps = serializers.ListField(child=serializers.DictField())
    options = serializers.DictField()

    class Meta:
        model = Strategy
        fields = ["id", "name", "tenant", "steps", "options", "revision"]


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
    """beside: the gates beside the steps. weights: percent wanted, told to the nodes, and measured in a minute."""

    steps = serializers.ListField(child=serializers.DictField())
    beside = serializers.ListField(child=serializers.DictField())
    watch = serializers.DictField(allow_null=True)
    weights = serializers.DictField()
    measurements = serializers.ListField(child=serializers.DictField())
    decisions = serializers.ListField(child=serializers.DictField())


class EvidenceOut(serializers.Serializer[Any]):
    unit = serializers.CharField()
    points = serializers.ListField(child=serializers.ListField(child=serializers.FloatField()))


class WaitOut(RolloutDetailOut):
    """outcome: promoted, aborted, superseded, needs_person; after a timeout: running or settling."""

    outcome = serializers.CharField()
    timed_out = serializers.BooleanField()
