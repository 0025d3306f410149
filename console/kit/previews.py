"""What a disruptive verb would do, said before it is done; the answer to `?dry_run=true` and the text of a dialog."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Preview:
    """sentence: the effect for a person. affected: who or what feels it. revision: refuse the verb if it moved on."""

    sentence: str
    affected: tuple[str, ...] = ()
    revision: int | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "dry_run": True,
            "effect": self.sentence,
            "affected": list(self.affected),
            "revision": self.revision,
        }
