"""compose.yaml and Dockerfile name only what exists, and open nothing to the world. No container engine is needed."""

import re
from functools import cache
from importlib.util import find_spec
from typing import Any

import pytest
import yaml

from tests.promises import ROOT, settings_read

OURS = ("migrate", "console", "controller", "beat", "node", "node-gpu")
# Of the Compose specification: what our file may use, so that a mistyped key is caught here.
SERVICE_KEYS = {
    "build", "cap_drop", "command", "depends_on", "deploy", "environment", "healthcheck", "hostname", "image", "init",
    "ports", "profiles", "read_only", "restart", "security_opt", "shm_size", "stop_grace_period", "tmpfs", "volumes",
}  # fmt: skip


@cache
def compose() -> dict[str, Any]:
    parsed: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
    return parsed


def words_of(service: str) -> list[str]:
    command = compose()["services"][service]["command"]
    return " ".join(command).replace('"', " ").split()


@pytest.mark.parametrize("service", sorted(compose()["services"]))
def test_a_service_uses_known_keys_and_publishes_on_loopback_only(service: str) -> None:
    body = compose()["services"][service]
    assert set(body) <= SERVICE_KEYS
    assert all(port.startswith("127.0.0.1:") for port in body.get("ports", []))
    named = [volume.partition(":")[0] for volume in body.get("volumes", []) if not volume.startswith(".")]
    assert set(named) <= set(compose()["volumes"])


@pytest.mark.parametrize("service", OURS)
def test_our_commands_name_modules_and_files_that_exist(service: str) -> None:
    words = words_of(service)
    modules = [word.partition(":")[0] for word in words if re.fullmatch(r"config\.\w+(:\w+)?", word)]
    files = [word for word in words if word.endswith(".py")]
    assert modules or files
    assert all(find_spec(module) for module in modules)
    assert all((ROOT / name).is_file() for name in files)


@pytest.mark.parametrize("service", OURS)
def test_our_environment_is_read_by_the_product(service: str) -> None:
    assert set(compose()["services"][service]["environment"]) <= settings_read()


def test_the_controller_and_the_nodes_consume_every_queue() -> None:
    from config.celery import app

    consumed = {
        queue for service in ("controller", "node") for word in words_of(service) for queue in word.split(",")
    }
    assert {queue.name for queue in app.conf.task_queues} <= consumed


def test_no_secret_has_a_default() -> None:
    text = (ROOT / "compose.yaml").read_text(encoding="utf-8")
    assert not re.findall(r"\$\{(?:SECRET_KEY|\w*PASSWORD):?-", text)


def test_dependencies_are_services_and_wait_for_their_health() -> None:
    services = compose()["services"]
    for body in services.values():
        for name, how in body.get("depends_on", {}).items():
            if how["condition"] == "service_healthy":
                assert "healthcheck" in services[name]
            else:
                assert services[name]["restart"] == "no"


def test_the_image_copies_only_what_exists_and_is_sent_to_the_builder() -> None:
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copies = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / "Dockerfile").read_text(), flags=re.M)
    wanted = {name for line in copies for name in line.split()} - {"."}
    assert wanted <= sent
    assert all((ROOT / name).exists() for name in sent)
