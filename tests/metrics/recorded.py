"""Counters of plane processes, made up once and given to both sources: a Redis stream and a Prometheus database."""

import json
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import redis

from console.metrics.tape import SAMPLES_KEY

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
INTERVAL = 2.0

Labels = tuple[tuple[str, str], ...]


@dataclass
class Plane:
    """One plane process's counters. restart: all of them gone, a new instance begins."""

    address: str = "127.0.0.1:8080"
    node: str = "node-1"
    generation: int = 1
    requests: dict[Labels, float] = field(default_factory=dict)
    durations: dict[Labels, list[float]] = field(default_factory=dict)
    others: dict[tuple[str, Labels], float] = field(default_factory=dict)

    def answer(
        self,
        service: str,
        version: int,
        *,
        code: int = 200,
        times: int = 1,
        seconds: float = 0.02,
        tenant: str = "acme",
    ) -> None:
        labels = (
            ("code", str(code)), ("protocol", "oip-http"), ("service", service), ("tenant", tenant),
            ("version", str(version)),
        )  # fmt: skip
        self.requests[labels] = self.requests.get(labels, 0) + times
        row = self.durations.setdefault(
            (("service", service), ("version", str(version))), [0.0] * (len(BOUNDS) + 1)
        )
        for position, bound in enumerate((*BOUNDS, float("inf"))):
            row[position] += times if seconds <= bound else 0

    def refuse(self, service: str, limit: str, *, times: int = 1, tenant: str = "acme") -> None:
        labels = (("limit", limit), ("service", service), ("tenant", tenant))
        self.count("pilothouse_refused_total", labels, times)

    def count(self, name: str, labels: Labels, times: float = 1) -> None:
        self.others[name, labels] = self.others.get((name, labels), 0) + times

    def restart(self) -> None:
        self.generation += 1
        self.requests.clear()
        self.durations.clear()
        self.others.clear()

    def series(self) -> list[tuple[str, dict[str, str], float]]:
        found = [
            ("pilothouse_requests_total", dict(labels), value) for labels, value in self.requests.items()
        ]
        for labels, row in self.durations.items():
            for bound, value in zip((*BOUNDS, float("inf")), row, strict=True):
                le = "+Inf" if bound == float("inf") else str(bound)
                found.append(
                    ("pilothouse_request_duration_seconds_bucket", {**dict(labels), "le": le}, value)
                )
            found.append(("pilothouse_request_duration_seconds_count", dict(labels), row[-1]))
        found += [(name, dict(labels), value) for (name, labels), value in self.others.items()]
        found.append(("pilothouse_worker_up", {"service": "x", "version": "1", "replica": "0"}, 1.0))
        return found

    def sample(self, at: float) -> bytes:
        """As inference.protocol.CounterSample."""
        return json.dumps(
            {
                "node": self.node,
                "instance": f"{self.address}-{self.generation}",
                "at": at,
                "series": [
                    {"name": name, "labels": labels, "value": value} for name, labels, value in self.series()
                ],
            }
        ).encode()

    def exposition(self) -> str:
        return "".join(f"{name}{_text(labels)} {value}\n" for name, labels, value in self.series())


def _text(labels: dict[str, str]) -> str:
    return "{" + ",".join(f"{key}={json.dumps(value)}" for key, value in labels.items()) + "}"


@dataclass
class Recording:
    """Everything said by every plane, by time."""

    samples: list[tuple[float, bytes]] = field(default_factory=list)
    lines: dict[str, list[str]] = field(default_factory=dict)

    def take(self, plane: Plane, at: float) -> None:
        self.samples.append((at, plane.sample(at)))
        target = {"job": "pilothouse", "instance": plane.address}
        for name, labels, value in plane.series():
            self.lines.setdefault(name, []).append(f"{name}{_text({**labels, **target})} {value} {at:.3f}")

    def into_redis(self, client: "redis.Redis") -> None:
        for number, (at, raw) in enumerate(self.samples):
            client.xadd(SAMPLES_KEY, {"sample": raw}, id=f"{round(at * 1000)}-{number}")

    def into_prometheus(self, folder: Path) -> None:
        """Write blocks that a Prometheus started on `folder`/data finds."""
        promtool = shutil.which("promtool")
        assert promtool is not None
        text = "".join(
            f"# TYPE {name.removesuffix('_total')} {'counter' if name.endswith('_total') else 'unknown'}\n"
            + "".join(f"{line}\n" for line in lines)
            for name, lines in self.lines.items()
        )
        folder.mkdir(parents=True, exist_ok=True)
        source = folder / "recorded.om"
        source.write_text(f"{text}# EOF\n", encoding="utf-8")
        subprocess.run(
            [promtool, "tsdb", "create-blocks-from", "openmetrics", str(source), str(folder / "data")],
            check=True, capture_output=True, timeout=60,
        )  # fmt: skip
