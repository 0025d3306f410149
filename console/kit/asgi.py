"""Bounds on request bodies before a byte is read: Django's ASGI handler would spool any amount to disk first."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import orjson

from console.kit import problems, request_ids
from console.kit.errors import OperationError, TooLarge

Scope = dict[str, Any]
Message = Mapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_UPLOADS = (b"multipart/form-data", b"application/octet-stream")


class LengthRequired(OperationError):
    """A body of unknown length."""

    code = "length_required"
    status = 411


class BodyGuard:
    """Refuses bodies that are too large (413) or that do not say how large they are (411)."""

    def __init__(self, app: App, *, body_bytes: int, upload_bytes: int) -> None:
        self.app = app
        self.body_bytes = body_bytes
        self.upload_bytes = upload_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"]) if scope["type"] == "http" else {}
        refusal = self._refusal(headers)
        if refusal is None:
            await self.app(scope, receive, send)
        else:
            request_id = request_ids.begin(headers.get(request_ids.HEADER.encode(), b"").decode("latin-1"))
            await _answer(refusal, request_id, send)

    def _refusal(self, headers: dict[bytes, bytes]) -> OperationError | None:
        if b"transfer-encoding" in headers:
            return LengthRequired("Send the body with Content-Length; chunked bodies are not taken.")
        upload = headers.get(b"content-type", b"").lower().startswith(_UPLOADS)
        most = self.upload_bytes if upload else self.body_bytes
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > most:
            return TooLarge(f"The body is larger than the {most} bytes taken here.")
        return None


async def _answer(refusal: OperationError, request_id: str, send: Send) -> None:
    problem, _ = problems.describe(refusal)
    body = orjson.dumps(problem)
    headers = [
        (b"content-type", problems.CONTENT_TYPE.encode()),
        (b"content-length", str(len(body)).encode()),
        (request_ids.HEADER.encode(), request_id.encode()),
        # The unread body is still on the connection, so it cannot be used again.
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
