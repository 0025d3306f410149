"""Foreign rollouts, written anew after the documented examples of Argo Rollouts and Flagger, with their reports."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from console.kit.errors import Invalid
from rollouts.exchange import read
from rollouts.exchange.export import to_argo
from rollouts.exchange.report import Imported
from rollouts.plan import Analysis, parse

FOREIGN = Path(__file__).parent / "foreign"


def fates(imported: Imported, fate: str) -> dict[str, str]:
    return {line.path: line.why for line in imported.report.lines if line.fate == fate}


def argo(**canary: Any) -> str:
    """The smallest Rollout, changed."""
    body = {"steps": [{"setWeight": 20}], **canary}
    document = {"kind": "Rollout", "metadata": {"name": "r"}, "spec": {"strategy": {"canary": body}}}
    return yaml.safe_dump(document)


def template(metric: dict[str, Any], **spec: Any) -> str:
    whole = {"name": "m", "count": 1, "provider": {"prometheus": {"query": "up"}}, **metric}
    document = {"kind": "AnalysisTemplate", "metadata": {"name": "t"}, "spec": {"metrics": [whole], **spec}}
    return yaml.safe_dump(document)


def with_metric(metric: dict[str, Any], *, spec: dict[str, Any] | None = None, **analysis: Any) -> Imported:
    step = {"analysis": {"templates": [{"templateName": "t"}], **analysis}}
    return read(f"{argo(steps=[{'setWeight': 20}, step])}---\n{template(metric, **(spec or {}))}")


def test_argos_example_becomes_a_strategy_that_can_be_saved() -> None:
    imported = read((FOREIGN / "argo-canary.yaml").read_text())
    assert (imported.kind, imported.name) == ("Rollout", "guestbook")
    assert not fates(imported, "refused")
    assert imported.strategy is not None
    plan = parse(imported.strategy)
    assert [next(iter(step.as_json())) for step in plan.steps] == [
        "setCanaryScale", "setHeaderRoute", "setWeight", "pause", "analysis", "setWeight", "pause",
    ]  # fmt: skip
    assert plan.background is not None
    (background,) = plan.background.gates
    assert (background.failure_limit, background.count, background.error_limit) == (3, None, 4)
    assert (background.interval_seconds, plan.background.first) == (300.0, 2)
    assert 'version="{{canary}}"' in background.query
    assert "guestbook-svc.default" in background.query
    assert (plan.deadlines.step_seconds, plan.deadlines.then) == (900.0, "abort")
    analysis = plan.steps[4]
    assert isinstance(analysis, Analysis)
    p99, health = analysis.gates
    assert (p99.dry_run, p99.inconclusive_limit, p99.error_limit, p99.failure) == (
        True,
        1,
        2,
        "result[0] > 2",
    )
    assert health.web is not None
    assert (health.web.json_path, health.web.timeout_seconds) == ("{$.data}", 20.0)


def test_argos_example_has_a_word_on_each_field() -> None:
    imported = read((FOREIGN / "argo-canary.yaml").read_text())
    assert {path.rpartition(".")[2] for path in fates(imported, "ignored")} == {
        "replicas", "revisionHistoryLimit", "selector", "template", "canaryService", "stableService",
        "trafficRouting", "maxSurge", "maxUnavailable",
    }  # fmt: skip
    changed = fates(imported, "changed")
    assert {path.rpartition(".")[2] for path in changed} == {
        "rollbackWindow", "progressDeadlineSeconds", "podTemplateHashValue", "address", "setCanaryScale", "url",
    }  # fmt: skip


def test_flaggers_example_becomes_steps_with_the_same_checks_beside_them() -> None:
    imported = read((FOREIGN / "flagger-canary.yaml").read_text())
    assert not fates(imported, "refused")
    assert imported.strategy is not None
    plan = parse(imported.strategy)
    weights = [step.as_json().get("setWeight") for step in plan.steps]
    assert [weight for weight in weights if weight is not None] == [10, 20, 30, 40, 50, 100]
    assert plan.waits_for_person
    assert plan.background is not None
    success, duration, custom = plan.background.gates
    assert (success.indicator, success.maximum, success.failure_limit) == ("error_ratio", 0.01, 4)
    assert (duration.indicator, duration.maximum, duration.window_seconds) == ("latency_p99_ms", 500.0, 30.0)
    assert (custom.success, custom.count) == ("result[0] <= 5", None)
    assert plan.deadlines.step_seconds == 60.0


@pytest.mark.parametrize(
    ("metric", "path", "why"),
    [
        ({"sucessCondition": "result[0] > 1"}, "sucessCondition", "Kubernetes would drop it"),
        (
            {"inconclusiveCondition": "true", "successCondition": "true"},
            "inconclusiveCondition",
            "is no field",
        ),
        ({}, "metrics[0]", "has no condition: Argo would call every answer a success"),
        ({"successCondition": "results[0] > 1"}, "successCondition", "reads 'results', which does not exist"),
        ({"successCondition": "result[0] => 1"}, "successCondition", "is no condition"),
        ({"successCondition": "true", "count": 3}, "count", "above 1 needs an interval"),
        ({"successCondition": "true", "count": None, "interval": "1m"}, "count", "would never end"),
        ({"successCondition": "true", "failureLimit": -1}, "failureLimit", "it could never end badly"),
        (
            {"successCondition": "true", "count": 2, "interval": "1m", "failureLimit": 3},
            "count",
            "limits together",
        ),
        ({"successCondition": "true", "provider": {"job": {}}}, "job", "must not count as passing"),
        ({"successCondition": "true", "provider": {}}, "provider", "exactly one provider"),
        (
            {
                "successCondition": "true",
                "provider": {"prometheus": {"query": "up", "rangeQuery": {"start": "1"}}},
            },
            "rangeQuery",
            "only instant queries",
        ),
        (
            {"successCondition": "true", "provider": {"prometheus": {"query": 'up{a="{{args.missing}}"}'}}},
            "provider.prometheus.query",
            "argument missing has no value",
        ),
    ],
)
def test_a_metric_that_would_lie_is_refused_by_name(metric: dict[str, Any], path: str, why: str) -> None:
    imported = with_metric(metric)
    assert imported.strategy is None
    refused = fates(imported, "refused")
    assert any(where.endswith(path) and why in told for where, told in refused.items()), refused


@pytest.mark.parametrize(
    ("step", "why"),
    [
        ({"setWeight": 10, "pause": {}}, "must have exactly one kind; Argo would have taken pause"),
        ({"setWeight": 10, "conditions": []}, "is no field of a step"),
        ({"plugin": {"name": "x"}}, "plugins are not run here"),
        ({"setWeight": 110}, "must be between 0 and 100"),
        ({"pause": {"duration": "soon"}}, "must be seconds or a duration"),
        (
            {"setMirrorRoute": {"name": "m", "percentage": 5, "match": [{"method": {"exact": "GET"}}]}},
            "mirrored",
        ),
        (
            {"setHeaderRoute": {"name": "h", "match": [{"headerName": "a", "headerValue": {"regex": ".*"}}]}},
            "patterns on headers are not offered",
        ),
        (
            {"experiment": {"templates": [{"name": "a", "specRef": "canary"}]}},
            "without a duration would never end",
        ),
        (
            {"analysis": {"templates": [{"templateName": "absent"}]}},
            "AnalysisTemplate 'absent' is not in this text",
        ),
    ],
)
def test_a_step_that_cannot_be_kept_is_refused(step: dict[str, Any], why: str) -> None:
    imported = read(argo(steps=[step, {"setWeight": 50}]))
    assert imported.strategy is None
    assert any(why in told for told in fates(imported, "refused").values()), fates(imported, "refused")


def test_blue_green_is_refused_by_name() -> None:
    document = {"kind": "Rollout", "metadata": {"name": "r"}, "spec": {"strategy": {"blueGreen": {}}}}
    refused = fates(read(yaml.safe_dump(document)), "refused")
    assert "blue-green is not offered" in refused["documents[0].spec.strategy.blueGreen"]


def test_a_dry_run_rule_that_matches_nothing_is_refused() -> None:
    imported = with_metric({"successCondition": "true"}, dryRun=[{"metricName": "other"}])
    assert any("matches no metric" in why for why in fates(imported, "refused").values())


def test_a_condition_that_takes_no_data_for_an_answer_is_marked() -> None:
    imported = with_metric({"successCondition": "all(result, # < 1)"})
    assert any("no data would count as an answer" in why for why in fates(imported, "honoured").values())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("kind: Deployment", "holds no Rollout of Argo and no Canary of Flagger, but Deployment"),
        ("{", "is no YAML"),
        ("- a", "must hold 1 to 50 objects"),
        ("a: &x [1]\nb: *x", "aliases"),
        ("x" * 300_000, "is above"),
        ("!!python/object/apply:os.system ['true']", "is no YAML"),
    ],
)
def test_a_text_that_is_no_rollout_says_so(text: str, why: str) -> None:
    with pytest.raises(Invalid) as caught:
        read(text)
    assert why in caught.value.fields["text"]


STRATEGY: dict[str, Any] = {
    "steps": [
        {"setWeight": 10},
        {
            "analysis": {
                "gates": [{"name": "errors", "indicator": "error_ratio", "max": 0.02, "error_limit": 4}]
            }
        },
        {"setTenantRoute": {"tenants": ["acme"]}},
        {"setWeight": 100},
    ],
    "watch": {"duration": "5m", "gates": [{"indicator": "error_ratio", "max": 0.1, "count": None}]},
}


def test_an_export_lists_what_argo_cannot_say() -> None:
    exported = to_argo(parse(STRATEGY), name="mine", service="file-type")
    assert {line.path for line in exported.report.lines if line.fate == "refused"} == {"steps[2]", "watch"}
    rollout, template = yaml.safe_load_all(exported.text)
    assert [next(iter(step)) for step in rollout["spec"]["strategy"]["canary"]["steps"]] == [
        "setWeight", "analysis", "setWeight",
    ]  # fmt: skip
    (metric,) = template["spec"]["metrics"]
    assert metric["successCondition"] == "result[0] <= 0.02"
    assert 'version="{{args.canary}}"' in metric["provider"]["prometheus"]["query"]


def test_an_export_can_be_read_back() -> None:
    exported = to_argo(parse(STRATEGY), name="mine", service="file-type")
    again = read(exported.text)
    assert again.strategy is not None, fates(again, "refused")
    plan = parse(again.strategy)
    assert [step.as_json() for step in plan.steps if "setWeight" in step.as_json()] == [
        {"setWeight": 10},
        {"setWeight": 100},
    ]
    analysis = plan.steps[1]
    assert isinstance(analysis, Analysis)
    (gate,) = analysis.gates
    assert (gate.count, gate.failure_limit, gate.error_limit) == (3, 0, 4)
    assert 'version="{{canary}}"' in gate.query
