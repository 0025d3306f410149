"""Answers that are ready together leave together.

Between the answers of one batch a client on another core would wake, read one, send its next request and sleep again,
at the price of a wake-up each. Written in one go, all of them find it awake, and its next requests arrive together.
"""

from typing import Protocol


class Writer(Protocol):
    def write(self, data: bytes) -> None: ...


class Outbox:
    """One for a process: there is one loop. Nothing stays in it once the callback that holds it has returned."""

    def __init__(self) -> None:
        self.held: list[tuple[Writer, bytes]] | None = None

    def hold(self) -> None:
        if self.held is None:
            self.held = []

    def release(self) -> None:
        """Write what is held, in its order, and hold no longer."""
        held, self.held = self.held, None
        if held:
            for writer, data in held:
                writer.write(data)

    def flush(self) -> None:
        """What is written past the outbox must not overtake what is in it."""
        if self.held:
            self.release()
            self.held = []


OUTBOX = Outbox()
