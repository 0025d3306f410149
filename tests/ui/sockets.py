"""A WebSocket spoken to the ASGI application itself. Channels' own helper needs Daphne, which the product does not."""

import json
from typing import Any, cast

from asgiref.testing import ApplicationCommunicator
from django.conf import settings
from django.test import Client

from config.asgi import application

SECONDS = 5.0


class Socket:
    """The socket of an open page. client: whose cookies it carries."""

    def __init__(self, client: Client, *, origin: str = "http://localhost") -> None:
        headers = [(b"origin", origin.encode()), (b"host", b"localhost")]
        cookie = client.cookies.get(settings.SESSION_COOKIE_NAME)
        if cookie is not None:
            headers.append((b"cookie", f"{settings.SESSION_COOKIE_NAME}={cookie.value}".encode()))
        scope = {
            "type": "websocket",
            "path": "/ws/live",
            "query_string": b"",
            "headers": headers,
            "subprotocols": [],
        }
        self._far: Any = cast("Any", ApplicationCommunicator)(application, scope)

    async def connect(self) -> bool:
        await self._far.send_input({"type": "websocket.connect"})
        answer: dict[str, Any] = await self._far.receive_output(SECONDS)
        return bool(answer["type"] == "websocket.accept")

    async def say(self, message: Any) -> None:
        """message: text as it is, anything else as JSON."""
        text = message if isinstance(message, str) else json.dumps(message)
        await self._far.send_input({"type": "websocket.receive", "text": text})

    async def hear(self, seconds: float = SECONDS) -> Any:
        return json.loads((await self._far.receive_output(seconds))["text"])

    async def close_code(self) -> int:
        """Of the close that ends the talk; what was said before it is passed over."""
        while True:
            output = await self._far.receive_output(SECONDS)
            if output["type"] == "websocket.close":
                return int(output["code"])

    async def is_silent(self, seconds: float) -> bool:
        return bool(await self._far.receive_nothing(seconds))

    async def leave(self) -> None:
        await self._far.send_input({"type": "websocket.disconnect", "code": 1000})
        await self._far.wait(SECONDS)
