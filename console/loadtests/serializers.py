"""Bodies of the load test endpoints. Answers are made by console.loadtests.present and only described here."""

from typing import Any

from rest_framework import serializers

from console.kit.serializers import StrictSerializer
from console.loadtests.models import Source
from console.loadtests.plan import ARRIVALS, MODES, PROTOCOLS
from console.loadtests.states import State, Verdict


class CancelBody(StrictSerializer):
    reason = serializers.CharField(max_length=500, required=False, allow_blank=True, default="")


class _Common(CancelBody):
    service = serializers.CharField(max_length=255)
    tenant = serializers.CharField(
        max_length=63,
        required=False,
        default="",
        help_text="slug; default the owner, or yours that may call it",
    )
    title = serializers.CharField(max_length=120, required=False, allow_blank=True, default="")


class LoadTestBody(_Common):
    """A run. mode open: `rate` requests a second; closed: each connection waits for its answer."""

    version = serializers.IntegerField(min_value=1, required=False, allow_null=True, default=None)
    mode = serializers.ChoiceField(MODES, required=False)
    rate = serializers.FloatField(required=False, help_text="requests per second, open loop only")
    arrivals = serializers.ChoiceField(ARRIVALS, required=False)
    connections = serializers.IntegerField(required=False)
    duration_seconds = serializers.IntegerField(required=False)
    warmup_seconds = serializers.IntegerField(required=False)
    protocol = serializers.ChoiceField(PROTOCOLS, required=False)
    thresholds = serializers.ListField(
        child=serializers.CharField(max_length=60), required=False, default=list
    )


class UploadBody(_Common):
    """multipart/form-data. columns: JSON, ours -> theirs, such as {"duration": "latency_ms"}."""

    file = serializers.FileField()
    columns = serializers.JSONField(required=False, default=dict)
    thresholds = serializers.ListField(
        child=serializers.CharField(max_length=60), required=False, default=list
    )

    def validate_columns(self, value: Any) -> dict[str, str]:
        if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
            raise serializers.ValidationError(
                'must be an object of names, such as {"duration": "latency_ms"}'
            )
        return value


class ThresholdOut(serializers.Serializer[Any]):
    threshold = serializers.CharField()
    figure = serializers.CharField()
    value = serializers.FloatField(allow_null=True)
    limit = serializers.FloatField()
    met = serializers.BooleanField()
    sentence = serializers.CharField()


class LoadTestOut(serializers.Serializer[Any]):
    id = serializers.IntegerField()
    url = serializers.CharField()
    page = serializers.CharField()
    tenant = serializers.CharField()
    service = serializers.CharField()
    version = serializers.IntegerField(allow_null=True)
    kind = serializers.ChoiceField(Source.choices)
    title = serializers.CharField()
    settings = serializers.DictField()
    state = serializers.ChoiceField(State.choices)
    stopping = serializers.BooleanField()
    message = serializers.CharField()
    verdict = serializers.ChoiceField(Verdict.choices)
    thresholds = serializers.ListField(child=serializers.CharField())
    requests = serializers.IntegerField(allow_null=True)
    error_count = serializers.IntegerField(allow_null=True)
    qps = serializers.FloatField(allow_null=True)
    p99_ms = serializers.FloatField(allow_null=True)
    verbs = serializers.ListField(child=serializers.CharField())
    revision = serializers.IntegerField()
    created_by = serializers.CharField()
    created_at = serializers.DateTimeField()
    started_at = serializers.DateTimeField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)
    csv = serializers.CharField(allow_null=True)


class LoadTestDetailOut(LoadTestOut):
    """report: null until it has ended; judged: one line for each threshold."""

    report = serializers.DictField(allow_null=True)
    judged = ThresholdOut(many=True)


class PointsOut(serializers.Serializer[Any]):
    indicator = serializers.CharField()
    points = serializers.ListField(child=serializers.ListField(child=serializers.FloatField(allow_null=True)))
