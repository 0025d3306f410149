"""The agent as it really runs: a Celery worker with its bootstep, and a Redis that goes away."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from inference.protocol import SAMPLES_KEY, SNAPSHOT_KEY, encode
from tests.inference.conftest import MakeModel
from tests.inference.node import ROOT, RunningNode
from tests.services import parts, redis
from tests.services.process import free_port, wait_until

pytestmark = pytest.mark.timeout(120)


class RunningAgent:
    """Its home is the node's folder; `node` only looks, it supervises nothing."""

    def __init__(self, home: Path, server: redis.RedisServer) -> None:
        self.home, self.server = home, server
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PILOTHOUSE_HOME": str(self.home),
            "PILOTHOUSE_NODE_NAME": "node-1",
            "PILOTHOUSE_PLANE_URL": f"http://127.0.0.1:{self.port}",
            "REDIS_URL": self.server.url,
            # Nobody is there: an agent that asked the database would not get far.
            "DATABASE_URL": "postgres://nobody@127.0.0.1:1/none",
            "CELERY_SKIP_CHECKS": "1",
        }
        command = [
            sys.executable, "-m", "celery", "-A", "config.celery", "worker", "-n", "agent@node-1",
            "-Q", "node.node-1,jobs", "-P", "threads", "-c", "2",
            "--without-gossip", "--without-mingle", "--loglevel", "INFO",
        ]  # fmt: skip
        with (self.home / "agent.log").open("ab") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=ROOT)

    def end(self, number: signal.Signals = signal.SIGTERM, *, seconds: float = 40) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)
            self.process.wait(seconds)

    def log(self) -> str:
        return (self.home / "agent.log").read_text(errors="replace")[-3000:]


@pytest.fixture
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ph-agent-") as folder:
        yield Path(folder)


@pytest.fixture
def own_redis(home: Path) -> Iterator[redis.RedisServer]:
    binary = redis.find_binary()
    if binary is None:
        parts.did_not_run("Redis", "apt-get install redis-server")
    server = redis.RedisServer(binary, port=free_port(), folder=home / "redis")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def agent(home: Path, own_redis: redis.RedisServer) -> Iterator[RunningAgent]:
    made = RunningAgent(home, own_redis)
    yield made
    made.end(signal.SIGKILL)


@pytest.fixture
def eyes(agent: RunningAgent) -> Iterator[RunningNode]:
    """Looks at the node of the agent; ends what is left of it."""
    node = RunningNode(
        agent.home, blobs=agent.home / "blobs", folder=agent.home / "node" / "node-1", port=agent.port
    )
    yield node
    agent.end(signal.SIGKILL)
    node.end()


def test_an_agent_serves_supervises_and_ends_without_redis_console_or_database(
    agent: RunningAgent, eyes: RunningNode, make_model: MakeModel
) -> None:
    client = agent.server.client
    snapshot = eyes.snapshot(eyes.version(make_model(), replicas=2))
    client.set(SNAPSHOT_KEY, encode(snapshot))
    agent.start()
    eyes.wait(f"an answer\n{agent.log()}", lambda: eyes.ask() == 1.0)
    wait_until(lambda: client.llen("control") > 0, seconds=10, what="a report")
    wait_until(lambda: client.xlen(SAMPLES_KEY) > 0, seconds=10, what="a counter sample")

    agent.server.stop()
    before = eyes.pid_files()
    assert len(before) == 3
    name = next(name for name in before if name != "plane")
    os.kill(before[name].pid, signal.SIGKILL)
    eyes.wait(
        "the worker to be replaced", lambda: eyes.pid_files().get(name, before[name]).pid != before[name].pid
    )
    assert eyes.ask() == 1.0

    agent.end(signal.SIGKILL)
    running = {name: file.identity for name, file in eyes.pid_files().items()}
    agent.start()  # while Redis is still away
    eyes.wait("the new agent to take over", lambda: "took over 2 worker(s) and the plane" in agent.log())
    assert eyes.ask() == 1.0
    assert {name: file.identity for name, file in eyes.pid_files().items()} == running

    agent.server.start()
    client.set(SNAPSHOT_KEY, encode(eyes.snapshot(eyes.version(make_model("two", add=2.0), number=2))))
    eyes.wait("the newer snapshot", lambda: eyes.ask() == 2.0)

    agent.server.stop()
    agent.end(signal.SIGTERM)
    assert not eyes.pid_files(), "SIGTERM ends plane and workers, also without Redis"
    assert eyes.ask() is None
