"""The supervisor's way in: one Unix socket, one JSON object a line each way."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from inference.plane.unix import listen
from inference.protocol import encode

log = logging.getLogger(__name__)
MAX_LINE = 64 << 10

Verb = Callable[[], Awaitable[Any]]


async def serve(path: Path, verbs: Mapping[str, Verb]) -> asyncio.Server:
    """Answer each verb with its result, or with {"error": sentence}."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                writer.write(await _answer(line, verbs) + b"\n")
                await writer.drain()
        except (OSError, ValueError):
            return  # gone, or a line without end
        finally:
            writer.close()

    listener = listen(path)
    listener.setblocking(False)
    return await asyncio.start_unix_server(talk, sock=listener, limit=MAX_LINE)


async def _answer(line: bytes, verbs: Mapping[str, Verb]) -> bytes:
    try:
        asked = json.loads(line)
        verb = verbs[asked["do"]]
    except (ValueError, KeyError, TypeError):
        return encode({"error": f"say one of {', '.join(verbs)}"})
    try:
        return encode(await verb())
    except (OSError, ValueError) as error:
        return encode({"error": str(error)})
    except Exception:
        log.exception("control verb %s failed", asked["do"])
        return encode({"error": "internal error"})
