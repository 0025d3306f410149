"""Cohorts, stickiness and the shadow through a real plane with real workers."""

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from inference.plane.probe import counters
from inference.protocol import HeaderMatch, QuotaSpec, RoutingSpec
from tests.plane import models
from tests.plane.conftest import file_type
from tests.plane.parts import ACME, GLOBEX, Node
from tests.services.process import wait_until

X = {"name": "x", "shape": [1, 16], "datatype": "FP32", "data": [0.5] * 16}
PNG = {
    "name": "file",
    "shape": [1, 1],
    "datatype": "BYTES",
    "data": ["\x89PNG\r\n not really, but it has a label"],
}


def shuffled(folder: Path) -> Path:
    """The file-type model, as fast as ever, with its labels in another order."""
    file_type(folder)
    labels = (folder / "labels.txt").read_text().split()
    (folder / "labels.txt").write_text("\n".join([*labels[7:], *labels[:7]]) + "\n")
    return folder


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    base, folder = tmp_path_factory.mktemp("models"), tmp_path_factory.mktemp("node")
    versions = {
        ("mlp", 1): models.mlp(base / "one" / "mlp"),
        ("mlp", 2): models.mlp(base / "two" / "mlp"),
        ("file-type", 1): file_type(base / "file-type"),
        ("file-type", 2): shuffled(base / "shuffled"),
    }
    quotas = tuple(
        QuotaSpec(who, name, None, None, None) for who in ("acme", "globex") for name in ("mlp", "file-type")
    )
    node = Node(folder, versions, {("mlp", 2): 0, ("file-type", 2): 0}, quotas=quotas)
    try:
        yield node.start()
    finally:
        node.stop()


def route(node: Node, service: str, **routing: Any) -> None:
    node.routing = {service: RoutingSpec(2, **routing)}
    node.apply()


def met(
    node: Node, *, key: str = ACME, times: int = 10, headers: dict[str, str] | None = None
) -> Counter[str]:
    return Counter(
        node.infer("mlp", [X], key=key, headers=headers).headers["x-pilothouse-version"] for _ in range(times)
    )


def compared(node: Node) -> Counter[str]:
    found: Counter[str] = Counter()
    for series in counters(node.folder / "plane.sock").series:
        if series.name == "pilothouse_shadow_compared_total":
            found[series.labels["agreement"]] += int(series.value)
    return found


def test_a_tenant_of_the_cohort_gets_the_new_version_and_no_one_else(node: Node) -> None:
    route(node, "mlp", tenants=("acme",))
    assert (met(node), met(node, key=GLOBEX)) == ({"2": 10}, {"1": 10})


def test_a_header_chooses(node: Node) -> None:
    route(node, "mlp", matches=(HeaderMatch("x-beta", exact="yes"),))
    assert met(node, headers={"X-Beta": "yes"}) == {"2": 10}
    assert met(node, headers={"X-Beta": "no"}) == {"1": 10}
    assert met(node) == {"1": 10}


def test_a_route_that_is_taken_away_is_gone_at_once(node: Node) -> None:
    route(node, "mlp", tenants=("acme",))
    assert met(node) == {"2": 10}
    node.routing = {}
    node.apply()
    assert met(node) == {"1": 10}


def test_who_met_a_version_stays_with_it(node: Node) -> None:
    node.weights = {**node.weights, ("mlp", 1): 50, ("mlp", 2): 50}
    route(node, "mlp", sticky="header:x-session")
    try:
        for session in ("a", "b", "c", "d", "e"):
            assert len(met(node, headers={"x-session": session}, times=5)) == 1
    finally:
        node.weights = {**node.weights, ("mlp", 1): 100, ("mlp", 2): 0}
        node.routing = {}
        node.apply()


def test_an_equal_version_agrees_in_the_shadow_and_clients_see_none_of_it(node: Node) -> None:
    before = compared(node)
    route(node, "mlp", mirror_percent=50)
    assert met(node, times=40) == {"1": 40}
    wait_until(lambda: sum((compared(node) - before).values()) == 20, seconds=10, what="20 comparisons")
    found = compared(node) - before
    assert found["agree"] + found["skipped"] == 20
    assert found["agree"] >= 15
    text = node.request("GET", "/metrics").body.decode()
    assert 'pilothouse_requests_total{tenant="(shadow)"' not in text


def test_a_version_with_shuffled_labels_is_found_out(node: Node) -> None:
    before = compared(node)
    route(node, "file-type", mirror_percent=100)
    for _ in range(10):
        answer = node.infer("file-type", [PNG])
        assert (answer.status, answer.headers["x-pilothouse-version"]) == (200, "1")
    wait_until(lambda: sum((compared(node) - before).values()) >= 10, seconds=10, what="10 comparisons")
    found = compared(node) - before
    assert found["disagree"] >= 8
    assert not found["agree"] and not found["failed"]


def test_a_shadow_whose_worker_dies_costs_the_clients_nothing(node: Node) -> None:
    route(node, "mlp", mirror_percent=100)
    statuses: Counter[int] = Counter()

    def ask() -> None:
        for _ in range(40):
            statuses[node.infer("mlp", [X]).status] += 1

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    os.kill(node.workers["mlp", 2, 0].pid, signal.SIGKILL)
    for thread in threads:
        thread.join()
    assert statuses == {200: 160}
    node.workers["mlp", 2, 0].process.wait(10)
    node.start_worker("mlp", 2)
    node.wait_links()


def test_a_shadow_of_a_busy_version_is_left_out_first(node: Node) -> None:
    before = compared(node)
    route(node, "mlp", mirror_percent=100)

    def ask() -> None:
        for _ in range(50):
            node.infer("mlp", [X])

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wait_until(lambda: sum((compared(node) - before).values()) == 400, seconds=20, what="400 comparisons")
    assert (compared(node) - before)["disagree"] == 0
