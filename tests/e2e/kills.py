"""kill -9, one part at a time, under a steady load: what clients saw, how soon it was whole, whether it is true after.

python -m tests.e2e.kills [--rounds 1]     prints the table of docs/operations.md
"""

import argparse
import json
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import httpx

from tests.e2e.product import PDF, Product
from tests.e2e.steady import SteadyLoad

PARTS = ("worker", "plane", "agent", "controller", "console", "redis")
HEALTH_SECONDS = 60.0
REPLICAS = 2  # of the demo's stable version


@dataclass(frozen=True, slots=True)
class Row:
    part: str
    sent: int
    failed: int
    failures: dict[str, int]
    longest_ms: float
    healthy_after_seconds: float | None
    untruths: list[str]

    @property
    def text(self) -> str:
        seen = ", ".join(f"{count} x {what}" for what, count in self.failures.items()) or "none"
        health = "never" if self.healthy_after_seconds is None else f"{self.healthy_after_seconds:.1f}"
        truth = "; ".join(self.untruths) or "true"
        return f"| {self.part} | {self.sent} | {self.failed} | {seen} | {self.longest_ms:.0f} | {health} | {truth} |"


def pid_of(product: Product, part: str) -> int:
    """The process as its own pid file names it: `up` keeps run/<name>.json, the node node/<name>/run/<name>.json."""
    folders = {"worker": "node/*/run", "plane": "node/*/run"}
    pattern = {"worker": "file-type*.json", "plane": "plane.json", "agent": "agent*.json"}.get(
        part, f"{part}*.json"
    )
    files = sorted(product.home.glob(f"{folders.get(part, 'run')}/{pattern}"))
    assert files, f"no pid file of {part} under {product.home}"
    pid = json.loads(files[0].read_text(encoding="utf-8"))["pid"]
    assert isinstance(pid, int)
    return pid


def ailments(product: Product, *, since: float) -> Iterator[str]:
    """What is not healthy or not true now; nothing when all is well. since: reports before it prove nothing."""
    try:
        for url in (product.console, product.plane):
            answer = httpx.get(f"{url}/readyz", timeout=3)
            if answer.status_code != 200:
                yield f"{url} answers {answer.status_code}: {answer.text[:120]}"
        for node in product.rest("GET", "nodes")["results"]:
            if datetime.fromisoformat(node["reported_at"]).timestamp() <= since:
                yield f"node {node['name']} has not reported since"
        replicas = product.rest("GET", "replicas")["results"]
        if len(replicas) != REPLICAS:
            yield f"{len(replicas)} replicas are said to be there, not {REPLICAS}"
        for replica in replicas:
            if replica["state"] != "ready":
                yield f"replica {replica['version']}#{replica['ordinal']} is said to be {replica['state']}"
            elif replica["pid"] and not Path(f"/proc/{replica['pid']}").exists():
                yield f"replica {replica['version']}#{replica['ordinal']} is said to be process {replica['pid']}, gone"
        if product.infer("acme").status_code != 200:
            yield "an inference fails"
    except (httpx.HTTPError, AssertionError, OSError, ValueError) as error:
        yield f"{type(error).__name__}: {str(error)[:120]}"


def kill(product: Product, part: str, load: SteadyLoad) -> Row:
    load.take()
    time.sleep(3)  # what is on its way at the kill must have begun in the outcome that is read below
    victim, killed_at = pid_of(product, part), time.time()
    os.kill(victim, signal.SIGKILL)
    healthy_after: float | None = None
    complaints: list[str] = []
    while time.time() - killed_at < HEALTH_SECONDS:
        complaints = list(ailments(product, since=killed_at))
        if pid_of(product, part) == victim:
            complaints.append(f"{part} has not been replaced")
        if not complaints:
            healthy_after = time.time() - killed_at
            break
        time.sleep(0.1)
    time.sleep(3)
    outcome = load.take()
    return Row(
        part,
        outcome.sent,
        outcome.failed,
        dict(outcome.failures),
        outcome.longest_ms,
        healthy_after,
        complaints,
    )


def steady_load(product: Product) -> SteadyLoad:
    body = {
        "inputs": [{"name": "file", "datatype": "BYTES", "shape": [1, 1], "data": [PDF.decode("latin-1")]}]
    }
    key = product.credentials["tenants"]["acme"]["infer"]
    return SteadyLoad(f"{product.plane}/v2/models/file-type/infer", key=key, body=body)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    rounds = parser.parse_args().rounds
    product = Product(Path(tempfile.mkdtemp(prefix="pilothouse-kills-")) / "home")
    try:
        product.start()
        print(
            "| killed | sent | failed | what the client saw | longest, ms | healthy after, s | state afterwards |"
        )
        print("| --- | ---: | ---: | --- | ---: | ---: | --- |")
        with steady_load(product) as load:
            for part in PARTS * rounds:
                print(kill(product, part, load).text, flush=True)
        product.interrupt()
    finally:
        product.clean_up()


if __name__ == "__main__":
    main()
