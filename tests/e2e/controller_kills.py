"""kill -9 of the controller at random moments of real rollouts: `python -m tests.e2e.controller_kills [--kills 50]`.

Good versions must end promoted and bad ones aborted whatever was killed, with one decision and one audit row for each
transition. Seeded moments, loopback only; ends what it started.
"""

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.e2e.product import Product

ENDS = {"promoted", "aborted", "superseded"}
ONCE = {"request", "begin", "promote", "abort"}
QUICK: dict[str, Any] = {
    "steps": [
        {"setWeight": 30},
        {
            "analysis": {
                "gates": [
                    {
                        "indicator": "error_ratio",
                        "max": 0.02,
                        "window": "10s",
                        "interval": "2s",
                        "count": 3,
                        "min_requests": 10,
                        "on_no_data": {"wait": "2m", "then": "pause"},
                    }
                ]
            }
        },
        {"setWeight": 100},
    ]
}


def controller_of(product: Product) -> int | None:
    """From its run file, when it lives."""
    try:
        pid = int(json.loads((product.home / "run" / "controller.json").read_text())["pid"])
        os.kill(pid, 0)
    except (OSError, ValueError, KeyError):
        return None
    return pid


def one_rollout(product: Product, version: int, chance: random.Random, kills: list[float]) -> dict[str, Any]:
    """Start, kill now and then until it is over; its final body."""
    body = {"service": "file-type", "version": version, "strategy": QUICK}
    rollout = product.rest("POST", "rollouts", json=body)
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        time.sleep(chance.uniform(0.3, 10.0))
        rollout = product.rest("GET", f"rollouts/{rollout['id']}")
        if rollout["state"] in ENDS and rollout["settled"]:
            return rollout
        pid = controller_of(product)
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            kills.append(time.time())
    raise RuntimeError(f"rollout {rollout['id']} did not end: {rollout['state']} {rollout['message']}")


def faults_of(rollout: dict[str, Any], audit: list[dict[str, Any]], expected: str) -> list[str]:
    """What is wrong with the record; empty when nothing is."""
    faults = []
    if rollout["state"] != expected:
        faults.append(f"ended {rollout['state']} instead of {expected}: {rollout['message']}")
    revisions = [one["revision"] for one in rollout["decisions"]]
    if len(set(revisions)) != len(revisions):
        faults.append("two decisions share a revision")
    kinds = Counter(one["kind"] for one in rollout["decisions"])
    faults += [f"{kinds[kind]} decisions {kind}" for kind in ONCE if kinds[kind] > 1]
    steps = Counter(
        (one["kind"], one["step_index"]) for one in rollout["decisions"] if one["kind"] == "next_step"
    )
    faults += [f"step {index} was entered {times} times" for (_, index), times in steps.items() if times > 1]
    told = Counter(one["verb"] for one in audit if one["target"] == f"rollout:{rollout['id']}")
    faults += [f"{times} audit rows {verb}" for verb, times in told.items() if times > 1]
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    chance, kills, wrong = random.Random(given.seed), [], 0
    ended: Counter[str] = Counter()
    product = Product(Path(tempfile.mkdtemp(prefix="pilothouse-kills-")) / "home", "--no-prometheus")
    try:
        product.start()
        stable = 1
        while len(kills) < given.kills:
            good = chance.random() < 0.7
            version = (3 - stable) if good else 3
            rollout = one_rollout(product, version, chance, kills)
            audit = product.rest("GET", "audit", params={"target": f"rollout:{rollout['id']}", "limit": 100})[
                "results"
            ]
            faults = faults_of(rollout, audit, "promoted" if good else "aborted")
            ended[rollout["state"]] += 1
            wrong += len(faults)
            stable = version if rollout["state"] == "promoted" else stable
            print(
                f"rollout {rollout['id']}: {rollout['state']}, {len(kills)} kills so far {faults or ''}",
                flush=True,
            )
        print(f"{len(kills)} kills, {sum(ended.values())} rollouts {dict(ended)}, {wrong} faults")
        product.interrupt()
    finally:
        product.clean_up()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
