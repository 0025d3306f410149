"""The shadow in the real product: it reports the quantized version's agreement, and it alone catches wrong labels."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from inference.demo import variants
from tests.e2e.product import PILOTHOUSE, Product
from tests.e2e.test_whole_product import write_result
from tests.services.process import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(420)]

AGREEMENT = {
    "name": "agreement",
    "indicator": "agreement",
    "min": 0.95,
    "interval": "5s",
    "window": "20s",
    "count": 2,
    "min_requests": 10,
}
IN_THE_SHADOW: dict[str, Any] = {
    "steps": [
        {"experiment": {"percentage": 100, "duration": "15s", "gates": [AGREEMENT]}},
        {"setWeight": 100},
    ]
}
WITHOUT: dict[str, Any] = {
    "steps": [
        {"setWeight": 50},
        {
            "analysis": {
                "gates": [
                    {"indicator": "error_ratio", "max": 0.02, "interval": "5s", "window": "15s", "count": 2},
                    {
                        "indicator": "latency_p95_ms",
                        "max": 2000,
                        "interval": "5s",
                        "window": "15s",
                        "count": 2,
                    },
                    {
                        "name": "judge",
                        "judge": {"metrics": ["error_ratio"], "floor": 0.05, "max_duration": "2m"},
                        "interval": "5s",
                    },
                ]
            }
        },
    ]
}


@pytest.fixture
def product(tmp_path: Path) -> Iterator[Product]:
    product = Product(tmp_path / "home", "--no-prometheus")
    try:
        product.start()
        yield product
    finally:
        product.clean_up()


def roll_out(product: Product, version: int, strategy: dict[str, Any] | None) -> dict[str, Any]:
    body = {"service": "file-type", "version": version, "strategy": strategy}
    rollout = product.rest("POST", "rollouts", json=body)
    for _ in range(8):
        rollout = product.rest("GET", f"rollouts/{rollout['id']}/wait", params={"timeout": 30})
        if rollout["state"] in {"promoted", "aborted", "superseded"}:
            return rollout
    raise AssertionError(json.dumps(rollout, indent=2))


def register_shuffled(product: Product, folder: Path) -> int:
    """The model as shipped, as fast and as healthy, with its labels moved by one."""
    folder.mkdir()
    variants.as_shipped(folder)
    labels = (folder / "labels.txt").read_text(encoding="utf-8").split()
    (folder / "labels.txt").write_text("\n".join([*labels[1:], labels[0]]) + "\n", encoding="utf-8")
    env = {**os.environ, "PILOTHOUSE_URL": product.console, "PILOTHOUSE_TOKEN": product.credentials["token"]}
    done = subprocess.run(
        [PILOTHOUSE, "model", "register", folder, "--name", "file-type", "--json"],
        env=env, capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    return int(json.loads(done.stdout)["number"])


def test_the_shadow_reports_agreement_and_catches_what_nothing_else_does(
    product: Product, tmp_path: Path
) -> None:
    good = roll_out(product, 2, IN_THE_SHADOW)
    write_result("shadow-version-2", good)
    assert good["state"] == "promoted", good["message"]
    agreed = [one for one in good["measurements"] if one["gate"] == "agreement"]
    assert agreed[-1]["value"] >= 0.95
    assert agreed[-1]["requests"] >= 10

    number = register_shuffled(product, tmp_path / "shuffled")
    fooled = roll_out(product, number, WITHOUT)
    write_result("shadow-shuffled-without", fooled)
    assert fooled["state"] == "promoted", fooled["message"]

    back = roll_out(product, 2, None)
    assert (back["state"], back["strategy"]) == ("promoted", "return")
    wait_until(
        lambda: product.infer("acme").headers["x-pilothouse-version"] == "2",
        seconds=15,
        what="version 2 again",
    )

    caught = roll_out(product, number, IN_THE_SHADOW)
    write_result("shadow-shuffled", caught)
    assert (caught["state"], caught["reason"], caught["weight_percent"]) == ("aborted", "breach", 0)
    assert "agreement with stable" in caught["message"]
    weights = {one["weight_percent"] for one in caught["decisions"]}
    assert weights == {0}, "no client may have met it"
