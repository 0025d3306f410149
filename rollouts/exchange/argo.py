"""Argo's Rollout with its analysis templates, as a strategy. Canary only."""

from collections.abc import Callable
from typing import Any

from rollouts.exchange.report import Imported, Reader, Report
from rollouts.exchange.templates import Library, Template, arguments

_PODS = "pods are Kubernetes' matter; here a version is a registered model"
_ROUTER = "requests are routed by the nodes themselves"
_SURGE = "replicas of the new version are started beside the old ones"


def read(documents: list[dict[str, Any]]) -> Imported:
    """One Rollout, and the templates that it names."""
    report = Report()
    library = Library(report)
    rollouts: list[Reader] = []
    for index, raw in enumerate(documents):
        _sort(Reader(raw, f"documents[{index}]", report), library, rollouts)
    if len(rollouts) != 1:
        report.refused("documents", f"must hold exactly one Rollout, not {len(rollouts)}")
        return Imported("Rollout", "", None, report)
    name, strategy = _rollout(rollouts[0], library)
    for cluster, template in library.found.keys() - library.used:
        kind = "ClusterAnalysisTemplate" if cluster else "AnalysisTemplate"
        report.ignored(f"{kind}/{template}", "no step names it")
    return Imported("Rollout", name, None if report.is_refused else strategy, report)


def _sort(document: Reader, library: Library, rollouts: list[Reader]) -> None:
    kind = document.get("kind")
    document.get("apiVersion")
    match kind:
        case "Rollout":
            rollouts.append(document)
        case "AnalysisTemplate" | "ClusterAnalysisTemplate":
            name = str(document.inner("metadata").get("name", ""))
            key = kind == "ClusterAnalysisTemplate", name
            library.found[key] = Template(name, key[0], document.get("spec"), f"{kind}/{name}.spec")
            document.leave("an analysis template")
        case _:
            document.report.ignored(document.path, f"kind {kind} has no part in a rollout")


def _rollout(document: Reader, library: Library) -> tuple[str, dict[str, Any]]:
    metadata, spec = document.inner("metadata"), document.inner("spec")
    document.get("kind"), document.get("apiVersion")
    document.ignore("what happened there is not taken over", "status")
    document.leave("a Rollout")
    spec.ignore(
        _PODS, "selector", "template", "workloadRef", "minReadySeconds", "revisionHistoryLimit", "restartAt"
    )
    spec.ignore("replicas are the contract's", "replicas")
    spec.ignore("every rollout is kept", "analysis")
    if spec.has("rollbackWindow"):
        spec.report.changed(
            spec.at("rollbackWindow"), "the way back is short for versions of the last 3 promotions"
        )
        spec.get("rollbackWindow")
    if spec.get("paused") is True:
        spec.report.refused(spec.at("paused"), "a rollout is started when it should run, not kept paused")
    options: dict[str, Any] = {}
    _deadline(spec, options)
    strategy = spec.inner("strategy")
    strategy.refuse(
        "blue-green is not offered: setWeight 0 with a shadow, then 100, comes near it", "blueGreen"
    )
    canary = strategy.inner("canary")
    strategy.leave("a strategy")
    spec.leave("a Rollout's spec")
    steps = _canary(canary, library, options)
    return str(metadata.get("name", "")), {"steps": steps, **options}


def _deadline(spec: Reader, options: dict[str, Any]) -> None:
    seconds = spec.whole("progressDeadlineSeconds", None)
    aborts = spec.get("progressDeadlineAbort") is True
    if seconds is not None or aborts:
        options["deadline"] = {"step": seconds or 600, "then": "abort" if aborts else "pause"}
        spec.report.changed(
            spec.at("progressDeadlineSeconds"), "counts for each step; Argo leaves out pauses and analyses"
        )


def _canary(canary: Reader, library: Library, options: dict[str, Any]) -> list[dict[str, Any]]:
    canary.ignore(_ROUTER, "canaryService", "stableService", "trafficRouting", "pingPong")
    canary.ignore(_SURGE, "maxSurge", "maxUnavailable", "minPodsPerReplicaSet", "replicaProgressThreshold")
    canary.ignore(_PODS, "antiAffinity", "canaryMetadata", "stableMetadata")
    canary.ignore(
        "the old version stays loaded for ten minutes, an aborted one not at all",
        "scaleDownDelaySeconds", "scaleDownDelayRevisionLimit", "abortScaleDownDelaySeconds", "dynamicStableScale",
    )  # fmt: skip
    if canary.has("analysis"):
        options["background"] = _background(canary.inner("analysis"), library)
    steps = [step for reader in canary.listed("steps") if (step := _step(reader, library)) is not None]
    if not steps:
        canary.report.refused(canary.at("steps"), "is empty: the version would get everything at once")
    canary.leave("a canary strategy")
    return steps


def _background(analysis: Reader, library: Library) -> dict[str, Any]:
    first = analysis.whole("startingStep", 0)
    gates = _gates(analysis, library, ended=False)
    analysis.leave("a background analysis")
    analysis.report.honoured(
        analysis.path, "begins once requests reach the version, which is later than in Argo"
    )
    return {"gates": gates, "startingStep": first}


def _gates(analysis: Reader, library: Library, *, ended: bool) -> list[dict[str, Any]]:
    analysis.ignore("labels of Kubernetes objects", "analysisRunMetadata")
    analysis.ignore("measurements are kept with their rollout", "measurementRetention")
    dry = [str(one.get("metricName", "")) for one in analysis.listed("dryRun")]
    args = arguments(analysis.listed("args"))
    return library.gates(analysis.listed("templates"), args, dry, where=analysis.path, ended=ended)


# In the order in which Argo itself would pick one of several.
_KINDS = (
    "pause", "setCanaryScale", "setWeight", "experiment", "analysis", "setHeaderRoute", "setMirrorRoute", "plugin",
)  # fmt: skip


def _step(step: Reader, library: Library) -> dict[str, Any] | None:
    kinds = [kind for kind in _KINDS if kind in step.raw]
    if len(kinds) != 1:
        won = next(iter(kinds), "none")
        step.report.refused(step.path, f"must have exactly one kind; Argo would have taken {won}")
        step.taken |= set(kinds)
        step.leave("a step")
        return None
    kind = kinds[0]
    told = _STEPS[kind](step, library)
    step.leave("a step")
    if told is not None:
        step.report.honoured(step.at(kind))
    return told


def _weight(step: Reader, library: Library) -> dict[str, Any]:
    return {"setWeight": step.whole("setWeight", 0)}


def _pause(step: Reader, library: Library) -> dict[str, Any]:
    inner = step.inner("pause")
    duration = inner.get("duration")
    inner.leave("a pause")
    return {"pause": {} if duration is None else {"duration": duration}}


def _scale(step: Reader, library: Library) -> dict[str, Any]:
    inner = step.inner("setCanaryScale")
    told = {key: inner.get(key) for key in ("weight", "replicas", "matchTrafficWeight") if inner.has(key)}
    inner.leave("setCanaryScale")
    inner.report.changed(inner.path, "never fewer replicas than the weight needs")
    return {"setCanaryScale": told}


def _analysis(step: Reader, library: Library) -> dict[str, Any]:
    inner = step.inner("analysis")
    gates = _gates(inner, library, ended=True)
    inner.leave("an analysis")
    return {"analysis": {"gates": gates}}


def _experiment(step: Reader, library: Library) -> dict[str, Any]:
    inner = step.inner("experiment")
    templates = [str(one.get("specRef", "")) for one in inner.listed("templates")]
    if "canary" not in templates:
        inner.report.refused(inner.at("templates"), "needs the canary: nothing else can be tried here")
    gates: list[dict[str, Any]] = []
    for one in inner.listed("analyses"):
        named = {"templateName": one.get("templateName"), "clusterScope": one.get("clusterScope", False)}
        ref = Reader(named, one.path, one.report)
        args = arguments(one.listed("args"))
        one.ignore("the names of the metrics are shown", "name")
        one.ignore("every gate must pass", "requiredForCompletion")
        gates += library.gates([ref], args, [], where=one.path, ended=True)
        one.leave("an analysis of an experiment")
    duration = inner.get("duration")
    if duration is None:
        inner.report.refused(inner.path, "without a duration would never end")
    inner.ignore(
        "labels and delays of Kubernetes objects", "analysisRunMetadata", "scaleDownDelaySeconds", "dryRun"
    )
    inner.leave("an experiment")
    inner.report.changed(
        inner.path, "the version is compared in the shadow with the answers that clients got"
    )
    return {"experiment": {"percentage": 100, "duration": duration or "60s", "gates": gates}}


def _header(step: Reader, library: Library) -> dict[str, Any]:
    inner = step.inner("setHeaderRoute")
    match = []
    for one in inner.listed("match"):
        value = one.inner("headerValue")
        value.refuse("patterns on headers are not offered; exact and prefix are", "regex")
        kinds = {key: value.get(key) for key in ("exact", "prefix") if value.has(key)}
        value.leave("headerValue")
        match.append({"headerName": one.get("headerName"), "headerValue": kinds})
        one.leave("a match")
    name = inner.get("name", "route")
    inner.leave("setHeaderRoute")
    return {"setHeaderRoute": {"name": name, "match": match}}


def _mirror(step: Reader, library: Library) -> dict[str, Any]:
    inner = step.inner("setMirrorRoute")
    inner.ignore("there is one shadow for each service", "name")
    inner.refuse("only all requests of a service are mirrored", "match")
    percent = inner.whole("percentage", 100)
    inner.leave("setMirrorRoute")
    inner.report.changed(inner.path, "answers are compared too, which Argo does not do")
    return {"setMirrorRoute": {"percentage": percent}}


def _plugin(step: Reader, library: Library) -> None:
    step.refuse("plugins are not run here", "plugin")


_STEPS: dict[str, Callable[[Reader, Library], dict[str, Any] | None]] = {
    "setWeight": _weight,
    "pause": _pause,
    "setCanaryScale": _scale,
    "analysis": _analysis,
    "experiment": _experiment,
    "setHeaderRoute": _header,
    "setMirrorRoute": _mirror,
    "plugin": _plugin,
}
