"""The supervisor over real processes: plane, workers and the death of each."""

import os
import signal
import threading
import time
from dataclasses import replace

import pytest

from console.kit import processes
from inference.protocol import ReplicaState
from tests.inference.conftest import MakeModel
from tests.inference.node import RunningNode

pytestmark = pytest.mark.timeout(120)


def test_a_killed_owner_is_followed_by_one_that_adopts_plane_and_workers(
    node: RunningNode, make_model: MakeModel
) -> None:
    snapshot = node.want(node.version(make_model(), replicas=2))
    node.put_snapshot_on_disk(snapshot)
    node.start_as_process()
    node.wait("an answer", lambda: node.ask() == 1.0)
    node.wait("three pid files", lambda: len(node.pid_files()) == 3)
    before = {name: file.identity for name, file in node.pid_files().items()}

    node.kill_owner()
    assert node.ask() == 1.0, "inference goes on without its supervisor"
    node.take_over()
    node.wait_serving(snapshot)

    assert {name: file.identity for name, file in node.pid_files().items()} == before
    assert node.ask() == 1.0


def test_a_killed_worker_comes_back_with_back_off_and_loses_no_request(
    node: RunningNode, make_model: MakeModel
) -> None:
    node.start()
    node.wait_serving(node.want(node.version(make_model(), replicas=2)))
    answers: list[float | None] = []
    stop = threading.Event()

    def load() -> None:
        while not stop.is_set():
            answers.append(node.ask())

    loader = threading.Thread(target=load)
    loader.start()
    victim = node.replica(ordinal=0)
    assert victim is not None
    assert victim.pid is not None
    os.kill(victim.pid, signal.SIGKILL)
    node.wait(
        "another process",
        lambda: (now := node.replica(ordinal=0)) is not None and now.pid not in (None, victim.pid),
    )
    node.wait("it to be ready", lambda: node.states()[(1, 0)] is ReplicaState.READY)
    stop.set()
    loader.join(20)

    assert answers
    assert set(answers) == {1.0}
    restarted = node.replica(ordinal=0)
    assert restarted is not None
    assert restarted.restarts == 1


def test_a_worker_that_cannot_load_is_reported_as_crashed_with_its_own_words(
    node: RunningNode, make_model: MakeModel
) -> None:
    good = node.version(make_model())
    contract = {**good.contract, "spec": {**good.contract["spec"], "warmup": ["missing.json"]}}
    node.start()
    node.want(replace(good, contract=contract))
    node.wait("a later try", lambda: (now := node.replica()) is not None and now.restarts >= 2)
    failing = node.replica()
    assert failing is not None
    assert failing.state in {ReplicaState.CRASHED, ReplicaState.STARTING}
    assert "missing.json" in failing.detail, "between two tries it still says why"


def test_a_killed_plane_comes_back_and_finds_its_workers(node: RunningNode, make_model: MakeModel) -> None:
    node.start()
    node.wait_serving(node.want(node.version(make_model())))
    files = node.pid_files()
    os.kill(files["plane"].pid, signal.SIGKILL)
    assert node.ask() == 1.0, "a new connection waits for the next plane instead of being refused"
    node.wait(
        "another plane", lambda: node.pid_files().get("plane", files["plane"]).pid != files["plane"].pid
    )
    node.wait("an answer", lambda: node.ask() == 1.0)
    workers = {name: file.pid for name, file in node.pid_files().items() if name != "plane"}
    assert workers == {name: file.pid for name, file in files.items() if name != "plane"}


def test_a_new_version_is_loaded_before_the_old_one_leaves(node: RunningNode, make_model: MakeModel) -> None:
    node.start()
    first = node.version(make_model("one", add=1.0))
    node.wait_serving(node.want(first))
    answers: list[float | None] = []
    stop = threading.Event()

    def load() -> None:
        while not stop.is_set():
            answers.append(node.ask())

    loader = threading.Thread(target=load)
    loader.start()
    second = node.want(node.version(make_model("two", add=2.0), number=2))
    node.wait_serving(second)
    time.sleep(0.3)
    stop.set()
    loader.join(20)

    assert None not in answers
    assert answers == sorted(answers, key=lambda answer: answer or 0), "once switched it never goes back"
    assert set(answers) == {1.0, 2.0}


def test_a_weight_moves_only_once_its_version_is_ready(node: RunningNode, make_model: MakeModel) -> None:
    node.start()
    good = node.version(make_model("one"))
    served = node.want(good)
    node.wait_serving(served)
    other = node.version(make_model("two", add=2.0), number=2)
    broken = replace(
        other, contract={**other.contract, "spec": {**other.contract["spec"], "warmup": ["no.json"]}}
    )
    node.want(broken)
    node.wait("the crash", lambda: node.states().get((2, 0)) is ReplicaState.CRASHED)
    assert node.ask() == 1.0
    assert node.report().snapshot_number == served.number, "what cannot be served is not said to be applied"
    node.wait_serving(node.want(good))


def test_an_older_snapshot_is_refused_and_another_epoch_is_taken(
    node: RunningNode, make_model: MakeModel
) -> None:
    node.layout.prepare()
    newest = node.want(node.version(make_model()))
    assert not node.supervisor.offer(replace(newest, number=newest.number - 1))
    assert not node.supervisor.offer(newest)
    assert node.supervisor.offer(replace(newest, epoch="another", number=1))


def test_restart_ends_only_the_process_that_was_meant(node: RunningNode, make_model: MakeModel) -> None:
    node.start()
    node.wait_serving(node.want(node.version(make_model(), replicas=2)))
    before = node.replica(ordinal=1)
    assert before is not None
    assert before.pid is not None
    assert not node.supervisor.restart("adder", 1, 1, before.pid + 1)
    assert node.supervisor.restart("adder", 1, 1, before.pid)
    node.wait(
        "a new process",
        lambda: (now := node.replica(ordinal=1)) is not None and now.pid not in (None, before.pid),
    )
    assert not node.supervisor.restart("adder", 1, 1, before.pid), "a repeat finds another process"


def test_the_end_leaves_no_process(node: RunningNode, make_model: MakeModel) -> None:
    node.start()
    node.wait_serving(node.want(node.version(make_model(), replicas=2)))
    identities = [file.identity for file in node.pid_files().values()]
    assert len(identities) == 3
    node.end()
    assert not [identity for identity in identities if processes.is_alive(identity)]
    assert not node.pid_files()


def test_a_worker_without_a_pid_file_is_found_and_ended(node: RunningNode, make_model: MakeModel) -> None:
    snapshot = node.want(node.version(make_model()))
    node.put_snapshot_on_disk(snapshot)
    node.start_as_process()
    node.wait("an answer", lambda: node.ask() == 1.0)
    node.kill_owner()
    (name,) = [name for name in node.pid_files() if name != "plane"]
    stray = node.pid_files()[name].identity
    (node.layout.run / f"{name}.json").unlink()
    node.take_over()
    node.wait("the stray to end", lambda: not processes.is_alive(stray))
    node.wait_serving(snapshot)
