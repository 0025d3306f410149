"""Content-addressed files under one folder, and version folders made from them on a node. No Django, no database.

A blob is written to a private name, synced and renamed, so a name in the store always holds whole, true bytes.
"""

import hashlib
import os
import re
import secrets
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from console.kit.files import sync_folder, write_atomic
from inference.protocol import FileRef, VersionSpec

CHUNK = 1 << 20
PATH_PATTERN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*")
CONTRACT_FILE = "contract.json"  # beside the model in a materialised folder; a version may not bring its own
_SHA256 = re.compile(r"[0-9a-f]{64}")


class BlobDamaged(Exception):
    """A blob is missing, or its bytes are not what its name promises."""


class TooLarge(Exception):
    """More bytes than the caller allows."""


@dataclass(frozen=True, slots=True)
class Digest:
    sha256: str
    size: int


def copy_hashed(source: BinaryIO, target: BinaryIO, *, limit: int | None = None) -> Digest:
    """Copy to the end, hashing on the way. Raises TooLarge before writing past `limit` bytes."""
    hasher, size = hashlib.sha256(), 0
    while chunk := source.read(CHUNK):
        size += len(chunk)
        if limit is not None and size > limit:
            raise TooLarge(f"more than {limit} bytes")
        hasher.update(chunk)
        target.write(chunk)
    return Digest(hasher.hexdigest(), size)


def safe_path(path: str) -> bool:
    """Relative, no dot names, nothing a shell, URL or other file system could read differently."""
    return len(path) <= 255 and PATH_PATTERN.fullmatch(path) is not None


class BlobStore:
    """Files named by their SHA-256 under `root`/sha256/ab/<hex>."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, sha256: str) -> Path:
        if _SHA256.fullmatch(sha256) is None:
            raise ValueError(f"{sha256!r} is not a SHA-256")
        return self.root / "sha256" / sha256[:2] / sha256

    def has(self, sha256: str) -> bool:
        return self.path(sha256).is_file()

    def put(self, source: BinaryIO, *, limit: int | None = None) -> Digest:
        """Stream a file in. The same bytes twice are one blob."""
        incoming = self.root / "incoming"
        incoming.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = incoming / secrets.token_hex(16)
        fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(fd, "wb") as file:
                digest = copy_hashed(source, file, limit=limit)
            self.adopt(temporary, digest.sha256)
        finally:
            temporary.unlink(missing_ok=True)
        return digest

    def adopt(self, file: Path, sha256: str) -> None:
        """Move a finished file of ours, already hashed by us, into the store. `file` is gone afterwards."""
        final = self.path(sha256)
        if final.is_file():
            file.unlink()
            return
        final.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with file.open("rb") as handle:
            os.fsync(handle.fileno())
        file.chmod(0o400)
        file.replace(final)  # two writers of the same bytes: either rename leaves the same content
        sync_folder(final.parent)

    def copy_to(self, ref: FileRef, target: Path) -> None:
        """Write one blob as a read-only file. Raises BlobDamaged when its bytes are not those promised."""
        try:
            source = self.path(ref.sha256).open("rb")
        except OSError as error:
            raise BlobDamaged(
                f"{ref.path}: blob {ref.sha256[:12]} cannot be read: {error.strerror}"
            ) from None
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o400)
        with source, os.fdopen(fd, "wb") as file:
            digest = copy_hashed(source, file)
            file.flush()
            os.fsync(file.fileno())
        if digest != Digest(ref.sha256, ref.size):
            raise BlobDamaged(f"{ref.path}: blob {ref.sha256[:12]} holds other bytes than its name says")


def materialise(spec: VersionSpec, root: Path, store: BlobStore, contract: bytes) -> Path:
    """The folder of a version under `root`, read-only, every byte checked against its hash.

    Copies, never links: a writer who reaches one folder must not reach the blob. Made under another name and renamed,
    so a folder that exists is complete; one that was damaged since is made again.
    """
    final = root / spec.digest
    if is_intact(final, spec, contract):
        return final
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = root / f".{spec.digest[:16]}.{os.getpid()}.{secrets.token_hex(4)}"
    try:
        temporary.mkdir(mode=0o700)
        for ref in spec.files:
            if not safe_path(ref.path) or ref.path == CONTRACT_FILE:
                raise BlobDamaged(f"{ref.path!r} is not a file name a version may have")
            store.copy_to(ref, temporary / ref.path)
        write_atomic(temporary / CONTRACT_FILE, contract, mode=0o400)
        sync_folder(temporary)
        if final.exists():
            remove_tree(final)
        temporary.rename(final)
    except BaseException:
        remove_tree(temporary)
        raise
    sync_folder(root)
    return final


def is_intact(folder: Path, spec: VersionSpec, contract: bytes) -> bool:
    """Every file of the version is there with its true bytes, as a regular file with one name."""
    wanted = [*spec.files, FileRef(CONTRACT_FILE, hashlib.sha256(contract).hexdigest(), len(contract))]
    return all(_holds(folder / ref.path, ref) for ref in wanted)


def _holds(path: Path, ref: FileRef) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return False
    with os.fdopen(fd, "rb") as file:
        info = os.fstat(file.fileno())
        if not stat.S_ISREG(info.st_mode) or info.st_nlink != 1 or info.st_size != ref.size:
            return False
        return hashlib.file_digest(file, "sha256").hexdigest() == ref.sha256


def remove_tree(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def contract_bytes(contract: dict[str, Any]) -> bytes:
    """One form for one content, whatever order a database gives it back in."""
    return msgspec.json.encode(contract, order="sorted")


def digest_of(files: tuple[FileRef, ...] | list[FileRef], contract: bytes) -> str:
    """Identity of a version: its sorted manifest and its contract, so equal digests run the same."""
    lines = [f"{ref.sha256} {ref.size} {ref.path}\n" for ref in sorted(files, key=lambda ref: ref.path)]
    lines.append(f"contract {hashlib.sha256(contract).hexdigest()}\n")
    return hashlib.sha256("".join(lines).encode()).hexdigest()
