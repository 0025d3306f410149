"""The console as an ASGI server in a thread of the test, on a free port, over the test's own database and Redis."""

import asyncio
import threading
import time
from dataclasses import dataclass, field

import uvicorn

from tests.services.process import free_port


@dataclass
class ConsoleServer:
    port: int = field(default_factory=free_port)
    _server: uvicorn.Server | None = None
    _thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        from config.asgi import application

        config = uvicorn.Config(
            application,
            host="127.0.0.1",
            port=self.port,
            log_level="warning",
            lifespan="off",
            ws="websockets",
        )
        server = uvicorn.Server(config)
        # The browser's connections stay open; a test's end does not wait for them.
        config.timeout_graceful_shutdown = 1
        self._server = server
        self._thread = threading.Thread(target=lambda: asyncio.run(server.serve()), daemon=True)
        self._thread.start()
        deadline = time.monotonic() + 20
        while not server.started:
            assert time.monotonic() < deadline and self._thread.is_alive(), "the console did not start"
            time.sleep(0.02)

    def stop(self) -> None:
        if self._server is None or self._thread is None:
            return
        self._server.should_exit = True
        self._thread.join(timeout=10)
        self._server = self._thread = None
