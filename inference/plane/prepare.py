"""Makes a version's entry in the cache of prepared models: a process for one model, which ends when it is done.

python -m inference.plane.prepare --version-dir D --model model.onnx [--contract C] --cache DIR [--threads N]
    [--provider cpu] [--seconds N] [--max-bytes N]

It optimises the graph, saves it beside its weights in their final order, loads what it saved, compares the answers of
both on the contract's warm-up samples and on made-up rows, measures every batch size, and only then moves the entry to
its place. It is polite (nice 19), bounded in time and memory, and in the sandbox before it reads a byte of the model.

The last line printed is JSON: state (built, found, refused or failed), key, golden (exact or close), bytes, seconds,
detail. Exit codes: 0 built or found, 2 wrong command line, 3 the model cannot be loaded, 4 refused (this model is
served without the cache); ended by SIGALRM or SIGXCPU: out of time.
"""

import argparse
import contextlib
import fcntl
import json
import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from inference.contract import Contract, ContractError
from inference.graph import GraphError, external_files
from inference.plane import cache, sandbox, warmup
from inference.plane.cache import Cache, CacheError, Manifest
from inference.plane.engine import Engine, Output
from inference.plane.refusals import RefusedError
from inference.plane.runtimes import LoadError, Options, without_folders
from inference.plane.samples import Sample, made_up, read_contract, read_samples
from inference.plane.standby import import_runtimes
from inference.plane.warmth import Warmth

SECONDS = 600
MEASURE_SECONDS = 10.0
# Two sessions are never open at once, yet one holds the file, its optimised copy and the packed weights.
MEMORY_BASE, MEMORY_FACTOR = 2 << 30, 10
RTOL, ATOL = 1e-4, 1e-5


class Refused(Exception):
    """The model is better served without the cache; the message says why."""


def build(store: Cache, given: argparse.Namespace) -> dict[str, Any]:
    """Raises LoadError, ContractError, GraphError, CacheError, Refused, OSError."""
    model = given.version_dir / given.model
    names = (given.model, *external_files(model))
    before = {name: cache.identity(model.parent / name) for name in names}
    digest = cache.digest_of(model.parent, names)
    key = cache.key_of(digest, given.provider)
    entry = store.folder / key
    if entry.exists():
        with contextlib.suppress(CacheError):
            manifest = store.check(entry, thorough=True)
            store.remember(model, digest, before)
            return {"state": "found", "key": key, "golden": manifest.golden, "bytes": _bytes_of(entry)}
        shutil.rmtree(entry)
    building = store.folder / f".build-{os.getpid()}"
    building.mkdir(mode=0o700)
    try:
        golden, warmth = _make(given, building)
        if before != {name: cache.identity(model.parent / name) for name in names}:
            raise Refused("the model's files changed meanwhile")
        manifest = _manifest(building, key, digest, names, golden, warmth)
        with (building / cache.MANIFEST_FILE).open("wb") as file:
            file.write(msgspec.json.encode(manifest))
        for path in (*building.iterdir(), building):
            cache.sync(path)
        building.rename(entry)
        cache.sync(store.folder)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    store.remember(model, digest, before)
    pruned = store.prune(given.max_bytes, keep=key)
    return {"state": "built", "key": key, "golden": golden, "bytes": _bytes_of(entry), "pruned": pruned}


def _make(given: argparse.Namespace, building: Path) -> tuple[str, Warmth]:
    """The optimised graph in `building`, how its answers compare and what its runs cost."""
    folder: Path = given.version_dir
    contract = read_contract(given.contract, folder)
    options = Options(threads=given.threads, provider=given.provider)
    saved = building / cache.MODEL_FILE
    original = Engine(
        folder,
        folder / given.model,
        contract,
        "prepare",
        Options(threads=given.threads, provider=given.provider, save_to=saved),
    )
    if not saved.is_file():
        raise Refused("the runtime saved no graph")
    samples = read_samples(original.contract, folder)
    cases = _cases(original.contract, samples)
    expected = [_answers(original, case) for case in cases]
    again = [_answers(original, case) for case in cases]
    if compare(expected, again) != "exact":
        raise Refused("the model gives other answers each time, so a copy of it cannot be checked")
    del original
    for path in building.iterdir():
        path.chmod(0o600)
    mapped = Options(threads=options.threads, provider=options.provider, mapped=True)
    copy = Engine(folder, saved, contract, "prepare", mapped)
    golden = compare(expected, [_answers(copy, case) for case in cases])
    if golden is None:
        raise Refused("the optimised graph gives other answers than the model")
    return golden, warmup.warm_up(copy, samples, limit_seconds=MEASURE_SECONDS)


def _cases(contract: Contract, samples: list[Sample]) -> list[Sample]:
    return [*samples, made_up(contract, 1), *([made_up(contract, 2)] if contract.max_batch_size > 1 else [])]


def _answers(engine: Engine, case: Sample) -> list[Output] | str:
    """A refusal is an answer too: made-up rows need not suit every model."""
    try:
        outputs = engine.run(case.layout, case.rows, case.buffers)[0]
    except RefusedError as error:
        return str(error)
    return [Output(output.datatype, output.dims, bytes(output.data)) for output in outputs]


def compare(ours: list[list[Output] | str], theirs: list[list[Output] | str]) -> str | None:
    """exact: every bit is the same. close: within RTOL and ATOL. None: neither, or nothing ran at all."""
    if all(isinstance(answer, str) for answer in ours):
        return None
    verdict = "exact"
    for one, other in zip(ours, theirs, strict=True):
        if isinstance(one, str) or isinstance(other, str):
            if isinstance(one, str) != isinstance(other, str):
                return None
            continue
        for left, right in zip(one, other, strict=True):
            if (left.datatype, left.dims) != (right.datatype, right.dims):
                return None
            if left.data == right.data:
                continue
            if left.datatype.dtype[1:2] != "f":
                return None
            first, second = (np.frombuffer(side.data, left.datatype.dtype) for side in (left, right))
            if not np.allclose(first, second, rtol=RTOL, atol=ATOL, equal_nan=True):
                return None
            verdict = "close"
    return verdict


def _manifest(
    building: Path, key: str, digest: str, names: tuple[str, ...], golden: str, warmth: Warmth
) -> Manifest:
    weights = building / cache.WEIGHTS_FILE
    extra = {path.name for path in building.iterdir()} - {cache.MODEL_FILE, cache.WEIGHTS_FILE}
    if extra:
        raise Refused("the runtime saved more files than a graph and its weights")
    return Manifest(
        format=cache.FORMAT,
        key=key,
        digest=digest,
        sources=names,
        basis=cache.basis(),
        graph_sha256=cache.sha256(building / cache.MODEL_FILE),
        weights_sha256=cache.sha256(weights) if weights.exists() else "",
        weights=cache.identity(weights) if weights.exists() else None,
        golden=golden,
        batch_safe=warmth.batch_safe,
        seconds=warmth.seconds,
        row_bytes=warmth.row_bytes,
    )


def _bytes_of(entry: Path) -> int:
    return sum(path.lstat().st_size for path in entry.iterdir())


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """One build at a time; the next one may find what it came for."""
    with (folder / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _limit(given: argparse.Namespace) -> None:
    size = sum(
        path.lstat().st_size
        for path in given.version_dir.iterdir()
        if path.is_file() and not path.is_symlink()
    )
    os.setpriority(os.PRIO_PROCESS, 0, 19)
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    for limit, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, given.seconds * max(1, given.threads)),
        (resource.RLIMIT_DATA, MEMORY_BASE + MEMORY_FACTOR * size),
        (resource.RLIMIT_FSIZE, (64 << 20) + MEMORY_FACTOR * size),
        (resource.RLIMIT_NOFILE, 256),
    ):
        sandbox.lower(limit, value)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends the process also while native code runs
    signal.alarm(given.seconds)


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m inference.plane.prepare")
    parser.add_argument("--version-dir", type=Path, required=True)
    parser.add_argument("--model", default="model.onnx")
    parser.add_argument("--contract", type=Path)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--provider", default="cpu")
    parser.add_argument("--seconds", type=int, default=SECONDS)
    parser.add_argument("--max-bytes", type=int, default=cache.DEFAULT_BYTES)
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    given = _arguments(argv)
    began = time.monotonic()
    told: dict[str, Any]
    try:
        if given.provider.lower() not in ("cpu", "cpuexecutionprovider"):
            raise Refused("only models on the CPU are prepared")
        _limit(given)
        store = Cache(given.cache)
        store.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _lock(store.folder):
            store.prepare_folder()
            import_runtimes()
            held = sandbox.enter(
                [given.version_dir, *([given.contract] if given.contract else [])], writing=[store.folder]
            )
            told = build(store, given) | {"sandbox": held}
        code = 0
    except (Refused, CacheError) as error:
        told, code = {"state": "refused", "detail": str(error)}, 4
    except (LoadError, ContractError, GraphError, OSError, ValueError, MemoryError) as error:
        why = without_folders(str(error), given.version_dir) or type(error).__name__
        told, code = {"state": "failed", "detail": why}, 3
    told["seconds"] = round(time.monotonic() - began, 3)
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
