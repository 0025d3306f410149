"""Argo's AnalysisTemplate and ClusterAnalysisTemplate: metrics with their arguments filled, as gates."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rollouts.exchange.report import Reader, Report
from rollouts.expressions import SyntaxProblem, parse
from rollouts.expressions.lint import on_no_data

_PLACEHOLDER = re.compile(r"\{\{\s*args\.([A-Za-z0-9_-]+)\s*\}\}")
_OTHERS = (
    "kayenta",
    "datadog",
    "wavefront",
    "newRelic",
    "job",
    "cloudWatch",
    "graphite",
    "influxdb",
    "skywalking",
    "plugin",
)
DEFAULT_ERROR_LIMIT = 4


@dataclass(frozen=True, slots=True)
class Template:
    """spec: as written. is_cluster: a ClusterAnalysisTemplate, which another name space holds."""

    name: str
    is_cluster: bool
    spec: Any
    path: str


@dataclass(slots=True)
class Library:
    """The templates of a text, by kind and name."""

    report: Report
    found: dict[tuple[bool, str], Template] = field(default_factory=dict)
    used: set[tuple[bool, str]] = field(default_factory=set)

    def gates(
        self, refs: list[Reader], args: Mapping[str, str], dry: list[str], *, where: str, ended: bool
    ) -> list[dict[str, Any]]:
        """The gates of all templates that are named, nested ones too. Names of metrics must differ."""
        gates: list[dict[str, Any]] = []
        for ref in refs:
            name, cluster = str(ref.get("templateName", "")), ref.get("clusterScope", False) is True
            ref.leave("a template reference")
            gates += self._of(name, cluster, args, ref.path, ended=ended, depth=0)
        names = [gate["name"] for gate in gates]
        for double in sorted({name for name in names if names.count(name) > 1}):
            self.report.refused(where, f"has two metrics named {double}")
        for gate in gates:
            gate["dry_run"] = any(re.fullmatch(pattern, gate["name"]) for pattern in dry)
        for pattern in dry:
            if not any(re.fullmatch(pattern, name) for name in names):
                self.report.refused(f"{where}.dryRun", f"{pattern!r} matches no metric")
        return [{key: value for key, value in gate.items() if value is not False} for gate in gates]

    def _of(
        self, name: str, cluster: bool, args: Mapping[str, str], where: str, *, ended: bool, depth: int
    ) -> list[dict[str, Any]]:
        template = self.found.get((cluster, name))
        if template is None:
            kind = "ClusterAnalysisTemplate" if cluster else "AnalysisTemplate"
            self.report.refused(where, f"{kind} {name!r} is not in this text")
            return []
        if depth > 5:
            self.report.refused(where, "templates refer to each other without end")
            return []
        self.used.add((cluster, name))
        spec = Reader(template.spec, template.path, self.report)
        values = self._values(spec, args)
        spec.ignore("measurements are kept with their rollout", "measurementRetention")
        if spec.has("dryRun"):
            spec.refuse("dry runs are read from the step, not from the template", "dryRun")
        gates = [
            gate
            for metric in spec.listed("metrics")
            if (gate := metric_gate(metric, values, ended=ended)) is not None
        ]
        for ref in spec.listed("templates"):
            nested, scope = str(ref.get("templateName", "")), ref.get("clusterScope", False) is True
            ref.leave("a template reference")
            gates += self._of(nested, scope, {**values, **args}, ref.path, ended=ended, depth=depth + 1)
        spec.leave("an analysis template")
        if not gates and not spec.has("templates"):
            self.report.refused(template.path, "needs at least one metric")
        return gates

    def _values(self, spec: Reader, given: Mapping[str, str]) -> dict[str, str]:
        """Declared arguments with their values. A given value for an undeclared one is dropped by Argo; we say so."""
        values: dict[str, str] = {}
        for arg in spec.listed("args"):
            name = str(arg.get("name", ""))
            if name in given:
                values[name] = given[name]
                arg.get("value"), arg.get("valueFrom")
            elif arg.has("value"):
                values[name] = str(arg.get("value"))
            elif arg.has("valueFrom"):
                arg.refuse("secrets and fields of Kubernetes objects are not read here", "valueFrom")
            arg.leave("an argument")
        for name in given.keys() - values.keys():
            self.report.ignored(f"{spec.path}.args", f"{name} is given and not declared; Argo drops it too")
        return values


def arguments(readers: list[Reader]) -> dict[str, str]:
    """The arguments that a step gives. The hash of a pod template is the number of a version here."""
    values = {}
    for arg in readers:
        name = str(arg.get("name", ""))
        source = arg.inner("valueFrom")
        if source.has("podTemplateHashValue"):
            which = source.get("podTemplateHashValue")
            values[name] = "{{canary}}" if which == "Latest" else "{{stable}}"
            arg.report.changed(source.at("podTemplateHashValue"), "is the number of the version here")
            source.leave("valueFrom")
        elif arg.has("valueFrom"):
            arg.report.refused(source.path, "fields of Kubernetes objects are not read here")
        elif arg.has("value"):
            values[name] = str(arg.get("value"))
        arg.get("value")
        arg.leave("an argument")
    return values


def metric_gate(metric: Reader, values: Mapping[str, str], *, ended: bool) -> dict[str, Any] | None:
    """One metric as a gate; None when it was refused."""
    report = metric.report
    name = str(metric.get("name", ""))
    if not name:
        report.refused(metric.path, "has no name")
    text = _Filler(metric, values)
    gate: dict[str, Any] = {"name": name[:63], **_provider(metric.inner("provider"), text)}
    for key, ours in (("successCondition", "success"), ("failureCondition", "failure")):
        if metric.has(key):
            gate[ours] = text.fill(key, str(metric.get(key)))
            _check_condition(metric, key, gate[ours])
    if "success" not in gate and "failure" not in gate:
        report.refused(metric.path, "has no condition: Argo would call every answer a success")
    gate |= _timing(metric, text, ended=ended)
    gate |= _limits(metric, gate.get("count"))
    metric.leave("a metric")
    return gate


class _Filler:
    def __init__(self, metric: Reader, values: Mapping[str, str]) -> None:
        self.metric, self.values = metric, values

    def fill(self, key: str, raw: str) -> str:
        def value(match: re.Match[str]) -> str:
            if match[1] not in self.values:
                self.metric.report.refused(self.metric.at(key), f"argument {match[1]} has no value")
                return ""
            return self.values[match[1]]

        return _PLACEHOLDER.sub(value, raw)


def _provider(provider: Reader, text: _Filler) -> dict[str, Any]:
    report = provider.report
    kinds = list(provider.raw)
    if len(kinds) != 1:
        report.refused(provider.path, "must be exactly one provider")
        return {}
    match kinds[0]:
        case "prometheus":
            return {"query": _prometheus(provider.inner("prometheus"), text)}
        case "web":
            return {"web": _web(provider.inner("web"), text)}
        case kind if kind in _OTHERS:
            provider.refuse(f"{kind} has no counterpart here, and it must not count as passing", kind)
    provider.leave("a provider")
    return {}


def _prometheus(one: Reader, text: _Filler) -> str:
    query = text.fill("provider.prometheus.query", str(one.get("query", "")))
    if one.has("address"):
        one.report.changed(one.at("address"), "this installation's own Prometheus is asked")
        one.get("address")
    one.ignore("queries have the installation's time limit", "timeout")
    one.ignore("how Prometheus is reached is a matter of the installation", "insecure", "headers")
    one.refuse("logins belong into the installation's settings", "authentication")
    one.refuse("only instant queries are asked; write the range into the query", "rangeQuery")
    one.leave("prometheus")
    return query


def _web(one: Reader, text: _Filler) -> dict[str, Any]:
    told: dict[str, Any] = {
        "url": text.fill("provider.web.url", str(one.get("url", ""))),
        "method": one.get("method", "GET"),
        "json_path": one.get("jsonPath", "{$}"),
        "timeout": one.whole("timeoutSeconds", 10),
    }
    headers = {
        str(head.get("key")): text.fill("headers", str(head.get("value"))) for head in one.listed("headers")
    }
    body = one.get("body") or one.get("jsonBody")
    one.get("body"), one.get("jsonBody")
    if isinstance(body, dict | list):
        body = json.dumps(body)
    one.refuse("certificates are always checked", "insecure")
    one.refuse("logins belong into the installation's settings", "authentication")
    one.report.changed(one.at("url"), "its host must be among those that web gates may ask")
    one.leave("web")
    return told | ({"headers": headers} if headers else {}) | ({"body": body} if body else {})


def _check_condition(metric: Reader, key: str, text: str) -> None:
    try:
        warning = on_no_data(parse(text))
    except SyntaxProblem as problem:
        metric.report.refused(metric.at(key), f"is no condition: {problem}")
        return
    metric.report.honoured(metric.at(key), warning)


def _timing(metric: Reader, text: _Filler, *, ended: bool) -> dict[str, Any]:
    report = metric.report
    told: dict[str, Any] = {}
    if metric.has("interval"):
        told["interval"] = text.fill("interval", str(metric.get("interval")))
        report.honoured(metric.at("interval"), "a failed request is repeated after it, where Argo waits 10 s")
    if metric.has("initialDelay"):
        told["initial_delay"] = text.fill("initialDelay", str(metric.get("initialDelay")))
        report.honoured(metric.at("initialDelay"))
    count = metric.whole("count", None) or None  # 0 is unset
    if count is None and not metric.has("interval"):
        count = 1
    if count is not None and count > 1 and not metric.has("interval"):
        report.refused(metric.at("count"), "above 1 needs an interval")
    if count is None and ended:
        report.refused(metric.at("count"), "is missing: as a step this analysis would never end")
    told["count"] = count
    told.setdefault("interval", "10s")
    return told


def _limits(metric: Reader, count: int | None) -> dict[str, Any]:
    """Argo aborts on errors and on empty answers alike after so many in a row, and pauses on what is inconclusive."""
    failure = metric.whole("failureLimit", 0) or 0
    success = metric.whole("consecutiveSuccessLimit", 0) or 0
    inconclusive = metric.whole("inconclusiveLimit", 0) or 0
    errors = metric.whole("consecutiveErrorLimit", DEFAULT_ERROR_LIMIT)
    report = metric.report
    if failure == -1 and not success:
        report.refused(
            metric.at("failureLimit"), "-1 without consecutiveSuccessLimit: it could never end badly"
        )
    if count and (count < failure + success or count < inconclusive):
        report.refused(metric.at("count"), "is below its limits together")
    if count and failure >= count > 0:
        report.refused(metric.at("failureLimit"), "is not below count, so the metric could never fail")
    for key in ("failureLimit", "consecutiveSuccessLimit", "inconclusiveLimit", "consecutiveErrorLimit"):
        if metric.has(key):
            report.honoured(metric.at(key))
    return {
        "failure_limit": failure,
        "success_limit": success,
        "inconclusive_limit": inconclusive,
        "error_limit": DEFAULT_ERROR_LIMIT if errors is None else errors,
        "on_inconclusive": "pause",
        "on_no_data": "abort",
        "on_provider_error": "abort",
    }
