"""`pilothouse up`: refusals in one sentence, left-overs, and the house that keeps its processes alive."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from console.cli import parts, private_redis
from console.cli.house import House, NotReady, Part, end_leftovers
from console.cli.parts import Setup
from console.kit import processes
from tests.services.process import free_port, wait_until
from tests.services.redis import RedisServer

pytestmark = pytest.mark.timeout(60)
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('up', flush=True)
time.sleep(600)
"""


@pytest.fixture
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ph-up-") as folder:
        (Path(folder) / "run").mkdir()
        (Path(folder) / "logs").mkdir()
        yield Path(folder)


def up(home: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run it to its end, which for a refusal comes at once."""
    known = {
        name: value
        for name, value in os.environ.items()
        if name not in ("REDIS_URL", "DJANGO_SETTINGS_MODULE")
    }
    command = [sys.executable, "-m", "console.cli.main", "up", "--home", str(home), "--no-demo", *arguments]
    return subprocess.run(
        command, env={**known, **environment}, capture_output=True, text=True, timeout=50, check=False
    )


def refused(done: subprocess.CompletedProcess[str]) -> str:
    """The sentence of a refusal, which is never a traceback."""
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    return done.stderr.strip().splitlines()[-1]


def test_a_port_in_use_is_named_with_who_has_it(home: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        sentence = refused(up(home, "--port", str(port), "--plane-port", str(free_port())))
        assert f"Port {port} is in use by" in sentence
        assert f"(process {os.getpid()})" in sentence
        assert "--port" in sentence
        assert "--plane-port" in refused(up(home, "--port", str(free_port()), "--plane-port", str(port)))


def test_a_second_up_in_the_same_home_is_refused(home: Path) -> None:
    from console.cli.up import _owned

    with _owned(home, 8123):
        sentence = refused(up(home))
    assert "already runs in" in sentence
    assert "http://127.0.0.1:8123" in sentence


def test_a_home_that_is_no_folder_is_refused(home: Path) -> None:
    (home / "file").write_text("")
    assert "cannot be written" in refused(up(home / "file"))


def test_a_home_too_long_for_sockets_is_refused(home: Path) -> None:
    assert "too long" in refused(up(home / ("x" * 90)))


def test_a_redis_that_does_not_answer_is_refused(home: Path) -> None:
    ports = ("--port", str(free_port()), "--plane-port", str(free_port()))
    assert "REDIS_URL does not answer" in refused(up(home, *ports, REDIS_URL="redis://127.0.0.1:1/0"))


def test_a_broken_database_address_is_said_and_everything_ended(home: Path) -> None:
    ports = ("--port", str(free_port()), "--plane-port", str(free_port()), "--no-prometheus")
    done = up(home, *ports, DATABASE_URL="postgres://nobody@127.0.0.1:1/none")
    assert "migrate failed" in refused(done)
    assert "redis stopped" in done.stdout
    assert not list((home / "run").glob("*.json"))


def test_one_port_for_both_is_wrong_usage(home: Path) -> None:
    assert up(home, "--port", "8123", "--plane-port", "8123").returncode == 2


def spawn(home: Path, name: str, code: str) -> processes.Child:
    return processes.spawn(
        [sys.executable, "-c", code],
        pid_file=home / "run" / f"{name}.json",
        log_file=home / "logs" / f"{name}.log",
        environment=dict(os.environ),
        started_at=time.time(),
    )


def test_left_over_processes_are_ended(home: Path) -> None:
    child = spawn(home, "console", "import time; time.sleep(600)")
    assert end_leftovers(home) == 1
    assert not child.is_alive()
    assert end_leftovers(home) == 0


def test_a_pid_that_belongs_to_somebody_else_by_now_is_left_alone(home: Path) -> None:
    bystander = spawn(home, "console", "import time; time.sleep(600)")
    path = home / "run" / "console.json"
    path.write_text(
        path.read_text().replace(f'"start_time":{bystander.identity.start_time}', '"start_time":1')
    )
    try:
        assert end_leftovers(home) == 0
        assert bystander.is_alive()
        assert not path.exists()
    finally:
        bystander.send(signal.SIGKILL)


def test_half_a_pid_file_is_no_obstacle(home: Path) -> None:
    (home / "run" / "console.json").write_text('{"pid": 1')
    assert end_leftovers(home) == 0


@pytest.fixture
def house(home: Path) -> Iterator[tuple[House, list[str]]]:
    said: list[str] = []
    made = House(home, said.append)
    yield made, said
    made.stop(hurry=lambda: True)


def part(name: str, code: str, *, ready: Callable[[], str | None] = lambda: None, **fields: float) -> Part:
    return Part(name, (sys.executable, "-c", code), dict(os.environ), ready, **fields)


def test_a_part_that_dies_is_started_again_and_said(house: tuple[House, list[str]], home: Path) -> None:
    made, said = house
    made.start(part("sleeper", "import time; time.sleep(600)"))
    first = processes.read_pid_file(home / "run" / "sleeper.json")
    assert first is not None
    os.kill(first.pid, signal.SIGKILL)

    def again() -> bool:
        made.look()
        now = processes.read_pid_file(home / "run" / "sleeper.json")
        return now is not None and now.pid != first.pid

    wait_until(again, seconds=10, what="another process")
    assert said[0].startswith("sleeper killed by SIGKILL; it is started again in 0.2 s")
    assert said[1] == "sleeper was started again"


def test_a_part_that_dies_again_and_again_waits_longer(house: tuple[House, list[str]]) -> None:
    made, said = house
    made.start(part("broken", "raise SystemExit(3)"))

    def thrice() -> bool:
        made.look()
        return sum("exited with code 3" in line for line in said) >= 3

    wait_until(thrice, seconds=20, what="three ends")
    waits = [line.split("again in ")[1].split(" s")[0] for line in said if "exited" in line]
    assert waits[:3] == ["0.2", "0.4", "0.8"]


def test_a_part_that_ends_while_starting_is_reported_with_its_last_words(
    house: tuple[House, list[str]],
) -> None:
    made, _ = house
    made.start(part("broken", "print('no such thing'); raise SystemExit(3)", ready=lambda: "not yet"))
    with pytest.raises(NotReady, match="broken exited with code 3: no such thing"):
        list(made.each_ready(["broken"], interrupted=lambda: False))


def test_a_part_that_never_gets_ready_is_given_up(house: tuple[House, list[str]]) -> None:
    made, _ = house
    made.start(part("slow", "import time; time.sleep(600)", ready=lambda: "not yet", ready_seconds=0.3))
    with pytest.raises(NotReady, match="slow is not ready after"):
        list(made.each_ready(["slow"], interrupted=lambda: False))


def test_stopping_goes_backwards_and_kills_what_will_not_end(
    house: tuple[House, list[str]], home: Path
) -> None:
    made, said = house
    made.start(part("first", "import time; time.sleep(600)"))
    made.start(part("stubborn", STUBBORN, stop_seconds=0.5))
    log = home / "logs" / "stubborn.log"
    wait_until(lambda: "up" in log.read_text(), seconds=10, what="it to ignore SIGTERM")
    made.stop(hurry=lambda: False)
    assert [line.split(" in ")[0] for line in said] == ["stubborn was killed", "first stopped"]
    assert not list((home / "run").glob("*.json"))


def test_the_private_redis_keeps_port_and_password(home: Path) -> None:
    first = private_redis.prepare(home / "redis")
    assert private_redis.prepare(home / "redis").url == first.url
    made = House(home, lambda _: None)
    made.start(Part("redis", first.command, dict(os.environ), first.is_ready))
    assert list(made.each_ready(["redis"], interrupted=lambda: False)) == ["redis"]
    with redis.Redis.from_url(first.url) as client:
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        client.set("kept", "yes")
    port = int(first.url.rpartition(":")[2].partition("/")[0])
    with pytest.raises(redis.AuthenticationError):
        redis.Redis(port=port).ping()
    made.stop(hurry=lambda: False)

    made.start(Part("redis", first.command, dict(os.environ), first.is_ready))
    list(made.each_ready(["redis"], interrupted=lambda: False))
    with redis.Redis.from_url(first.url) as client:
        assert client.get("kept") == b"yes"
    made.stop(hurry=lambda: False)


def test_the_wheel_is_used_where_no_redis_is_installed(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setattr(private_redis, "BINARIES", ())
    private = private_redis.prepare(home / "redis")
    made = House(home, lambda _: None)
    made.start(Part("redis", private.command, dict(os.environ), private.is_ready))
    assert list(made.each_ready(["redis"], interrupted=lambda: False)) == ["redis"]
    made.stop(hurry=lambda: False)


@pytest.mark.parametrize("part", [parts.controller, parts.beat])
def test_a_disk_too_full_for_logs_keeps_no_part_from_starting(
    home: Path, part: Callable[[Setup], Part], redis_server: RedisServer
) -> None:
    made, wanted = House(home, lambda _: None), part(Setup(home, 1, 2, redis_server.url))
    made.log(wanted.name).symlink_to("/dev/full")
    made.start(wanted)
    try:
        assert list(made.each_ready([wanted.name], interrupted=lambda: False)) == [wanted.name]
    finally:
        made.stop(hurry=lambda: True)
