"""A model folder from outside, copied into our own hands and only then looked at.

Whatever arrives is hostile until parsed with a bound: links could point at secrets, files could change between the
check and the use, sizes could fill the disk. So everything is copied once, hashed on the way, into a private folder;
all further questions are asked of the copy.
"""

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from console.kit.errors import Invalid
from inference.blobs import CONTRACT_FILE, BlobStore, TooLarge, copy_hashed, remove_tree, safe_path
from inference.protocol import FileRef

GRAPH = "model.onnx"
CONTRACT_NAMES = ("contract.yaml", "contract.yml")

MOST_FILES = 256
MOST_DEPTH = 4
MOST_BYTES = 16 << 30
CONTRACT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Staged:
    """A private copy: `folder` holds exactly `files`."""

    folder: Path
    files: tuple[FileRef, ...]

    def keep(self, store: BlobStore) -> None:
        """Move the files into the blob store; the folder is spent afterwards."""
        for ref in self.files:
            store.adopt(self.folder / ref.path, ref.sha256)


@contextlib.contextmanager
def stage(source: Path, store: BlobStore, *, most_bytes: int = MOST_BYTES) -> Iterator[Staged]:
    """Copy a folder, or a single .onnx file as `model.onnx`. Raises Invalid naming each file that is refused."""
    folder = store.root / "incoming" / secrets.token_hex(16)
    folder.mkdir(parents=True, mode=0o700)
    try:
        names = _names(source)
        files, left = [], most_bytes
        for name, path in names:
            ref = _copy(path, name, folder / name, left)
            left -= ref.size
            files.append(ref)
        yield Staged(folder, tuple(files))
    finally:
        remove_tree(folder)


def _names(source: Path) -> list[tuple[str, Path]]:
    """(path inside the version, path to read) of every file, sorted. Nothing is opened here and no link followed."""
    try:
        info = source.lstat()
    except OSError as error:
        raise Invalid(
            f"{source.name} cannot be read: {error.strerror}.", fields={"path": "not there"}
        ) from None
    if stat.S_ISREG(info.st_mode):
        if source.suffix != ".onnx":
            raise Invalid("A single file must be an .onnx graph.", fields={source.name: "not an .onnx file"})
        return [(GRAPH, source)]
    if not stat.S_ISDIR(info.st_mode):
        raise Invalid(f"{source.name} is neither a folder nor a file.", fields={source.name: _kind(info)})
    found: list[tuple[str, Path]] = []
    wrong: dict[str, str] = {}
    _walk(source, "", found, wrong)
    if wrong:
        raise Invalid("The model's folder holds what a version may not have.", fields=wrong)
    return _one_graph(sorted(found))


def _walk(folder: Path, prefix: str, found: list[tuple[str, Path]], wrong: dict[str, str]) -> None:
    with os.scandir(folder) as entries:
        for entry in entries:
            name = prefix + entry.name
            info = entry.stat(follow_symlinks=False)
            if len(found) + len(wrong) > MOST_FILES:
                wrong["files"] = f"more than {MOST_FILES}"
                return
            if stat.S_ISDIR(info.st_mode) and name.count("/") < MOST_DEPTH - 1:
                _walk(Path(entry.path), f"{name}/", found, wrong)
            elif refusal := _refusal(name, info):
                wrong[name[:255]] = refusal
            else:
                found.append((name, Path(entry.path)))


def _refusal(name: str, info: os.stat_result) -> str:
    if not stat.S_ISREG(info.st_mode):
        return _kind(info)
    if info.st_nlink != 1:
        return "a hard link: another name could change the bytes later"
    if not safe_path(name):
        return "a name outside A-Z a-z 0-9 . _ - or starting with a dot"
    if name == CONTRACT_FILE:
        return "reserved for the node; name the contract contract.yaml"
    return ""


def _kind(info: os.stat_result) -> str:
    if stat.S_ISLNK(info.st_mode):
        return "a symbolic link"
    if stat.S_ISDIR(info.st_mode):
        return f"a folder deeper than {MOST_DEPTH} levels"
    return "not a regular file"


def _one_graph(found: list[tuple[str, Path]]) -> list[tuple[str, Path]]:
    """The graph is model.onnx; a folder whose only .onnx has another name is taken to mean that one."""
    graphs = [name for name, _ in found if name.endswith(".onnx") and "/" not in name]
    if GRAPH in graphs:
        return found
    if len(graphs) != 1:
        said = "no .onnx file" if not graphs else f"{len(graphs)} .onnx files and none is named {GRAPH}"
        raise Invalid(f"The folder has {said}.", fields={GRAPH: "missing"})
    return sorted((GRAPH if name == graphs[0] else name, path) for name, path in found)


def _copy(path: Path, name: str, target: Path, most_bytes: int) -> FileRef:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise Invalid(f"{name} cannot be read: {error.strerror}.", fields={name: "cannot be read"}) from None
    with os.fdopen(fd, "rb") as source:
        # Asked again of the open file: the name may mean something else by now.
        if refusal := _refusal(name, os.fstat(source.fileno())):
            raise Invalid(f"{name} is {refusal}.", fields={name: refusal})
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with target.open("xb") as copy:
            try:
                digest = copy_hashed(source, copy, limit=most_bytes)
            except TooLarge:
                raise Invalid("The model is too large.", fields={name: "past the size limit"}) from None
    return FileRef(name, digest.sha256, digest.size)
