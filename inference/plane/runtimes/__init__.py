"""What can run a model. One file for each kind, one line here."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from inference.graph import Signature
from inference.plane.datatypes import Array, Datatype

# An absolute path up to its last part; no part of a URL or of a relative path.
_FOLDERS = re.compile(r"(?<![\w.:/])/(?:[^\s/'\":,]+/)+")


class LoadError(Exception):
    """The model cannot be loaded as asked; the message is a sentence for a person."""


@dataclass(frozen=True, slots=True)
class Options:
    """provider: short or full name. gpu_memory_bytes: 0 for no limit. fixed_shapes: only the rows ever change.

    mapped: load `path` as the optimised graph it is, with its weights mapped. save_to: write such a graph there.
    """

    threads: int = 1
    provider: str = "cpu"
    gpu_id: int = 0
    gpu_memory_bytes: int = 0
    fixed_shapes: bool = True
    mapped: bool = False
    save_to: Path | None = None


class Runtime(Protocol):
    @property
    def providers(self) -> tuple[str, ...]: ...

    @property
    def signature(self) -> Signature: ...

    def run(self, outputs: Sequence[str], feeds: dict[str, tuple[Datatype, Array]]) -> list[Array]:
        """One array for each output: numbers, or objects (`str`) for BYTES, or 16-bit words for BF16."""

    def run_into(
        self,
        outputs: Sequence[str],
        feeds: dict[str, tuple[Datatype, Array]],
        targets: dict[str, Array],
    ) -> list[Array]:
        """As `run`; outputs named in `targets` are written there, and the array given back is that very one.

        Where the graph makes another shape than the target's, the array is another one too.
        """

    def stop(self) -> None:
        """From another thread: the run in hand raises as soon as its operator ends."""

    def resume(self) -> None:
        """Runs may go on after `stop`."""

    def shrinking(self, on: bool) -> None:
        """While on, runs give memory that they do not need back to the system."""


Loader = Callable[[Path, Options, Callable[[str], None]], Runtime]


def _onnx(path: Path, options: Options, phase: Callable[[str], None]) -> Runtime:
    # Imported on use: a process that only plans never pays for a runtime.
    from inference.plane.runtimes.onnx import load

    return load(path, options, phase)


RUNTIMES: dict[str, Loader] = {"onnx": _onnx}


def without_folders(text: str, folder: Path) -> str:
    """An error's words with files by name only: who may see a rollout need not know this machine's folders."""
    for known in {str(folder), str(folder.resolve())} - {"/", "."}:
        text = text.replace(f"{known}/", "").replace(known, "the version's folder")
    return _FOLDERS.sub("", text)
