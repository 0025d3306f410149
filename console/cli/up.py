"""`pilothouse up`: the whole product on one machine, in one folder, until Ctrl-C."""

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO, Any

import click

from console.cli import parts, ports, private_redis
from console.cli.client import CliError
from console.cli.house import House, NotReady, end_leftovers
from console.cli.parts import Setup

MIGRATE_SECONDS, DEMO_SECONDS = 120.0, 300.0
ANSWER_SECONDS = 60.0
PROMETHEUS_PORT = 9090
# plane.sock must fit into the 107 bytes of a socket's address.
_LONGEST_HOME = 107 - len("/node//plane.sock") - len(parts.NODE)


class CannotStart(CliError):
    """A clear sentence instead of a traceback; exit code 1."""


class AlreadyUp(CannotStart):
    """Another `up` owns this home."""


@dataclass
class Steps:
    """Prints each step with its seconds."""

    started: float = field(default_factory=time.monotonic)

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[list[str]]:
        """Append to the list what else the line should say."""
        began, words = time.monotonic(), list[str]()
        yield words
        self.line(name, time.monotonic() - began, " ".join(words))

    def line(self, name: str, seconds: float, words: str = "") -> None:
        click.echo(f"{seconds:6.1f} s  {name:<11} {words}".rstrip())

    @property
    def total(self) -> float:
        return time.monotonic() - self.started


@dataclass
class Interrupt:
    """Counts Ctrl-C and SIGTERM; the first asks, the second hurries."""

    count: int = 0

    def install(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._note)

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1

    @property
    def asked(self) -> bool:
        return self.count > 0

    @property
    def hurry(self) -> bool:
        return self.count > 1


@dataclass(frozen=True, slots=True)
class Wishes:
    demo: bool
    traffic: bool
    prometheus: bool


@click.command()
@click.option(
    "--home", default=lambda: os.environ.get("PILOTHOUSE_HOME", "var"), help="State folder.  [default: var]"
)
@click.option(
    "--port", default=8000, show_default=True, type=click.IntRange(1, 65535), help="Of the console."
)
@click.option(
    "--plane-port", default=8080, show_default=True, type=click.IntRange(1, 65535), help="Of inference."
)
@click.option("--no-demo", is_flag=True, help="No demo model, tenants or traffic.")
@click.option("--no-traffic", is_flag=True, help="The demo without its traffic.")
@click.option("--no-prometheus", is_flag=True, help="Embedded signals although Prometheus is installed.")
def up(home: str, port: int, plane_port: int, no_demo: bool, no_traffic: bool, no_prometheus: bool) -> None:
    """Start the whole product on this machine. Ctrl-C drains and stops everything."""
    if port == plane_port:
        raise click.UsageError("--port and --plane-port are the same.")
    folder = _home(home)
    wishes = Wishes(demo=not no_demo, traffic=not (no_demo or no_traffic), prometheus=not no_prometheus)
    interrupt = Interrupt()
    with _owned(folder, port):
        interrupt.install()
        _run(folder, port, plane_port, wishes, interrupt)


def _run(home: Path, port: int, plane_port: int, wishes: Wishes, interrupt: Interrupt) -> None:
    steps, house = Steps(), House(home, lambda words: click.echo(f"          {words}"))
    left = end_leftovers(home)
    if left:
        click.echo(
            f"          Stopped {left} process{'es' if left > 1 else ''} that an earlier run had left behind."
        )
    try:
        _check_ports(port, plane_port)
        setup = _start(home, port, plane_port, wishes, steps, house, interrupt)
        _say_ready(setup, wishes, steps)
        while not interrupt.asked:
            house.look()
            time.sleep(0.2)
    except NotReady as error:
        if not interrupt.asked:
            raise CannotStart(f"{str(error)[:1].upper()}{str(error)[1:]}") from None
    finally:
        click.echo("Stopping.")
        house.stop(hurry=lambda: interrupt.hurry)
        left = end_leftovers(home)
        if left:
            click.echo(f"          {left} more process{'es' if left > 1 else ''} had to be ended.")
    click.echo("Everything is stopped.")


def _home(given: str) -> Path:
    home = Path(given).expanduser().absolute()
    try:
        for folder in (home, home / "run", home / "logs"):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        probe = home / "run" / ".writable"
        probe.write_text("", encoding="ascii")
        probe.unlink()
    except OSError as error:
        raise CannotStart(f"The home folder {home} cannot be written: {error.strerror}.") from None
    if len(os.fsencode(home)) > _LONGEST_HOME:
        raise CannotStart(
            f"The path of the home folder is too long for sockets: at most {_LONGEST_HOME} bytes, {home}."
        )
    return home


@contextlib.contextmanager
def _owned(home: Path, port: int) -> Iterator[None]:
    """Only one `up` for each home. The lock ends with this process, however it ends."""
    lock = (home / "run" / "up.lock").open("a+", encoding="utf-8")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise AlreadyUp(_who_is_up(lock, home)) from None
    with lock:
        lock.seek(0)
        lock.truncate()
        json.dump({"pid": os.getpid(), "url": f"http://127.0.0.1:{port}"}, lock)
        lock.flush()
        yield


def _who_is_up(lock: IO[str], home: Path) -> str:
    try:
        lock.seek(0)
        found: dict[str, Any] = json.load(lock)
        return f"Pilothouse already runs in {home} (process {found['pid']}, {found['url']}). Stop it first."
    except (ValueError, KeyError):
        return f"Pilothouse already runs in {home}. Stop it first."


def _check_ports(port: int, plane_port: int) -> None:
    for number, option in ((port, "--port"), (plane_port, "--plane-port")):
        if not ports.is_free(number):
            who = ports.holder(number)
            by = f" by {who}" if who else ""
            raise CannotStart(f"Port {number} is in use{by}. Stop that, or choose another with {option}.")


def _start(
    home: Path, port: int, plane_port: int, wishes: Wishes, steps: Steps, house: House, interrupt: Interrupt
) -> Setup:
    redis_url = _redis(home, steps, house, interrupt)
    setup = _prometheus(Setup(home, port, plane_port, redis_url), wishes, steps, house)
    with steps.step("database"):
        _command(setup, ["migrate", "--no-input", "--skip-checks", "-v", "0"], MIGRATE_SECONDS, interrupt)
    began = time.monotonic()
    for part in (parts.console, parts.controller, parts.beat, parts.agent):
        house.start(part(setup))
    if wishes.demo:
        with steps.step("demo") as words:
            made = _command(setup, ["demo", "--skip-checks", "--url", setup.url], DEMO_SECONDS, interrupt)
            lines = [line for line in made.splitlines() if line.startswith("made ")]
            words.append(f"made {len(lines)} things" if lines else "all there")
    for name in house.each_ready(
        ("console", "controller", "beat", "agent"), interrupted=lambda: interrupt.asked
    ):
        steps.line(name, time.monotonic() - began)
    _wait("plane", parts.plane_answers(setup), ANSWER_SECONDS, house, interrupt)
    steps.line("plane", time.monotonic() - began, setup.plane_url)
    if wishes.demo:
        _first_answer(setup, steps, house, interrupt, began)
    if wishes.traffic:
        house.start(parts.traffic(setup))
    return setup


def _redis(home: Path, steps: Steps, house: House, interrupt: Interrupt) -> str:
    """The one of REDIS_URL, else our own."""
    given = os.environ.get("REDIS_URL")
    with steps.step("redis") as words:
        if given:
            if why := private_redis.answers(given):
                raise CannotStart(f"The Redis of REDIS_URL {why}.")
            words.append("the one of REDIS_URL")
            return given
        try:
            private = private_redis.prepare(home / "redis")
        except private_redis.NoRedis as error:
            raise CannotStart(str(error)) from None
        house.start(parts.redis(Setup(home, 0, 0, private.url), private))
        for _ in house.each_ready(("redis",), interrupted=lambda: interrupt.asked):
            words.append(private.where)
        return private.url


def _prometheus(setup: Setup, wishes: Wishes, steps: Steps, house: House) -> Setup:
    """Started and not waited for: it becomes ready long before the first question."""
    given = os.environ.get("PROMETHEUS_URL", "")
    binary = parts.prometheus_binary() if wishes.prometheus and not given else None
    port = ports.next_free(PROMETHEUS_PORT) if binary else None
    if given or not binary or port is None:
        words = f"the one of PROMETHEUS_URL, {given}" if given else "none: the embedded signals are used"
        steps.line("prometheus", 0.0, words)
        return Setup(setup.home, setup.port, setup.plane_port, setup.redis_url, given)
    house.start(parts.prometheus(setup, binary, port))
    url = f"http://127.0.0.1:{port}"
    steps.line("prometheus", 0.0, url)
    return Setup(setup.home, setup.port, setup.plane_port, setup.redis_url, url)


def _command(setup: Setup, arguments: list[str], seconds: float, interrupt: Interrupt) -> str:
    """Run `manage.py ...` to its end. Raises NotReady with its last words."""
    command = [parts.PYTHON, str(parts.ROOT / "manage.py"), *arguments]
    process = subprocess.Popen(
        command, env=setup.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + seconds
    while True:
        try:
            output, _ = process.communicate(timeout=0.2)
            break
        except subprocess.TimeoutExpired:
            if interrupt.asked or time.monotonic() > deadline:
                process.kill()
                process.communicate()
                why = (
                    "stopped while starting"
                    if interrupt.asked
                    else f"the command manage.py {arguments[0]} took over {seconds:g} s"
                )
                raise NotReady(why) from None
    if process.returncode:
        log = setup.home / "logs" / f"{arguments[0]}.log"
        log.write_text(output, encoding="utf-8")
        last = next((line for line in reversed(output.splitlines()) if line.strip()), "no word")
        raise NotReady(f"the command manage.py {arguments[0]} failed: {last.strip()} (log: {log})")
    return output


def _wait(
    what: str, readiness: Callable[[], str | None], seconds: float, house: House, interrupt: Interrupt
) -> None:
    deadline = time.monotonic() + seconds
    while (reason := readiness()) is not None:
        if interrupt.asked or time.monotonic() > deadline:
            raise NotReady(f"{what} is not ready after {seconds:g} s: {reason}")
        house.look()
        time.sleep(0.1)


def _first_answer(setup: Setup, steps: Steps, house: House, interrupt: Interrupt, began: float) -> None:
    said = ""

    def readiness() -> str | None:
        nonlocal said
        reason, said = parts.first_answer(setup)
        return reason

    _wait("the demo model", readiness, ANSWER_SECONDS, house, interrupt)
    steps.line("first answer", time.monotonic() - began, said)


def _say_ready(setup: Setup, wishes: Wishes, steps: Steps) -> None:
    click.echo(f"{steps.total:6.1f} s  in all\n")
    click.echo(f"Console     {setup.url}")
    click.echo(f"Inference   {setup.plane_url}/v2/")
    if wishes.demo:
        known: dict[str, Any] = json.loads((setup.home / "credentials.json").read_text(encoding="utf-8"))
        admin = known.get("users", {}).get("admin", {})
        if admin:
            click.echo(
                f"Login       admin / {admin['password']}    (also ada, ben: {setup.home / 'credentials.json'})"
            )
        else:
            click.echo(
                f"Login       admin, whose password is lost; set one: {_manage(setup, 'changepassword admin')}"
            )
        click.echo(f"REST token  {known['token']}")
        for slug in ("acme", "globex"):
            click.echo(f"Key {slug:<7} {known['tenants'][slug]['infer']}")
        click.echo(f"\nTry it:\n{_curl(setup, known['tenants']['acme']['infer'])}")
        click.echo(
            f"\nThen, in a second terminal, a good version and a bad one; watch them at {setup.url}/rollouts\n"
            f"{_rollout(setup, 2)}\n{_rollout(setup, 3)}"
        )
    else:
        click.echo(f"Without an account yet, make one: {_manage(setup, 'createsuperuser')}")
    if wishes.traffic:
        click.echo(f"\nDemo traffic runs; `touch {setup.home / 'demo-traffic-off'}` stops it.")
    click.echo(f"Logs in {setup.home / 'logs'}. Ctrl-C stops everything.\n")


def _manage(setup: Setup, command: str) -> str:
    return f"PILOTHOUSE_HOME={setup.home} {parts.PYTHON} {parts.ROOT / 'manage.py'} {command}"


def _rollout(setup: Setup, version: int) -> str:
    command = Path(parts.PYTHON).with_name("pilothouse")
    return f"PILOTHOUSE_HOME={setup.home} {command} rollout start file-type --version {version} --wait"


def _curl(setup: Setup, key: str) -> str:
    body = '{"inputs": [{"name": "file", "datatype": "BYTES", "shape": [1, 1], "data": ["#!/bin/sh\\necho hello"]}]}'
    return f"curl -s {setup.plane_url}/v2/models/file-type/infer -H 'Authorization: Bearer {key}' -d '{body}'"
