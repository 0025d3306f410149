"""Flagger's Canary, as a strategy: its loop of weights becomes steps with the same checks beside them."""

from typing import Any

from rollouts.exchange.report import Imported, Reader, Report

_ROUTER = "requests are routed by the nodes themselves"
_PODS = "pods are Kubernetes' matter; here a version is a registered model"
_GATES = {"confirm-rollout", "confirm-traffic-increase", "confirm-promotion"}


def read(documents: list[dict[str, Any]]) -> Imported:
    report = Report()
    canaries = [
        Reader(raw, f"documents[{index}]", report)
        for index, raw in enumerate(documents)
        if raw.get("kind") == "Canary"
    ]
    if len(canaries) != 1:
        report.refused("documents", f"must hold exactly one Canary, not {len(canaries)}")
        return Imported("Canary", "", None, report)
    for index, raw in enumerate(documents):
        if raw.get("kind") != "Canary":
            report.refused(
                f"documents[{index}]", f"kind {raw.get('kind')} is not read: write its query into the metric"
            )
    name, strategy = _canary(canaries[0])
    return Imported("Canary", name, None if report.is_refused else strategy, report)


def _canary(document: Reader) -> tuple[str, dict[str, Any]]:
    name = str(document.inner("metadata").get("name", ""))
    document.get("apiVersion"), document.get("kind")
    document.ignore("what happened there is not taken over", "status")
    spec = document.inner("spec")
    document.leave("a Canary")
    spec.ignore(
        _PODS, "targetRef", "autoscalerRef", "ingressRef", "upstreamRef", "routeRef", "revertOnDeletion"
    )
    spec.ignore(_ROUTER, "service", "provider")
    if spec.get("suspend") is True:
        spec.report.refused(spec.at("suspend"), "a rollout is started when it should run, not kept suspended")
    deadline = spec.whole("progressDeadlineSeconds", 600)
    skipped = spec.get("skipAnalysis") is True
    analysis = spec.inner("analysis")
    spec.leave("a Canary's spec")
    strategy = _analysis(analysis, skipped=skipped)
    strategy["deadline"] = {"step": max(deadline or 600, 1), "then": "abort"}
    return name, strategy


def _analysis(analysis: Reader, *, skipped: bool) -> dict[str, Any]:
    report = analysis.report
    interval = str(analysis.get("interval", "60s"))
    threshold = analysis.whole("threshold", 1) or 1
    report.honoured(analysis.at("interval"), "each weight is held for one interval")
    report.honoured(analysis.at("threshold"), f"{threshold} failed checks in all end the rollout")
    gates = [
        gate for one in analysis.listed("metrics") if (gate := _metric(one, interval, threshold)) is not None
    ]
    steps = _mirrored(analysis, interval) + _weights(analysis, interval) + _webhooks(analysis)
    analysis.ignore(
        "replicas are started before any request is sent", "primaryReadyThreshold", "canaryReadyThreshold"
    )
    analysis.ignore("alerts are set up for the whole house", "alerts")
    _session(analysis)
    analysis.leave("an analysis")
    strategy: dict[str, Any] = {"steps": [*steps, {"setWeight": 100}]}
    if skipped:
        report.changed("spec.skipAnalysis", "all checks are left out")
        return {"steps": [{"setWeight": 100}]}
    if gates:
        strategy["background"] = {"gates": gates}
    else:
        report.refused(analysis.at("metrics"), "is empty: nothing would be checked")
    return strategy


def _mirrored(analysis: Reader, interval: str) -> list[dict[str, Any]]:
    if analysis.get("mirror") is not True:
        analysis.get("mirrorWeight")
        return []
    percent = analysis.whole("mirrorWeight", 100)
    analysis.report.changed(analysis.at("mirror"), "the answers of the shadow are compared too")
    return [
        {"setMirrorRoute": {"percentage": percent}},
        {"pause": {"duration": interval}},
        {"setMirrorRoute": {"percentage": 0}},
    ]


def _weights(analysis: Reader, interval: str) -> list[dict[str, Any]]:
    iterations, match = analysis.whole("iterations", None), analysis.listed("match")
    most, step = analysis.whole("maxWeight", 100) or 100, analysis.whole("stepWeight", None)
    listed = analysis.get("stepWeights")
    analysis.ignore("the promotion moves everything at once", "stepWeightPromotion")
    hold = {"pause": {"duration": interval}}
    if iterations:
        if match:
            return [_match(match), *[hold] * iterations, {"setHeaderRoute": {"name": "match", "match": []}}]
        analysis.report.refused(
            analysis.at("iterations"), "without match is blue-green, which is not offered"
        )
        return []
    if isinstance(listed, list):
        weights = [weight for weight in listed if isinstance(weight, int)]
    elif step:
        weights = list(range(step, most + 1, step))
    else:
        analysis.report.refused(analysis.path, "needs stepWeight, stepWeights or iterations")
        return []
    analysis.report.honoured(analysis.at("stepWeights" if listed else "stepWeight"), f"weights {weights}")
    return [one for weight in weights if weight < 100 for one in ({"setWeight": weight}, hold)]


def _match(match: list[Reader]) -> dict[str, Any]:
    found = []
    for one in match:
        headers = one.get("headers", {})
        one.refuse("only headers can be matched", *(one.raw.keys() - {"headers"}))
        for name, value in headers.items() if isinstance(headers, dict) else ():
            kinds = (
                {key: text for key, text in value.items() if key in ("exact", "prefix")}
                if isinstance(value, dict)
                else {}
            )
            if len(kinds) != 1:
                one.report.refused(
                    f"{one.path}.headers.{name}", "patterns are not offered; exact and prefix are"
                )
            found.append({"headerName": name, "headerValue": kinds})
    return {"setHeaderRoute": {"name": "match", "match": found}}


def _metric(metric: Reader, interval: str, threshold: int) -> dict[str, Any] | None:
    name, window = str(metric.get("name", "")), str(metric.get("interval", "1m"))
    span = metric.inner("thresholdRange")
    least, most = span.get("min"), span.get("max")
    span.leave("thresholdRange")
    common: dict[str, Any] = {
        "name": name[:63],
        "interval": interval,
        "count": None,
        "failure_limit": threshold - 1,
        # Flagger counts a missing answer as a failed check.
        "error_limit": threshold - 1,
        "on_no_data": "abort",
        "on_provider_error": "abort",
    }
    metric.refuse("templates of metrics are not read: write the query into the metric", "templateRef")
    metric.ignore("nothing to fill without a template", "templateVariables")
    query = metric.get("query")
    metric.leave("a metric")
    report = metric.report
    if name == "request-success-rate" and query is None and isinstance(least, int | float):
        report.honoured(metric.path, "4xx answers do not count; at least one request is needed")
        return {
            **common,
            "indicator": "error_ratio",
            "max": round(1 - least / 100, 6),
            "window": window,
            "min_requests": 1,
        }
    if name == "request-duration" and query is None and isinstance(most, int | float):
        report.honoured(metric.path, "milliseconds of the 99th percentile")
        return {**common, "indicator": "latency_p99_ms", "max": most, "window": window, "min_requests": 1}
    if query is None:
        report.refused(metric.path, "is no built-in metric and has no query")
        return None
    bounds = [f"result[0] >= {least}"] * (least is not None) + [f"result[0] <= {most}"] * (most is not None)
    if not bounds:
        report.refused(span.path, "is missing: every answer would pass")
        return None
    if "{{" in str(query):
        report.refused(
            metric.at("query"), "uses Flagger's placeholders; write {{service}}, {{canary}}, {{stable}}"
        )
    report.changed(metric.path, "of several series the first counts, Flagger takes the last")
    return {**common, "query": str(query), "success": " && ".join(bounds)}


def _webhooks(analysis: Reader) -> list[dict[str, Any]]:
    """A gate that asks a person becomes a pause before the promotion; everything else is not called."""
    steps: list[dict[str, Any]] = []
    for hook in analysis.listed("webhooks"):
        kind = hook.get("type")
        hook.taken |= hook.raw.keys()
        if kind == "confirm-promotion":
            hook.report.changed(hook.path, "a person resumes here instead")
            steps = [{"pause": {}}]
        elif kind in _GATES:
            hook.report.refused(hook.path, f"{kind} has no counterpart: put a pause into the steps")
        else:
            hook.report.ignored(hook.path, "no hook is called by a rollout")
    return steps


def _session(analysis: Reader) -> None:
    if analysis.has("sessionAffinity"):
        analysis.report.refused(
            analysis.at("sessionAffinity"), "cookies are not read; use sticky by header or by tenant"
        )
        analysis.get("sessionAffinity")
