"""The plane's counters: cheap to add to, told twice in the same names - as Prometheus text and as a CounterSample."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from inference.protocol import Series

SECONDS = (
    0.0005, 0.001, 0.0025, 0.005, 0.0075, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
# Why a batch left when it did and as full as it was.
DISPATCHED = ("full", "deadline", "timer", "idle", "key_change", "drain")
FORGET_SECONDS = 900.0


class Histogram:
    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def observe_all(self, values: list[float]) -> None:
        """Of a batch; most lie in one bucket, and then there is no step for each."""
        first, last = bisect_left(self.bounds, min(values)), bisect_left(self.bounds, max(values))
        if first == last:
            self.counts[first] += len(values)
        else:
            for value in values:
                self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += sum(values)


@dataclass(slots=True)
class BatchStat:
    """Executions of one batch size and their nanoseconds."""

    count: int = 0
    input: int = 0
    run: int = 0
    output: int = 0


class VersionMeter:
    """Everything counted about one version. codes: by (tenant, protocol, code). Nanoseconds where Triton has them."""

    def __init__(self, service: str, version: str) -> None:
        self.service = service
        self.version = version
        self.codes: defaultdict[tuple[str, str, int], int] = defaultdict(int)
        self.duration = Histogram(SECONDS)
        self.queue = Histogram(SECONDS)
        self.inference = Histogram(SECONDS)
        self.batch = Histogram(ROWS)
        self.success = self.fail = 0
        self.success_seconds = self.fail_seconds = 0.0
        self.inferences = self.last_at = 0
        self.batches: defaultdict[int, BatchStat] = defaultdict(BatchStat)
        self.reruns = 0
        self.deaths = 0
        self.given_up = 0
        self.quarantines = 0
        self.dispatched: dict[str, int] = dict.fromkeys(DISPATCHED, 0)
        self.unused_since: float | None = None

    def answered(self, tenant: str, protocol: str, code: int, seconds: float) -> None:
        self.codes[tenant, protocol, code] += 1
        self.duration.observe(seconds)
        if code == 200:
            self.success += 1
            self.success_seconds += seconds
        else:
            self.fail += 1
            self.fail_seconds += seconds

    def ran(self, rows: int, input_ns: int, run_ns: int, output_ns: int) -> None:
        self.inferences += rows
        self.batch.observe(rows)
        self.inference.observe(run_ns / 1e9)
        stat = self.batches[rows]
        stat.count += 1
        stat.input += input_ns
        stat.run += run_ns
        stat.output += output_ns


@dataclass(frozen=True, slots=True)
class Gauge:
    name: str
    help: str
    values: tuple[tuple[dict[str, str], float], ...]


class Meters:
    """outside: requests that reached no version, by (tenant, service, protocol, code); only known names get in."""

    def __init__(self) -> None:
        self.versions: dict[tuple[str, int], VersionMeter] = {}
        self.outside: defaultdict[tuple[str, str, str, int], int] = defaultdict(int)
        self.refused: defaultdict[tuple[str, str, str], int] = defaultdict(int)
        self.compared: defaultdict[tuple[str, str, str], int] = defaultdict(int)

    def version(self, service: str, number: int) -> VersionMeter:
        found = self.versions.get((service, number))
        if found is None:
            found = self.versions[service, number] = VersionMeter(service, str(number))
        return found

    def retire(self, used: set[tuple[str, int]], now: float) -> None:
        """Versions gone for a while lose their series, or a plane that lives long would only grow."""
        for key, meter in list(self.versions.items()):
            if key in used:
                meter.unused_since = None
            elif meter.unused_since is None:
                meter.unused_since = now
            elif now - meter.unused_since > FORGET_SECONDS:
                del self.versions[key]

    def series(self) -> tuple[Series, ...]:
        """All that only grows."""
        return tuple(Series(name, labels, value) for _, name, labels, value in self._samples())

    def exposition(self, gauges: Iterable[Gauge]) -> bytes:
        lines: list[str] = []
        described = ""
        for family, name, labels, value in self._samples():
            if family != described:
                described = family
                kind, text = _FAMILIES[family]
                lines += [f"# HELP {family} {text}", f"# TYPE {family} {kind}"]
            lines.append(f"{name}{_labels(labels)} {_number(value)}")
        for gauge in gauges:
            lines += [f"# HELP {gauge.name} {gauge.help}", f"# TYPE {gauge.name} gauge"]
            lines += [f"{gauge.name}{_labels(labels)} {_number(value)}" for labels, value in gauge.values]
        return "\n".join([*lines, ""]).encode()

    def _samples(self) -> Iterator[tuple[str, str, dict[str, str], float]]:
        """family, sample name, labels, value; all of a family together, as the text format wants it."""
        meters = list(self.versions.values())
        name = "pilothouse_requests_total"
        for meter in meters:
            for (tenant, protocol, code), count in meter.codes.items():
                yield name, name, _request(tenant, meter.service, meter.version, protocol, code), count
        for (tenant, service, protocol, code), count in self.outside.items():
            yield name, name, _request(tenant, service, "", protocol, code), count
        name = "pilothouse_refused_total"
        for (tenant, service, limit), count in self.refused.items():
            yield name, name, {"tenant": tenant, "service": service, "limit": limit}, count
        name = "pilothouse_shadow_compared_total"
        for (service, version, agreement), count in self.compared.items():
            yield name, name, {"service": service, "version": version, "agreement": agreement}, count
        name = "pilothouse_batch_dispatch_total"
        for meter in meters:
            for reason, count in meter.dispatched.items():
                yield name, name, {**_version(meter), "reason": reason}, count
        for family, field in _HISTOGRAMS:
            for meter in meters:
                yield from _histogram(family, meter, getattr(meter, field))
        for family, field in _COUNTERS:
            for meter in meters:
                yield family, family, _version(meter), getattr(meter, field)


_HISTOGRAMS = (
    ("pilothouse_request_duration_seconds", "duration"),
    ("pilothouse_queue_duration_seconds", "queue"),
    ("pilothouse_inference_duration_seconds", "inference"),
    ("pilothouse_batch_size", "batch"),
)
_COUNTERS = (
    ("pilothouse_batch_reruns_total", "reruns"),
    ("pilothouse_worker_lost_total", "deaths"),
    ("pilothouse_requests_given_up_total", "given_up"),
    ("pilothouse_quarantines_total", "quarantines"),
)
_FAMILIES = {
    "pilothouse_requests_total": ("counter", "Requests answered; version is empty where none was reached."),
    "pilothouse_shadow_compared_total": (
        "counter",
        "Answers of a version in the shadow, beside the ones that clients got.",
    ),
    "pilothouse_refused_total": ("counter", "Requests refused by a limit."),
    "pilothouse_batch_dispatch_total": ("counter", "Batches by why they left when they did."),
    "pilothouse_quarantines_total": (
        "counter",
        "Times that a tenant's requests were set apart: they made batches fail.",
    ),
    "pilothouse_request_duration_seconds": ("histogram", "From the whole request to its answer."),
    "pilothouse_queue_duration_seconds": ("histogram", "From the whole request to a worker."),
    "pilothouse_inference_duration_seconds": ("histogram", "One run of the model, for a whole batch."),
    "pilothouse_batch_size": ("histogram", "Rows of one run."),
    "pilothouse_batch_reruns_total": (
        "counter",
        "Batches that failed and were run again request by request.",
    ),
    "pilothouse_worker_lost_total": ("counter", "Workers that went away with a batch in hand."),
    "pilothouse_requests_given_up_total": ("counter", "Requests given up because workers died on them."),
}


def _version(meter: VersionMeter) -> dict[str, str]:
    return {"service": meter.service, "version": meter.version}


def _request(tenant: str, service: str, version: str, protocol: str, code: int) -> dict[str, str]:
    return {"tenant": tenant, "service": service, "version": version, "protocol": protocol, "code": str(code)}


def _histogram(
    family: str, meter: VersionMeter, histogram: Histogram
) -> Iterator[tuple[str, str, dict[str, str], float]]:
    labels, total = _version(meter), 0
    for bound, count in zip((*histogram.bounds, None), histogram.counts, strict=True):
        total += count
        le = "+Inf" if bound is None else f"{bound:g}"
        yield family, f"{family}_bucket", {**labels, "le": le}, total
    yield family, f"{family}_sum", labels, histogram.sum
    yield family, f"{family}_count", labels, total


def _labels(labels: dict[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(float(value))
