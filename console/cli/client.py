"""The console's REST API for the command line: where it is, who is asking, and refusals as sentences."""

import json
import os
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

DEFAULT_URL = "http://127.0.0.1:8000"
_TIMEOUT = httpx.Timeout(30.0, connect=5.0)


class CliError(Exception):
    """An expected failure: one sentence for the person, no traceback."""

    exit_code = 1


class Unreachable(CliError):
    """The console does not answer."""


class ApiError(CliError):
    """The console refused. `problem` is the whole problem body; code, detail and fields are taken from it."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        self.status = status
        self.problem = dict(problem)
        self.code = str(problem.get("code", "unknown"))
        self.detail = str(problem.get("detail") or problem.get("title") or f"HTTP {status}")
        self.fields: dict[str, str] = dict(problem.get("fields") or {})
        super().__init__(self.sentence)

    @property
    def sentence(self) -> str:
        lines = [self.detail, *(f"  {name}: {why}" for name, why in self.fields.items())]
        if self.status == 401:
            lines.append(
                "  Set PILOTHOUSE_TOKEN to a REST token (pht_...); `pilothouse token create` makes one."
            )
        if self.status >= 500 and self.problem.get("request_id"):
            lines.append(f"  request id: {self.problem['request_id']}")
        return "\n".join(lines)


def home() -> Path:
    return Path(os.environ.get("PILOTHOUSE_HOME", "var")).expanduser()


def credentials() -> dict[str, Any]:
    """What `pilothouse up` left in the local home for the person who started it; empty when there is none."""
    try:
        found = json.loads((home() / "credentials.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


class Client:
    """`Client()` reads PILOTHOUSE_URL and PILOTHOUSE_TOKEN, else the local home's credentials.json ({url, token})."""

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        local = credentials()
        given_url = url or os.environ.get("PILOTHOUSE_URL")
        self.url = (given_url or str(local.get("url") or DEFAULT_URL)).rstrip("/")
        # A local secret goes to the local console only, never to an address the person named.
        found = str(local.get("token") or "") if given_url in (None, local.get("url")) else ""
        self.token = token or os.environ.get("PILOTHOUSE_TOKEN") or found
        headers = {"Accept": "application/json"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        _check_address(self.url)
        self._http = httpx.Client(
            base_url=f"{self.url}/api/v1/", headers=headers, timeout=_TIMEOUT, transport=transport
        )

    def get(self, path: str, *, timeout: float | None = None, **params: Any) -> Any:
        """timeout: seconds to wait for the answer, for long polls. Raises ApiError, Unreachable."""
        return self.request("GET", path, params=params, timeout=timeout)

    def post(
        self,
        path: str,
        json: Any = None,
        *,
        key: str | None = None,
        files: Any = None,
        data: Any = None,
        timeout: float | None = None,
        **params: Any,
    ) -> Any:
        """key: Idempotency-Key; made up when not given, so that a proxy that sends twice acts once."""
        headers = {"Idempotency-Key": key or uuid.uuid4().hex}
        return self.request(
            "POST",
            path,
            json=json,
            headers=headers,
            files=files,
            data=data,
            params=params,
            timeout=timeout,
        )

    def put(self, path: str, json: Any, *, revision: int | None = None, **params: Any) -> Any:
        return self.request("PUT", path, json=json, headers=_if_match(revision), params=params)

    def patch(self, path: str, json: Any, *, revision: int | None = None, **params: Any) -> Any:
        return self.request("PATCH", path, json=json, headers=_if_match(revision), params=params)

    def delete(self, path: str, **params: Any) -> Any:
        return self.request("DELETE", path, params=params)

    def pages(self, path: str, *, most: int = 1000, **params: Any) -> Iterator[dict[str, Any]]:
        """The rows of a cursor-paged list, over all its pages."""
        page = self.get(path, **params)
        while True:
            for row in page["results"]:
                yield row
                most -= 1
                if most <= 0:
                    return
            if not page.get("next"):
                return
            cursor = httpx.URL(page["next"]).params.get("cursor")
            page = self.get(path, **{**params, "cursor": cursor})

    def request(self, method: str, path: str, *, timeout: float | None = None, **kwargs: Any) -> Any:
        """The decoded answer, None for an empty one."""
        params = {k: _plain(v) for k, v in (kwargs.pop("params", None) or {}).items() if v is not None}
        waits = _TIMEOUT if timeout is None else httpx.Timeout(timeout, connect=5.0)
        try:
            answer = self._http.request(method, path.lstrip("/"), params=params, timeout=waits, **kwargs)
        except httpx.TimeoutException:
            raise Unreachable(f"The console at {self.url} did not answer in time.") from None
        except httpx.TransportError as error:
            raise Unreachable(
                f"The console at {self.url} is not reachable: {error}. "
                "Start it with `pilothouse up`, or set PILOTHOUSE_URL."
            ) from None
        if answer.is_success:
            return _decoded(answer) if answer.content else None
        raise ApiError(answer.status_code, _problem(answer))

    def close(self) -> None:
        self._http.close()


def _check_address(url: str) -> None:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable:
        raise CliError(f"PILOTHOUSE_URL={url} is not an address such as {DEFAULT_URL}.")


def _plain(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value


def _if_match(revision: int | None) -> dict[str, str]:
    return {} if revision is None else {"If-Match": f'"{revision}"'}


def _decoded(answer: httpx.Response) -> Any:
    try:
        return answer.json()
    except ValueError:
        raise CliError(
            f"{answer.url} did not answer as a Pilothouse console does; is PILOTHOUSE_URL right?"
        ) from None


def _problem(answer: httpx.Response) -> dict[str, Any]:
    try:
        found = answer.json()
    except ValueError:
        found = None
    if isinstance(found, dict) and "status" in found:
        return found
    return {
        "status": answer.status_code,
        "code": "not_a_problem_body",
        "detail": f"{answer.url} answered {answer.status_code} {answer.reason_phrase}.",
    }
