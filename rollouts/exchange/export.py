"""A strategy as Argo's YAML: a Rollout and one AnalysisTemplate for each analysis. What Argo cannot say is listed."""

from dataclasses import dataclass
from typing import Any

import yaml

from console.metrics import promql
from console.metrics.source import Indicator, Query
from rollouts.durations import text_of
from rollouts.exchange.report import Report
from rollouts.gates import Gate
from rollouts.plan import Analysis, Experiment, Plan
from rollouts.steps import SetMirrorRoute, SetTenantRoute, Step

API = "argoproj.io/v1alpha1"


@dataclass(frozen=True, slots=True)
class Exported:
    text: str
    report: Report


def to_argo(plan: Plan, *, name: str, service: str) -> Exported:
    """Selector and pod template are left to the reader: a model has none."""
    writer = _Writer(name, service)
    steps = [told for index, step in enumerate(plan.steps) if (told := writer.step(step, index)) is not None]
    canary: dict[str, Any] = {"steps": steps}
    if plan.background is not None:
        template = writer.template(f"{name}-background", plan.background.gates, "background")
        canary["analysis"] = {**_reference(template), "startingStep": plan.background.first}
        if plan.background.required:
            writer.report.changed("background.required", "Argo promotes without waiting for it")
    spec: dict[str, Any] = {"strategy": {"canary": canary}, **_options(plan, writer.report)}
    document = {"apiVersion": API, "kind": "Rollout", "metadata": {"name": name}, "spec": spec}
    text = yaml.safe_dump_all([document, *writer.templates], sort_keys=False, allow_unicode=True)
    return Exported(text, writer.report)


def _options(plan: Plan, report: Report) -> dict[str, Any]:
    limits = plan.deadlines
    spec: dict[str, Any] = {}
    if limits.step_seconds is not None:
        spec["progressDeadlineSeconds"] = int(limits.step_seconds)
        spec["progressDeadlineAbort"] = limits.then.value == "abort"
        report.changed("deadline.step", "Argo leaves out the time of pauses and analyses")
    if limits.rollout_seconds is not None:
        report.refused("deadline.rollout", "Argo has no deadline for a whole rollout")
    if plan.watch is not None:
        report.refused("watch", "Argo looks at nothing after the promotion")
    if plan.sticky is not None:
        report.refused("sticky", "is a matter of the router there")
    return spec


def _reference(template: str) -> dict[str, Any]:
    args = [
        {"name": "canary", "valueFrom": {"podTemplateHashValue": "Latest"}},
        {"name": "stable", "valueFrom": {"podTemplateHashValue": "Stable"}},
    ]
    return {"templates": [{"templateName": template}], "args": args}


class _Writer:
    def __init__(self, name: str, service: str) -> None:
        self.name, self.service = name, service
        self.report = Report()
        self.templates: list[dict[str, Any]] = []

    def step(self, step: Step, index: int) -> dict[str, Any] | None:
        name, path = f"{self.name}-step-{index + 1}", f"steps[{index}]"
        match step:
            case Analysis(gates):
                return {"analysis": _reference(self.template(name, gates, path))}
            case Experiment():
                self.report.changed(path, "Argo starts pods of both versions and compares no answers")
                self.template(name, step.gates, path)
                pods = [{"name": which, "specRef": which} for which in ("stable", "canary")]
                analyses = [{"name": name, "templateName": name, "requiredForCompletion": True}]
                inner = {"duration": text_of(step.duration_seconds), "templates": pods, "analyses": analyses}
                return {"experiment": inner}
            case SetTenantRoute():
                self.report.refused(path, "Argo knows no tenants; a header route comes near it")
                return None
            case SetMirrorRoute(percent):
                self.report.changed(
                    path, "the route must be named in managedRoutes; answers are not compared"
                )
                return {"setMirrorRoute": {"name": "shadow", "percentage": percent}}
        return step.as_json()

    def template(self, name: str, gates: tuple[Gate, ...], path: str) -> str:
        metrics = [told for gate in gates if (told := self.metric(gate, f"{path}.{gate.name}")) is not None]
        spec = {"args": [{"name": "canary"}, {"name": "stable"}], "metrics": metrics}
        document = {"apiVersion": API, "kind": "AnalysisTemplate", "metadata": {"name": name}, "spec": spec}
        self.templates.append(document)
        return name

    def metric(self, gate: Gate, path: str) -> dict[str, Any] | None:
        compares = gate.judge is not None or gate.max_ratio_to_stable is not None
        if compares or gate.indicator is Indicator.AGREEMENT:
            self.report.refused(path, "compares two versions, which Argo's metrics do not")
            return None
        if gate.consecutive_failure_limit is not None:
            self.report.refused(path, "Argo has no limit on failures in a row")
        if gate.error_limit is None:
            self.report.changed(path, "how long it may not know is counted there: consecutiveErrorLimit 4")
        optional = {
            "initialDelay": text_of(gate.initial_delay_seconds) if gate.initial_delay_seconds else None,
            "count": gate.count,
            "inconclusiveLimit": gate.inconclusive_limit,
            "consecutiveErrorLimit": gate.error_limit,
            "consecutiveSuccessLimit": gate.success_limit or None,
        }
        told = {
            "name": gate.name,
            "interval": text_of(gate.interval_seconds),
            "failureLimit": gate.failure_limit,
        }
        told |= {key: value for key, value in optional.items() if value is not None}
        return told | (self.asked(gate) if gate.asks else self.limited(gate, path))

    def asked(self, gate: Gate) -> dict[str, Any]:
        provider: dict[str, Any] = {"prometheus": {"query": self._arguments(gate.query)}}
        if gate.web is not None:
            web = gate.web
            told: dict[str, Any] = {"url": web.url, "method": web.method, "jsonPath": f"{{{web.json_path}}}"}
            if web.headers:
                told["headers"] = [{"key": key, "value": value} for key, value in web.headers]
            if web.body:
                told["body"] = web.body
            provider = {"web": {**told, "timeoutSeconds": max(1, int(web.timeout_seconds))}}
        conditions = {"successCondition": gate.success, "failureCondition": gate.failure}
        return {key: text for key, text in conditions.items() if text} | {"provider": provider}

    def limited(self, gate: Gate, path: str) -> dict[str, Any]:
        assert gate.indicator is not None
        query = Query(
            gate.indicator,
            self.service,
            0,
            window_seconds=gate.window_seconds,
            objective_ms=gate.objective_ms,
        )
        text = promql.value_expression(query).replace('version="0"', 'version="{{args.canary}}"')
        bounds = [f"result[0] <= {gate.maximum:g}"] if gate.maximum is not None else []
        bounds += [f"result[0] >= {gate.minimum:g}"] if gate.minimum is not None else []
        if gate.min_requests:
            self.report.changed(path, f"the minimum of {gate.min_requests} requests is not asked for there")
        return {"successCondition": " && ".join(bounds), "provider": {"prometheus": {"query": text}}}

    def _arguments(self, query: str) -> str:
        for name in ("canary", "stable"):
            query = query.replace(f"{{{{{name}}}}}", f"{{{{args.{name}}}}}")
        return query.replace("{{service}}", self.service)
