"""One request from a page to the plane, with a key of the reader's tenant that the page never shows.

The key is derived, not stored: nodes learn its hash with every other key, and it changes with SECRET_KEY. The tenant's
own quota applies, so trying out is neither free nor unlimited.
"""

import base64
import hashlib
import hmac
import json
import shlex
import struct
import time
from dataclasses import dataclass, field
from typing import Any

import httpx
from django.conf import settings

from console.kit.errors import Invalid, Unavailable
from console.tenants.models import Tenant
from console.tenants.tokens import INFERENCE_PREFIX, digest
from inference.models import Version
from inference.protocol import KeySpec

MOST_BYTES = 4 << 20
SECONDS = 15.0
_SHOWN_VALUES = 12
_CONNECT_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Call:
    """What goes to the plane. header: the JSON part; tail: binary tensors behind it. version None: by weight."""

    service: str
    version: int | None
    header: bytes
    tail: bytes = b""
    file_name: str = ""

    @property
    def url(self) -> str:
        pinned = f"/versions/{self.version}" if self.version is not None else ""
        return f"{settings.PLANE_URL.rstrip('/')}/v2/models/{self.service}{pinned}/infer"


@dataclass(frozen=True, slots=True)
class Output:
    name: str
    datatype: str
    shape: str
    text: str


@dataclass(frozen=True, slots=True)
class Answer:
    """status 200: outputs. Else error and, for a refusal that passes, retry_after in seconds."""

    status: int
    milliseconds: float
    version: str = ""
    request_id: str = ""
    label: str = ""
    score: float | None = None
    outputs: tuple[Output, ...] = ()
    error: str = ""
    retry_after: str = ""
    body: str = field(default="", repr=False)

    @property
    def is_ok(self) -> bool:
        return self.status == 200

    @property
    def role(self) -> str:
        """A refusal that passes is a warning."""
        return "ok" if self.is_ok else "warn" if self.status in (408, 429, 503, 504) else "fail"


def secret_of(tenant: Tenant) -> str:
    """The tenant's playground key."""
    message = f"pilothouse playground {tenant.pk} {tenant.slug}".encode()
    mac = hmac.new(settings.SECRET_KEY.encode(), message, hashlib.sha256).digest()
    return f"{INFERENCE_PREFIX}_{base64.urlsafe_b64encode(mac).decode().rstrip('=')}"


def key_specs() -> list[KeySpec]:
    """For the snapshot: every tenant may try what it may call."""
    return [
        KeySpec(digest(secret_of(tenant)), tenant.slug, None) for tenant in Tenant.objects.order_by("slug")
    ]


def file_input(version: Version) -> str:
    """The name of the input that takes a whole file, empty when the model has none."""
    hook = version.contract["spec"].get("hooks", {}).get("preprocess") or {}
    if hook.get("input"):
        return str(hook["input"])
    inputs = version.contract["spec"]["inputs"]
    alone = inputs[0] if len(inputs) == 1 else {}
    return str(alone["name"]) if alone.get("datatype") == "BYTES" else ""


def example_body(version: Version) -> str:
    """A body with the right names, types and a small shape, for a model that takes tensors."""
    name = file_input(version)
    if name:
        tensors = [{"name": name, "datatype": "BYTES", "shape": [1, 1], "data": ["#!/bin/sh\necho hello\n"]}]
        return json.dumps({"inputs": tensors}, indent=2)
    tensors = []
    for spec in version.contract["spec"]["inputs"]:
        shape = [1 if size < 0 else size for size in spec["shape"]]
        count = 1
        for size in shape:
            count *= size
        zero: Any = "" if spec["datatype"] == "BYTES" else False if spec["datatype"] == "BOOL" else 0
        data = [zero] * min(count, 4096)
        tensors.append({"name": spec["name"], "datatype": spec["datatype"], "shape": shape, "data": data})
    return json.dumps({"inputs": tensors})


def call_with_bytes(
    service: str, version: int | None, name: str, content: bytes, *, file_name: str = ""
) -> Call:
    """A whole file as one BYTES element, binary, so that no byte has to survive as text."""
    if len(content) > MOST_BYTES:
        raise Invalid(
            "The file is too large to try here.", fields={"file": f"at most {MOST_BYTES >> 20} MiB"}
        )
    element = struct.pack("<I", len(content)) + content
    tensor = {
        "name": name,
        "datatype": "BYTES",
        "shape": [1, 1],
        "parameters": {"binary_data_size": len(element)},
    }
    header = json.dumps({"inputs": [tensor]}).encode()
    return Call(service, version, header, element, file_name)


def call_with_json(service: str, version: int | None, text: str) -> Call:
    """The Open Inference Protocol body as typed."""
    if len(text.encode()) > MOST_BYTES:
        raise Invalid(
            "The body is too large to try here.", fields={"body": f"at most {MOST_BYTES >> 20} MiB"}
        )
    try:
        tree = json.loads(text)
    except ValueError as error:
        raise Invalid("The body is no JSON.", fields={"body": str(error)}) from None
    if not isinstance(tree, dict) or not isinstance(tree.get("inputs"), list):
        raise Invalid("The body has no inputs.", fields={"body": 'an object with "inputs", a list'})
    return Call(service, version, text.encode())


def send(call: Call, tenant: Tenant) -> Answer:
    """Raises Unavailable when the plane cannot be reached; its refusals are answers."""
    headers = {"Authorization": f"Bearer {secret_of(tenant)}", "Content-Type": "application/json"}
    if call.tail:
        headers["Content-Type"] = "application/octet-stream"
        headers["Inference-Header-Content-Length"] = str(len(call.header))
    began = time.perf_counter()
    try:
        # trust_env off: a proxy of the environment is not meant for a plane on this machine or network.
        with httpx.Client(
            timeout=httpx.Timeout(SECONDS, connect=_CONNECT_SECONDS), trust_env=False
        ) as client:
            response = client.post(call.url, content=call.header + call.tail, headers=headers)
    except httpx.HTTPError as error:
        raise Unavailable(f"The plane at {settings.PLANE_URL} did not answer: {error}.") from None
    return _answer(response, (time.perf_counter() - began) * 1000)


def _answer(response: httpx.Response, milliseconds: float) -> Answer:
    try:
        tree = response.json()
    except ValueError:
        tree = {}
    known = {
        "status": response.status_code,
        "milliseconds": milliseconds,
        "version": response.headers.get("x-pilothouse-version", ""),
        "request_id": response.headers.get("x-request-id", ""),
    }
    if response.status_code != 200:
        error = str(tree.get("error") or f"The plane answered {response.status_code}.")
        return Answer(**known, error=error, retry_after=response.headers.get("retry-after", ""))
    tensors = {str(one.get("name")): one for one in tree.get("outputs", ()) if isinstance(one, dict)}
    return Answer(
        **known,
        label=_first(tensors.get("label")),
        score=_number(tensors.get("score")),
        outputs=tuple(_output(name, one) for name, one in tensors.items()),
        body=json.dumps(_short(tree), indent=2),
    )


def _first(tensor: dict[str, Any] | None) -> str:
    data = (tensor or {}).get("data") or [""]
    return str(data[0])


def _number(tensor: dict[str, Any] | None) -> float | None:
    data = (tensor or {}).get("data") or [None]
    return float(data[0]) if isinstance(data[0], int | float) else None


def _output(name: str, tensor: dict[str, Any]) -> Output:
    data = tensor.get("data") or []
    text = ", ".join(f"{one:.4g}" if isinstance(one, float) else str(one) for one in data[:_SHOWN_VALUES])
    more = f", … {len(data)} values" if len(data) > _SHOWN_VALUES else ""
    shape = "×".join(str(size) for size in tensor.get("shape", ()))
    return Output(name, str(tensor.get("datatype", "")), shape, text + more)


def _short(tree: dict[str, Any]) -> dict[str, Any]:
    """The body with long tensors cut, for reading."""
    outputs = []
    for tensor in tree.get("outputs", ()):
        data = tensor.get("data")
        cut = data[:_SHOWN_VALUES] if isinstance(data, list) else data
        outputs.append({**tensor, "data": cut})
    return {**tree, "outputs": outputs}


def as_curl(call: Call) -> str:
    """The same call for a terminal. The key is the reader's own: put it in PILOTHOUSE_KEY."""
    key = '-H "Authorization: Bearer $PILOTHOUSE_KEY"'
    if not call.tail:
        return f"curl -sS {call.url} {key} \\\n  -d {shlex.quote(call.header.decode())}"
    length = "".join(f"\\{byte:03o}" for byte in call.tail[:4])
    source = f"cat {shlex.quote(call.file_name)}" if call.file_name else _printed(call.tail[4:])
    return (
        f"{{ printf %s {shlex.quote(call.header.decode())}; printf '{length}'; {source}; }} |\n"
        f"  curl -sS {call.url} {key} \\\n"
        f"  -H 'Inference-Header-Content-Length: {len(call.header)}' --data-binary @-"
    )


def _printed(content: bytes) -> str:
    text = content[:2000].decode("utf-8", "replace")
    return f"printf %s {shlex.quote(text)}"
