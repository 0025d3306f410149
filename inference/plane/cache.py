"""Prepared models on disk: the optimised graph beside its weights in the order in which kernels read them.

Processes map the weights, so a second worker, or one started again, shares their pages and loads in a few milliseconds.
`prepare` writes entries; workers only look. An entry is `KEY/{model.onnx,weights.bin,manifest.json}` in a folder that
belongs to this user alone; KEY is made of everything the file depends on: the model's bytes, the runtime's release, the
CPU and the options. `index/` remembers the digest of model files by inode, size and times, so that a worker need not
read hundreds of megabytes to know which entry is its own.

What is trusted: the graph is hashed at each load (it is small), the weights only by inode, size and time of change,
which nobody but this user can keep while changing a byte; their hash is in the manifest and `prepare` checks it.
"""

import contextlib
import hashlib
import os
import platform
import shutil
import stat
from collections.abc import Iterator, Mapping
from functools import cache as once
from importlib import metadata
from pathlib import Path

import msgspec

from inference.plane.warmth import Warmth

FORMAT = 1
MODEL_FILE = "model.onnx"
WEIGHTS_FILE = "weights.bin"
MANIFEST_FILE = "manifest.json"
DEFAULT_BYTES = 16 << 30

# device, inode, bytes, modified, changed (nanoseconds): another file, or another content, has others.
Identity = tuple[int, int, int, int, int]


class CacheError(Exception):
    """An entry that must not be used; the message says why."""


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """sources: names of the model's files. golden: `exact` or `close`, as the answers compared. seconds: by rows."""

    format: int
    key: str
    digest: str
    sources: tuple[str, ...]
    basis: dict[str, str]
    graph_sha256: str
    weights_sha256: str
    weights: Identity | None
    golden: str
    batch_safe: bool
    seconds: dict[int, float]
    row_bytes: int


class _Known(msgspec.Struct, frozen=True):
    digest: str
    files: dict[str, Identity]


def default_folder() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "pilothouse" / "models"


@once
def basis() -> dict[str, str]:
    """What a prepared file depends on beside the model: a kernel of another CPU or release reads weights otherwise."""
    return {"format": str(FORMAT), "runtime": _runtime(), "machine": platform.machine(), "cpu": _cpu()}


def key_of(digest: str, provider: str) -> str:
    told = "\n".join(
        [digest, provider.lower(), *(f"{name}={value}" for name, value in sorted(basis().items()))]
    )
    return hashlib.sha256(told.encode()).hexdigest()[:40]


def identity(path: Path) -> Identity:
    """Raises OSError, CacheError for anything but a plain file."""
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode):
        raise CacheError(f"{path.name} is not a regular file")
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def digest_of(folder: Path, names: tuple[str, ...]) -> str:
    """Of the model's files, read whole."""
    whole = hashlib.sha256()
    for name in names:
        with (folder / name).open("rb") as file:
            whole.update(f"{name}\n{hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return whole.hexdigest()


class Cache:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find(self, model: Path, provider: str) -> tuple[Path, Warmth] | None:
        """The entry's graph for a model file, and how it was measured; None when there is none that may be used.

        Raises CacheError when there is one that must not be.
        """
        if not self.folder.is_dir():
            return None
        _ours(self.folder)
        digest = self.known_digest(model)
        entry = self.folder / key_of(digest, provider) if digest else None
        if entry is None or not entry.is_dir():
            return None
        manifest = self.check(entry)
        with contextlib.suppress(OSError):
            os.utime(entry)  # entries that nobody uses go first
        return entry / MODEL_FILE, Warmth(
            batch_safe=manifest.batch_safe, seconds=dict(manifest.seconds), row_bytes=manifest.row_bytes
        )

    def check(self, entry: Path, *, thorough: bool = False) -> Manifest:
        """Raises CacheError. thorough: read the weights too."""
        try:
            _ours(entry)
            manifest = msgspec.json.decode((entry / MANIFEST_FILE).read_bytes(), type=Manifest)
            if manifest.key != entry.name or manifest.basis != basis() or manifest.format != FORMAT:
                raise CacheError("the entry was made for something else")
            _plain(entry / MODEL_FILE)
            if sha256(entry / MODEL_FILE) != manifest.graph_sha256:
                raise CacheError("the entry's graph is damaged")
            if manifest.weights is not None:
                _plain(entry / WEIGHTS_FILE)
                if identity(entry / WEIGHTS_FILE) != tuple(manifest.weights):
                    raise CacheError("the entry's weights were changed")
                if thorough and sha256(entry / WEIGHTS_FILE) != manifest.weights_sha256:
                    raise CacheError("the entry's weights are damaged")
            return manifest
        except (OSError, msgspec.DecodeError, msgspec.ValidationError) as error:
            raise CacheError(f"the entry cannot be read: {type(error).__name__}") from None

    def known_digest(self, model: Path) -> str | None:
        """Without reading the model's files: from the last time that they were read."""
        try:
            note = self._note(identity(model))
            known = msgspec.json.decode(note.read_bytes(), type=_Known)
            if all(identity(model.parent / name) == tuple(was) for name, was in known.files.items()):
                return known.digest
        except (OSError, msgspec.DecodeError, msgspec.ValidationError, CacheError):
            pass
        return None

    def remember(self, model: Path, digest: str, files: Mapping[str, Identity]) -> None:
        """files: as they were before they were read."""
        note = self._note(files[model.name])
        note.parent.mkdir(mode=0o700, exist_ok=True)
        with _replacing(note) as temporary:
            temporary.write_bytes(msgspec.json.encode(_Known(digest, dict(files))))

    def _note(self, of: Identity) -> Path:
        return self.folder / "index" / hashlib.sha256(repr(of).encode()).hexdigest()[:40]

    def prepare_folder(self) -> None:
        """Raises CacheError when the folder belongs to somebody else or is open to others."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _ours(self.folder)
        for left in self.folder.glob(".build-*"):  # of a process that was killed; the caller holds the lock
            shutil.rmtree(left, ignore_errors=True)

    def prune(self, most_bytes: int, keep: str) -> list[str]:
        """Remove the longest unused entries until the rest fits. A worker that has one mapped keeps its pages."""
        entries = [path for path in self.folder.iterdir() if len(path.name) == 40 and path.is_dir()]
        sizes = {path: sum(file.lstat().st_size for file in path.iterdir()) for path in entries}
        gone = []
        for path in sorted(entries, key=lambda path: path.stat().st_mtime_ns):
            if sum(sizes.values()) <= most_bytes:
                break
            if path.name != keep:
                shutil.rmtree(path, ignore_errors=True)
                del sizes[path]
                gone.append(path.name)
        self._prune_index()
        return gone

    def _prune_index(self) -> None:
        notes = sorted((self.folder / "index").glob("*"), key=lambda path: path.stat().st_mtime_ns)
        for note in notes[:-1000]:
            note.unlink(missing_ok=True)


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    yield temporary
    sync(temporary)
    temporary.replace(path)


def _ours(folder: Path) -> None:
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise CacheError(f"{folder.name} belongs to somebody else or may be written by others")


def _plain(path: Path) -> None:
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid() or found.st_nlink != 1:
        raise CacheError(f"{path.name} is not a file of our own")
    if found.st_mode & 0o022:
        raise CacheError(f"{path.name} may be written by others")


def _runtime() -> str:
    for name in ("onnxruntime", "onnxruntime-gpu"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            return f"{name} {metadata.version(name)}"
    return "none"


def _cpu() -> str:
    """Model and every flag: kernels are chosen by them."""
    told = []
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() in (
                "flags",
                "Features",
                "model name",
                "CPU part",
                "cpu family",
                "model",
                "stepping",
            ):
                told.append(f"{name.strip()}={' '.join(sorted(value.split()))}")
            if not line.strip() and told:
                break  # the first core speaks for all
    return hashlib.sha256("\n".join(told).encode()).hexdigest()[:16]
