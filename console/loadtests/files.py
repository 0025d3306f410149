"""CSV files in the home folder: one for each load test, each bounded; the oldest go when together they are too many."""

import contextlib
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from django.conf import settings

MOST_BYTES = 64 << 20
MOST_BYTES_TOGETHER = 512 << 20


def folder() -> Path:
    path = Path(settings.HOME) / "loadtests"
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    return path


def csv_of(loadtest_id: int) -> Path:
    return folder() / f"{loadtest_id}.csv"


def keep(loadtest_id: int) -> int:
    """Bytes kept of this test's CSV: 0 when there is none, or it is larger than one may be."""
    path = csv_of(loadtest_id)
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return 0
    if size > MOST_BYTES:
        path.unlink(missing_ok=True)
        return 0
    _make_room(besides=path)
    return size


def receive(chunks: Iterable[bytes]) -> Path | None:
    """An upload as a file under a name of its own; None, and nothing left, when it is longer than MOST_BYTES."""
    handle, name = tempfile.mkstemp(suffix=".part", dir=folder())
    path, written = Path(name), 0
    with os.fdopen(handle, "wb") as file:
        for chunk in chunks:
            written += len(chunk)
            if written > MOST_BYTES:
                break
            file.write(chunk)
    if written > MOST_BYTES:
        path.unlink()
        return None
    return path


def remove(loadtest_id: int) -> None:
    csv_of(loadtest_id).unlink(missing_ok=True)


def _make_room(*, besides: Path) -> None:
    """The report of a test whose CSV went stays: it holds all that the page draws."""
    known = sorted(folder().glob("*.csv"), key=lambda path: path.stat().st_mtime, reverse=True)
    total = 0
    for path in known:
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size
            if total > MOST_BYTES_TOGETHER and path != besides:
                path.unlink()
