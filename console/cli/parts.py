"""What each process of `up` is: its command, its environment, and how to tell that it can work."""

import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx

from console.cli.house import Part
from console.cli.private_redis import PrivateRedis
from console.kit.files import write_atomic

ROOT = Path(__file__).resolve().parents[2]
NODE = "node-1"
PYTHON = sys.executable
SAMPLE = "#!/usr/bin/env python3\nimport sys\n\n\ndef main() -> None:\n    print(sys.argv)\n"


@dataclass(frozen=True, slots=True)
class Setup:
    """Everything the parts agree on."""

    home: Path
    port: int
    plane_port: int
    redis_url: str
    prometheus_url: str = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def plane_url(self) -> str:
        return f"http://127.0.0.1:{self.plane_port}"

    @property
    def environment(self) -> dict[str, str]:
        """The caller's own, so that DATABASE_URL and its kind reach us, with what `up` decides on top."""
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTHONUNBUFFERED": "1",
            "DJANGO_SETTINGS_MODULE": "config.settings",
            # Checks load every page and address, which workers never use; `make test` runs them.
            "CELERY_SKIP_CHECKS": "1",
            "PILOTHOUSE_HOME": str(self.home),
            "PILOTHOUSE_NODE_NAME": NODE,
            "PILOTHOUSE_PLANE_URL": self.plane_url,
            "PILOTHOUSE_PLANE_HOST": "127.0.0.1",
            "REDIS_URL": self.redis_url,
            "PROMETHEUS_URL": self.prometheus_url,
        }


def redis(setup: Setup, private: PrivateRedis) -> Part:
    return Part("redis", private.command, dict(os.environ), private.is_ready, ready_seconds=20)


def prometheus_binary() -> str | None:
    return shutil.which("prometheus")


def prometheus(setup: Setup, binary: str, port: int) -> Part:
    folder = setup.home / "prometheus"
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "prometheus.yml"
    write_atomic(config, _scrape_config(setup).encode())
    command = (
        binary, f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}", "--storage.tsdb.retention.time=7d", "--log.level=warn",
    )  # fmt: skip
    return Part("prometheus", command, dict(os.environ), _answers(f"http://127.0.0.1:{port}/-/ready"))


def _scrape_config(setup: Setup) -> str:
    """JSON is YAML, and quotes itself."""
    jobs = [("plane", setup.plane_port, NODE), ("console", setup.port, "console")]
    return json.dumps(
        {
            "global": {"scrape_interval": "2s", "scrape_timeout": "2s"},
            "scrape_configs": [
                {
                    "job_name": f"pilothouse-{job}",
                    "static_configs": [{"targets": [f"127.0.0.1:{port}"], "labels": {"instance": name}}],
                }
                for job, port, name in jobs
            ],
        },
        indent=2,
    )


def console(setup: Setup) -> Part:
    command = (
        PYTHON, "-m", "uvicorn", "config.asgi:application", "--host", "127.0.0.1", "--port", str(setup.port),
        "--no-access-log", "--timeout-graceful-shutdown", "3",
    )  # fmt: skip
    return Part("console", command, setup.environment, _answers(f"{setup.url}/readyz"), ready_seconds=60)


def controller(setup: Setup) -> Part:
    # Embedded signals and Prometheus alike are read here; four threads wait on them, they do not compute.
    return _celery(
        setup, "controller", "worker", "-n", "controller", "-Q", "control,notify", "-P", "threads", "-c", "4",
        "--without-gossip", "--without-mingle",
    )  # fmt: skip


def beat(setup: Setup) -> Part:
    # All schedules are intervals, so nothing has to be remembered over a restart.
    return _celery(setup, "beat", "beat", "--scheduler", "celery.beat:Scheduler", "--pidfile", "")


def agent(setup: Setup) -> Part:
    queues = f"node.{NODE},jobs"
    part = _celery(
        setup, "agent", "worker", "-n", f"agent@{NODE}", "-Q", queues, "-P", "threads", "-c", "2",
        "--without-gossip", "--without-mingle",
    )  # fmt: skip
    # It ends its plane and workers first, each within its own bound.
    return Part(part.name, part.command, part.environment, part.readiness, stop_seconds=30, ready_seconds=60)


def _celery(setup: Setup, name: str, *arguments: str) -> Part:
    # Quiet: a banner that a full disk does not take ends the process before it begins; log lines it only loses.
    command = (PYTHON, "-m", "celery", "-A", "config.celery", "--quiet", *arguments, "--loglevel", "INFO")
    ready_file = setup.home / "run" / f"{name}.ready"

    def readiness() -> str | None:
        return None if ready_file.exists() else "it has not said so"

    return Part(name, command, setup.environment, readiness, ready_seconds=60)


def traffic(setup: Setup) -> Part:
    return Part(
        "traffic", (PYTHON, "-m", "inference.demo.traffic"), setup.environment, lambda: None, stop_seconds=5
    )


def plane_answers(setup: Setup) -> Callable[[], str | None]:
    return _answers(f"{setup.plane_url}/healthz")


def first_answer(setup: Setup) -> tuple[str | None, str]:
    """(why not yet, or None; what the model said). Asks as a client of acme would."""
    try:
        credentials = json.loads((setup.home / "credentials.json").read_text(encoding="utf-8"))
        answer = httpx.post(
            f"{setup.plane_url}/v2/models/file-type/infer",
            headers={"Authorization": f"Bearer {credentials['tenants']['acme']['infer']}"},
            json={"inputs": [{"name": "file", "datatype": "BYTES", "shape": [1, 1], "data": [SAMPLE]}]},
            timeout=10,
            trust_env=False,
        )
        if answer.status_code != 200:
            return f"the model answers {answer.status_code}: {answer.text[:200]}", ""
        outputs = {output["name"]: output["data"] for output in answer.json()["outputs"]}
        version = answer.headers.get("x-pilothouse-version", "?")
        return None, f"{outputs['label'][0]} ({outputs['score'][0]:.3f}) by version {version}"
    except (httpx.HTTPError, OSError, ValueError, KeyError, IndexError) as error:
        return f"{type(error).__name__}: {error}", ""


def _answers(url: str, headers: Mapping[str, str] | None = None) -> Callable[[], str | None]:
    def readiness() -> str | None:
        try:
            answer = httpx.get(url, headers=dict(headers or {}), timeout=3, trust_env=False)
        except httpx.HTTPError as error:
            return f"{url}: {error}"
        return (
            None if answer.status_code == 200 else f"{url} answers {answer.status_code}: {answer.text[:200]}"
        )

    return readiness
