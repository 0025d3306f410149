"""Web gates: one bounded request to a host that the installation allows, and the part of its JSON that is judged.

Which hosts: the setting PILOTHOUSE_WEB_GATE_HOSTS, `host` or `host:port` each. Without that list a plan could make the
console ask anything inside the network for its author. No redirects: they would lead around the list.
"""

import json
import re
from typing import Any
from urllib.parse import urlsplit

import httpx
from django.conf import settings

from console.metrics.source import NoData, ProviderError, Sampled, Sampling
from rollouts.gates import Web

SOURCE = "web"
MAX_BYTES = 1 << 20
_PART = re.compile(r"\.([A-Za-z_][A-Za-z0-9_-]*)|\[(-?\d{1,6})\]|\['([^']{1,100})'\]")


def ask(web: Web, *, at: float) -> Sampling:
    """Never raises for the far side."""

    def failed(reason: str) -> ProviderError:
        return ProviderError(reason, at, SOURCE, f"{web.method} {web.url}")

    if not is_allowed(web.url):
        return failed("this host is not among those that web gates may ask (PILOTHOUSE_WEB_GATE_HOSTS)")
    try:
        path = parts_of(web.json_path)
        value = _value(_fetch(web), path)
    except ValueError as error:
        return failed(str(error))
    except httpx.HTTPError as error:
        return failed(f"no answer: {type(error).__name__} {error}"[:300])
    if value is None:
        return NoData(f"the answer has nothing at {web.json_path}", at, SOURCE, f"{web.method} {web.url}")
    return Sampled(value, at, SOURCE, f"{web.method} {web.url}")


def is_allowed(url: str) -> bool:
    split = urlsplit(url)
    name = (split.hostname or "").lower()
    try:
        port = split.port
    except ValueError:
        return False
    if split.scheme not in ("http", "https") or not name or split.username is not None:
        return False
    allowed = settings.WEB_GATE_HOSTS
    return name in allowed if port is None else f"{name}:{port}" in allowed


def _fetch(web: Web) -> Any:
    with (
        httpx.Client(timeout=web.timeout_seconds, follow_redirects=False, trust_env=False) as client,
        client.stream(web.method, web.url, headers=dict(web.headers), content=web.body or None) as answer,
    ):
        if not 200 <= answer.status_code < 300:
            raise ValueError(f"the answer is {answer.status_code}")
        body = b""
        for part in answer.iter_bytes():
            body += part
            if len(body) > MAX_BYTES:
                raise ValueError(f"the answer is above {MAX_BYTES} bytes")
        return json.loads(body)


def parts_of(path: str) -> list[str | int]:
    """`$.a.b[0]`, also in braces as kubectl writes it. Raises ValueError."""
    text = path.strip().removeprefix("{").removesuffix("}").strip()
    text = text.removeprefix("$")
    found: list[str | int] = []
    at = 0
    while at < len(text):
        match = _PART.match(text, at)
        if match is None:
            raise ValueError(f"the path {path} is not of the form $.name[0].name")
        found.append(int(match[2]) if match[2] is not None else match[1] or match[3])
        at = match.end()
    return found


def _value(body: Any, path: list[str | int]) -> Any:
    for part in path:
        if isinstance(part, int) and isinstance(body, list) and -len(body) <= part < len(body):
            body = body[part]
        elif isinstance(part, str) and isinstance(body, dict):
            body = body.get(part)
        else:
            return None
    return float(body) if isinstance(body, int) and not isinstance(body, bool) else body
