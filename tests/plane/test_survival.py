"""kill -9, freezes and restarts of real processes under load: what clients see."""

import argparse
import contextlib
import os
import signal
import socket
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from inference.plane.connections import Connection
from inference.plane.probe import ProbeError, ask_worker, counters
from inference.plane.worker import Worker
from inference.protocol import ReplicaState
from tests.plane import models
from tests.plane.parts import OWNER, Answer, Node
from tests.services.process import wait_until

X = {"name": "x", "shape": [1, 16], "datatype": "FP32", "data": [0.5] * 16}


class Load:
    """A steady stream of requests, one thread for each in flight; collects every answer and every broken connection."""

    def __init__(self, node: Node, service: str, inputs: list[dict[str, Any]], *, rate: float = 50) -> None:
        self.statuses: Counter[Any] = Counter()
        self.versions: Counter[str] = Counter()
        self._node, self._service, self._inputs, self._rate = node, service, inputs, rate
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._pacer = threading.Thread(target=self._pace)

    def __enter__(self) -> "Load":
        self._pacer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._pacer.join()
        for thread in self._threads:
            thread.join(30)

    def _pace(self) -> None:
        while not self._stop.wait(1 / self._rate):
            thread = threading.Thread(target=self._one)
            self._threads.append(thread)
            thread.start()

    def _one(self) -> None:
        try:
            answer = self._node.infer(self._service, self._inputs, key=OWNER)
        except OSError as error:
            self.statuses[type(error).__name__] += 1
            return
        self.statuses[answer.status] += 1
        self.versions[answer.headers.get("x-pilothouse-version", "")] += 1


def kill(node: Node, service: str, ordinal: int = 0) -> None:
    child = node.workers[service, 1, ordinal]
    os.kill(child.pid, signal.SIGKILL)
    child.process.wait(10)


def test_a_killed_worker_under_load_fails_no_request(node: Node, tmp_path: Path) -> None:
    node.versions = {("mlp", 1): models.mlp(tmp_path / "mlp")}
    node.start()
    with Load(node, "mlp", [X]) as load:
        for _ in range(2):
            time.sleep(0.7)
            kill(node, "mlp")
            time.sleep(0.2)
            node.start_worker("mlp")
            node.wait_worker("mlp")
        time.sleep(0.7)
    assert set(load.statuses) == {200}, load.statuses
    assert load.statuses[200] > 60


def ask_slowly(node: Node, count: int) -> tuple[list[threading.Thread], list[Answer]]:
    """`count` requests that keep a worker busy, each in a thread that adds its answer to the list."""
    answers: list[Answer] = []
    turns = [{"name": "turns", "shape": [1, 1], "datatype": "INT64", "data": [6000]}]
    threads = [
        threading.Thread(target=lambda: answers.append(node.infer("slow", turns, key=OWNER)))
        for _ in range(count)
    ]
    for thread in threads:
        thread.start()
    return threads, answers


def test_a_killed_worker_with_requests_in_hand_loses_none_of_them(node: Node, tmp_path: Path) -> None:
    node.versions = {("slow", 1): models.slow(tmp_path / "slow")}
    node.replicas = {("slow", 1): 2}
    node.start()
    threads, answers = ask_slowly(node, 8)
    wait_until(lambda: all(link.inflight for link in node.status().links), seconds=10, what="both to be busy")
    kill(node, "slow", 0)
    for thread in threads:
        thread.join()
    assert Counter(answer.status for answer in answers) == {200: 8}
    assert {link.ordinal: link.state for link in node.status().links} == {0: "connecting", 1: "ready"}


def test_a_request_in_the_hands_of_the_only_worker_waits_for_the_next_one(node: Node, tmp_path: Path) -> None:
    """Within the demo's timeout, with a restart that takes as long as a supervised one."""
    timeout_ms = 10_000
    node.versions = {("slow", 1): models.slow(tmp_path / "slow", timeout_ms=timeout_ms)}
    node.start()
    threads, answers = ask_slowly(node, 6)
    wait_until(lambda: node.status().links[0].inflight > 0, seconds=10, what="the worker to be busy")
    kill(node, "slow")
    time.sleep(0.6)
    assert answers == []
    node.start_worker("slow")
    for thread in threads:
        thread.join()
    assert Counter(answer.status for answer in answers) == {200: 6}


def test_a_request_on_which_workers_die_is_given_up_and_its_neighbours_live(
    node: Node, tmp_path: Path
) -> None:
    node.versions = {("slow", 1): models.slow(tmp_path / "slow")}
    node.start()
    poison: list[Answer] = []
    turns = [{"name": "turns", "shape": [1, 1], "datatype": "INT64", "data": [400_000]}]
    thread = threading.Thread(target=lambda: poison.append(node.infer("slow", turns, key=OWNER)))
    thread.start()
    neighbours: list[Answer] = []
    others: list[threading.Thread] = []
    quick = [{**turns[0], "data": [1]}]
    for _ in range(2):
        wait_until(lambda: node.status().links[0].inflight > 0, seconds=10, what="the poison to run")
        time.sleep(0.1)
        if not others:
            others = [
                threading.Thread(target=lambda: neighbours.append(node.infer("slow", quick, key=OWNER)))
                for _ in range(3)
            ]
            for other in others:
                other.start()
            time.sleep(0.2)
        kill(node, "slow")
        node.start_worker("slow")
        node.wait_worker("slow")
    for one in [thread, *others]:
        one.join(20)
    assert [answer.status for answer in poison] == [500]
    assert "died 2 times on this request" in poison[0].json["error"]
    assert [answer.status for answer in neighbours] == [200, 200, 200]
    series = {s.name: s.value for s in counters(node.folder / "plane.sock").series}
    assert series["pilothouse_requests_given_up_total"] == 1 and series["pilothouse_worker_lost_total"] == 2


def test_a_killed_plane_comes_back_to_the_same_workers(node: Node, tmp_path: Path) -> None:
    node.versions = {("mlp", 1): models.mlp(tmp_path / "mlp")}
    node.start()
    before = node.wait_worker("mlp")
    first = node.status()
    assert node.plane is not None
    os.kill(node.plane.pid, signal.SIGKILL)
    node.plane.process.wait(10)
    node.start_plane()
    node.wait_links(5)
    after = node.wait_worker("mlp")
    assert (after.pid, after.instance) == (before.pid, before.instance)
    assert node.status().instance != first.instance and node.status().number == first.number
    assert node.infer("mlp", [X], key=OWNER).status == 200


def test_requests_right_after_a_plane_starts_wait_for_its_links(node: Node, tmp_path: Path) -> None:
    node.versions = {("mlp", 1): models.mlp(tmp_path / "mlp")}
    node.start()
    assert node.plane is not None
    os.kill(node.plane.pid, signal.SIGKILL)
    node.plane.process.wait(10)
    node.start_plane()
    assert {node.infer("mlp", [X], key=OWNER).status for _ in range(10)} == {200}


def test_a_worker_told_to_stop_finishes_what_it_has(node: Node, tmp_path: Path) -> None:
    node.versions = {("slow", 1): models.slow(tmp_path / "slow")}
    node.start()
    answers: list[Answer] = []
    turns = [{"name": "turns", "shape": [1, 1], "datatype": "INT64", "data": [10_000]}]
    thread = threading.Thread(target=lambda: answers.append(node.infer("slow", turns, key=OWNER)))
    thread.start()
    wait_until(lambda: node.status().links[0].inflight > 0, seconds=10, what="the request to run")
    child = node.workers["slow", 1, 0]
    os.kill(child.pid, signal.SIGTERM)
    thread.join()
    assert answers[0].status == 200
    assert child.process.wait(10) == 0
    assert counters(node.folder / "plane.sock").instance == node.status().instance
    # The next request waits for the worker's return.
    late = threading.Thread(
        target=lambda: answers.append(node.infer("slow", [{**turns[0], "data": [1]}], key=OWNER))
    )
    late.start()
    node.start_worker("slow")
    late.join()
    assert answers[1].status == 200


def test_a_plane_told_to_stop_answers_what_it_has(node: Node, tmp_path: Path) -> None:
    node.versions = {("slow", 1): models.slow(tmp_path / "slow")}
    node.start()
    answers: list[Answer] = []
    turns = [{"name": "turns", "shape": [1, 1], "datatype": "INT64", "data": [10_000]}]
    thread = threading.Thread(target=lambda: answers.append(node.infer("slow", turns, key=OWNER)))
    thread.start()
    wait_until(lambda: node.status().links[0].inflight > 0, seconds=10, what="the request to run")
    assert node.plane is not None
    os.kill(node.plane.pid, signal.SIGTERM)
    thread.join()
    assert answers[0].status == 200 and answers[0].headers["connection"] == "close"
    assert node.plane.process.wait(10) == 0
    assert ask_worker(node.socket("slow")).state == "ready"


def test_versions_are_swapped_under_load_without_a_failed_request(node: Node, tmp_path: Path) -> None:
    node.versions = {("mlp", 1): models.mlp(tmp_path / "one")}
    node.start()
    with Load(node, "mlp", [X], rate=40) as load:
        time.sleep(0.5)
        node.versions["mlp", 2] = models.mlp(tmp_path / "two")
        node.weights = {("mlp", 1): 100, ("mlp", 2): 0}
        node.start_worker("mlp", 2)
        node.apply()
        node.wait_links()
        node.weights = {("mlp", 1): 50, ("mlp", 2): 50}
        node.apply()
        time.sleep(0.8)
        del node.versions["mlp", 1]
        node.weights = {("mlp", 2): 100}
        node.apply()
        wait_until(lambda: len(node.status().pools) == 1, seconds=10, what="version 1 to leave")
        time.sleep(0.3)
    assert set(load.statuses) == {200}, load.statuses
    assert load.versions["1"] > 20 and load.versions["2"] > 20


def test_a_small_weight_is_exact_and_a_version_can_be_pinned(node: Node, tmp_path: Path) -> None:
    node.versions = {("mlp", 1): models.mlp(tmp_path / "one"), ("mlp", 2): models.mlp(tmp_path / "two")}
    node.weights = {("mlp", 1): 90, ("mlp", 2): 10}
    node.start()
    answers = [node.infer("mlp", [X], key=OWNER) for _ in range(100)]
    assert Counter(answer.headers["x-pilothouse-version"] for answer in answers) == {"1": 90, "2": 10}
    assert {answer.json["model_version"] for answer in answers} == {"1", "2"}
    pinned = [node.infer("mlp", [X], key=OWNER, version=2) for _ in range(5)]
    assert {answer.headers["x-pilothouse-version"] for answer in pinned} == {"2"}


def test_a_model_that_cannot_load_says_why_and_gets_no_traffic(node: Node, tmp_path: Path) -> None:
    folder = models.mlp(tmp_path / "mlp")
    node.versions = {("mlp", 1): folder}
    node.apply()
    whole = (folder / "model.onnx").read_bytes()
    (folder / "model.onnx").write_bytes(whole[: len(whole) // 2])
    child = node.start_worker("mlp")
    status = node.wait_worker("mlp", state="crashed")
    assert "cannot load model.onnx" in status.detail
    assert str(tmp_path) not in status.detail
    assert child.process.wait(10) == 3
    node.start_plane()
    time.sleep(3.2)  # a plane that has just started still hopes
    answer = node.infer("mlp", [X], key=OWNER)
    assert answer.status == 503 and "no worker" in answer.json["error"]
    assert node.request("GET", "/readyz", key=None).status == 503
    assert node.request("GET", "/v2/health/ready", key=None).status == 400
    (folder / "model.onnx").unlink()
    node.start_worker("mlp")
    status = node.wait_worker("mlp", state="crashed")
    assert "model.onnx" in status.detail and str(tmp_path) not in status.detail
    (folder / "model.onnx").write_bytes(whole)
    node.start_worker("mlp")
    node.wait_links()
    assert node.infer("mlp", [X], key=OWNER).status == 200


def test_a_worker_answers_probes_while_a_batch_runs(node: Node, tmp_path: Path) -> None:
    node.versions = {("slow", 1): models.slow(tmp_path / "slow")}
    node.start()
    turns = [{"name": "turns", "shape": [1, 1], "datatype": "INT64", "data": [30_000]}]
    thread = threading.Thread(target=lambda: node.infer("slow", turns, key=OWNER))
    thread.start()

    def busy() -> bool:
        return ask_worker(node.socket("slow"), timeout_seconds=0.5).busy_seconds > 0.1

    wait_until(busy, seconds=10, what="the worker to say that it is busy")
    thread.join()


def test_a_graph_that_only_looks_as_if_it_batched_is_not_joined(node: Node, tmp_path: Path) -> None:
    folder = models.mean_over_rows(tmp_path / "mean")
    node.versions = {("mean", 1): folder}
    node.start()
    assert node.wait_worker("mean").batch_safe is False
    answers: list[Answer] = []

    def ask(value: float) -> None:
        tensor = {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [value, -value]}
        answers.append(node.infer("mean", [tensor], key=OWNER))

    threads = [threading.Thread(target=ask, args=(float(n),)) for n in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(answer.json["outputs"][0]["data"] == [0.0, 0.0] for answer in answers)


def test_sockets_are_for_this_user_only_and_a_stranger_on_them_harms_nobody(
    node: Node, tmp_path: Path
) -> None:
    node.versions = {("mlp", 1): models.mlp(tmp_path / "mlp")}
    node.start()
    for path in (node.socket("mlp"), node.folder / "plane.sock"):
        assert path.stat().st_mode & 0o777 == 0o600
        for rubbish in (b"\xff" * 4000, b"GET / HTTP/1.1\r\n\r\n", b"\n\n{}\n"):
            with socket.socket(socket.AF_UNIX) as stranger:
                stranger.connect(str(path))
                stranger.sendall(rubbish)
    assert node.infer("mlp", [X], key=OWNER).status == 200
    with pytest.raises(ProbeError):
        ask_worker(tmp_path / "nobody.sock")


def test_memory_of_an_idle_plane_and_worker(
    node: Node, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node.versions = {("mlp", 1): models.mlp(tmp_path / "mlp")}
    node.start()
    assert node.plane is not None
    plane, worker = (_rss_mb(pid) for pid in (node.plane.pid, node.workers["mlp", 1, 0].pid))
    with capsys.disabled():
        print(f"\n  idle memory: plane {plane:.0f} MB, worker with a tiny model {worker:.0f} MB")
    assert plane < 120 and worker < 200


def _rss_mb(pid: int) -> float:
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def test_a_plane_that_connects_while_a_worker_loads_always_hears_that_it_is_ready(tmp_path: Path) -> None:
    """Two threads of a worker tell its state; the last word that arrives must be the newest."""
    ours, theirs = socket.socketpair()
    worker = Worker(_arguments_of(tmp_path))
    connection = Connection(ours, None)
    began = threading.Barrier(2)

    def door() -> None:
        began.wait()
        worker.turns.planes = (connection,)
        connection.tell(worker.status_bytes)

    for _ in range(300):
        worker.state, worker.turns.planes = ReplicaState.STARTING, ()
        thread = threading.Thread(target=door)
        thread.start()
        began.wait()
        worker.become(ReplicaState.READY)
        thread.join()
        theirs.setblocking(False)
        last = b""
        with contextlib.suppress(BlockingIOError):
            while part := theirs.recv(1 << 16):
                last += part
        assert last.rpartition(b'"state":"')[2].startswith(b"ready")
    ours.close()
    theirs.close()


def _arguments_of(folder: Path) -> argparse.Namespace:
    return argparse.Namespace(service="s", version=1, ordinal=0, version_dir=folder)
