"""Triton's questions and orders about a node beyond its models: load and unload, trace and log settings."""

from typing import Any, Protocol

import orjson

from inference.plane.gateway import Gateway
from inference.plane.refusals import RefusedError

# Names and values as Triton's own, with which clients that read all settings can go on. Nothing here can be changed:
# requests carry W3C trace ids instead, and logs are the process's own.
TRACE: dict[str, list[str]] = {
    "trace_file": [""],
    "trace_level": ["OFF"],
    "trace_rate": ["1000"],
    "trace_count": ["-1"],
    "log_frequency": ["0"],
    "trace_mode": ["triton"],
}
LOG: dict[str, bool | int | str] = {
    "log_file": "",
    "log_info": True,
    "log_warning": True,
    "log_error": True,
    "log_verbose_level": 0,
    "log_format": "default",
}


class Control(Protocol):
    """Whoever may start and stop the workers behind a plane by a client's order."""

    async def load(self, service: str) -> None:
        """Returns when it is ready. Raises RefusedError."""

    async def unload(self, service: str) -> None:
        """Returns when no request reaches it any more. Raises RefusedError."""


def check_control(
    gateway: Gateway, control: Control | None, tenant: str, service: str, told: dict[str, Any]
) -> Control:
    """told: parameters of the order. Raises RefusedError where loading by clients is not allowed, or not so."""
    if service not in gateway.services or not gateway.admission.may(tenant, service):
        raise RefusedError(404, f"Request for unknown model: '{service}' is not found")
    if control is None:
        raise RefusedError(
            503,
            "explicit model load / unload is not allowed: models are placed by the console, not by clients of the plane"
            " (a node alone takes such orders when started with --allow-model-control)",
        )
    for name in told:
        if name.startswith("file:") or name == "config":
            raise RefusedError(
                400, f"parameter {name[:100]}: a load takes no files and no config, only the name"
            )
        if name != "unload_dependents":
            raise RefusedError(400, f"unexpected parameter {name[:100]}")
    return control


def read_object(body: bytes) -> dict[str, Any]:
    """A JSON object, or nothing at all. Raises RefusedError."""
    if not body.strip():
        return {}
    try:
        told = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise RefusedError(400, f"the request is not JSON: {error}") from None
    if type(told) is not dict:
        raise RefusedError(400, "the request must be a JSON object")
    return told


def parameters_of(body: bytes) -> dict[str, Any]:
    """The `parameters` of an order. Raises RefusedError."""
    told = read_object(body).get("parameters", {})
    if type(told) is not dict:
        raise RefusedError(400, "parameters must be an object")
    return told


def check_settings(kind: str, known: dict[str, Any], told: dict[str, Any]) -> None:
    """An update of settings; one that changes nothing is fine. Raises RefusedError."""
    for name, value in told.items():
        if name not in known:
            raise RefusedError(400, f"{name[:100]} is no {kind} setting; there are {', '.join(known)}")
        if value not in (None, known[name], [known[name]], str(known[name])) and [value] != known[name]:
            raise RefusedError(
                501, f"{kind} settings cannot be changed by clients: {name} stays {known[name]}"
            )


def trace_json() -> dict[str, Any]:
    """In JSON only the level is a list, as in Triton."""
    return {name: value if name == "trace_level" else value[0] for name, value in TRACE.items()}
