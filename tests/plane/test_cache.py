"""Prepared models: made by a process of their own, mapped by workers, refused when anything about them is odd."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from inference.plane import cache
from inference.plane.cache import Cache, CacheError
from inference.plane.datatypes import DATATYPES
from inference.plane.engine import Output
from inference.plane.prepare import compare
from tests.plane import models
from tests.plane.parts import ROOT
from tests.plane.test_worker import LAYOUT, Plane, Running, environment, turns

WIDTH = 256


def wide(folder: Path) -> Path:
    """A layer whose weights are large enough to be kept beside the graph."""
    return models.mlp(folder, width=WIDTH, out=WIDTH)


def prepare(version: Path, folder: Path, *more: str) -> tuple[int, dict[str, Any]]:
    command = [
        sys.executable, "-m", "inference.plane.prepare",
        "--version-dir", str(version), "--cache", str(folder), *more,
    ]  # fmt: skip
    done = subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=60, check=False
    )
    lines = done.stdout.splitlines()
    assert lines, done.stderr
    return done.returncode, json.loads(lines[-1])


def entry_of(folder: Path) -> Path:
    (entry,) = [path for path in folder.iterdir() if len(path.name) == 40]
    return entry


def test_a_prepared_model_is_mapped_and_answers_bit_for_bit(tmp_path: Path) -> None:
    version, folder = wide(tmp_path / "v"), tmp_path / "cache"
    code, told = prepare(version, folder)
    assert (code, told["state"], told["golden"]) == (0, "built", "exact")
    entry = entry_of(folder)
    assert {path.name for path in entry.iterdir()} == {"model.onnx", "weights.bin", "manifest.json"}
    assert {path.stat().st_mode & 0o077 for path in (entry, *entry.iterdir())} <= {0, 0o044, 0o055}
    running = Running(tmp_path, version, "--cache", str(folder))
    try:
        status = running.ready()
        assert status.cache == "mapped" and status.detail == ""
        assert {"1", "2", "4", "8", "16", "32"} <= status.batch_seconds.keys()
        maps = Path(f"/proc/{running.child.pid}/maps").read_text()
        assert str(entry / "weights.bin") in maps
        plane = Plane(running.socket)
        plane.status()
        plane.define(msgspec.structs.replace(LAYOUT, inputs=(("x", "FP32", (WIDTH,)),), outputs=("y",)))
        x = np.random.default_rng(3).random((1, WIDTH), dtype="f4")
        plane.run(1, x.tobytes())
        body = plane.receive()[1]
        assert bytes(body[-WIDTH * 4 :]) == models.raw(version, {"x": x})[0].tobytes()
    finally:
        running.stop()


def test_a_second_preparation_finds_the_first_and_another_copy_needs_no_new_one(tmp_path: Path) -> None:
    version, folder = wide(tmp_path / "v"), tmp_path / "cache"
    first = prepare(version, folder)[1]
    again = prepare(version, folder)[1]
    assert (again["state"], again["key"]) == ("found", first["key"])
    copied = shutil.copytree(version, tmp_path / "copy")
    assert Cache(folder).find(copied / "model.onnx", "cpu") is None
    assert prepare(copied, folder)[1]["state"] == "found"
    assert Cache(folder).find(copied / "model.onnx", "cpu") is not None


def test_another_model_in_the_same_place_is_not_mistaken_for_the_old_one(tmp_path: Path) -> None:
    version, folder = wide(tmp_path / "v"), tmp_path / "cache"
    prepare(version, folder)
    assert Cache(folder).find(version / "model.onnx", "cpu") is not None
    whole = (version / "model.onnx").read_bytes()
    times = (version / "model.onnx").stat()
    (version / "model.onnx").write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    os.utime(version / "model.onnx", ns=(times.st_atime_ns, times.st_mtime_ns))
    assert Cache(folder).find(version / "model.onnx", "cpu") is None
    assert Cache(folder).find(tmp_path / "gone.onnx", "cpu") is None


def _change_graph(entry: Path) -> None:
    with (entry / "model.onnx").open("r+b") as file:
        file.seek(20)
        file.write(b"\xff")


def _change_weights(entry: Path) -> None:
    before = (entry / "weights.bin").stat()
    with (entry / "weights.bin").open("r+b") as file:
        file.write(b"\xff" * 64)
    os.utime(entry / "weights.bin", ns=(before.st_atime_ns, before.st_mtime_ns))


def _cut_weights(entry: Path) -> None:
    os.truncate(entry / "weights.bin", 100)


def _swap_weights(entry: Path) -> None:
    whole = (entry / "weights.bin").read_bytes()
    (entry / "weights.bin").unlink()
    (entry / "weights.bin").write_bytes(whole)


def _link_weights(entry: Path) -> None:
    (entry / "weights.bin").rename(entry.parent / "w")
    (entry / "weights.bin").symlink_to(entry.parent / "w")


def _hard_link(entry: Path) -> None:
    os.link(entry / "weights.bin", entry.parent / "w")


def _no_manifest(entry: Path) -> None:
    (entry / "manifest.json").unlink()


def _half_manifest(entry: Path) -> None:
    whole = (entry / "manifest.json").read_bytes()
    (entry / "manifest.json").write_bytes(whole[: len(whole) // 2])


def _other_cpu(entry: Path) -> None:
    tree = json.loads((entry / "manifest.json").read_bytes())
    tree["basis"]["cpu"] = "another"
    (entry / "manifest.json").write_text(json.dumps(tree))


def _other_key(entry: Path) -> None:
    tree = json.loads((entry / "manifest.json").read_bytes())
    tree["key"] = "0" * 40
    (entry / "manifest.json").write_text(json.dumps(tree))


def _open_to_all(entry: Path) -> None:
    (entry / "weights.bin").chmod(0o666)


def _open_folder(entry: Path) -> None:
    entry.chmod(0o777)


@pytest.mark.parametrize(
    "harm",
    [
        _change_graph, _change_weights, _cut_weights, _swap_weights, _link_weights, _hard_link, _no_manifest,
        _half_manifest, _other_cpu, _other_key, _open_to_all, _open_folder,
    ],
)  # fmt: skip
def test_a_damaged_or_foreign_entry_is_refused(
    tmp_path: Path, prepared: tuple[Path, Path], harm: Callable[[Path], None]
) -> None:
    version, folder = prepared
    harm(entry_of(folder))
    with pytest.raises(CacheError):
        Cache(folder).find(version / "model.onnx", "cpu")


@pytest.fixture
def prepared(tmp_path: Path) -> tuple[Path, Path]:
    version, folder = wide(tmp_path / "v"), tmp_path / "cache"
    assert prepare(version, folder)[0] == 0
    return version, folder


def test_a_worker_loads_without_a_refused_entry_and_says_why_until_it_is_made_anew(
    tmp_path: Path, prepared: tuple[Path, Path]
) -> None:
    version, folder = prepared
    _cut_weights(entry_of(folder))
    running = Running(tmp_path, version, "--cache", str(folder))
    try:
        status = running.ready()
        assert status.cache == "none"
        assert status.detail == "the prepared model was refused: the entry's weights were changed"
    finally:
        running.stop()
    assert prepare(version, folder)[1]["state"] == "built"
    assert Cache(folder).find(version / "model.onnx", "cpu") is not None


def test_a_cache_that_others_may_write_is_not_used(prepared: tuple[Path, Path]) -> None:
    version, folder = prepared
    folder.chmod(0o777)
    with pytest.raises(CacheError, match="may be written by others"):
        Cache(folder).find(version / "model.onnx", "cpu")
    assert prepare(version, folder)[0] == 4


def test_models_with_external_weights_are_prepared_with_all_their_files(tmp_path: Path) -> None:
    version, folder = wide(tmp_path / "v"), tmp_path / "cache"
    model = onnx.load(version / "model.onnx")
    onnx.save(model, version / "model.onnx", save_as_external_data=True, location="w.data", size_threshold=0)
    assert prepare(version, folder)[0] == 0
    tree = json.loads((entry_of(folder) / "manifest.json").read_bytes())
    assert tree["sources"] == ["model.onnx", "w.data"]
    store = Cache(folder)
    assert store.find(version / "model.onnx", "cpu") is not None
    (version / "w.data").write_bytes((version / "w.data").read_bytes())
    assert store.find(version / "model.onnx", "cpu") is None


def test_a_model_whose_answers_are_random_is_left_alone(tmp_path: Path) -> None:
    weight = numpy_helper.from_array(np.ones((64, 64), "f4"), "w")
    nodes = [
        helper.make_node("RandomNormalLike", ["x"], ["r"]),
        helper.make_node("MatMul", ["r", "w"], ["y"]),
    ]
    version = models.save(
        tmp_path / "v",
        nodes,
        [models.tensor("x", 1, ["N", 64])],
        [models.tensor("y", 1, ["N", 64])],
        [weight],
    )
    code, told = prepare(version, tmp_path / "cache")
    assert (code, told["state"]) == (4, "refused") and "other answers each time" in told["detail"]


def test_what_cannot_be_loaded_leaves_nothing_behind(tmp_path: Path) -> None:
    version, folder = wide(tmp_path / "v"), tmp_path / "cache"
    whole = (version / "model.onnx").read_bytes()
    (version / "model.onnx").write_bytes(whole[: len(whole) // 2])
    code, told = prepare(version, folder)
    assert (code, told["state"]) == (3, "failed") and str(tmp_path) not in told["detail"]
    assert {path.name for path in folder.iterdir()} == {".lock"}


def test_only_the_processor_is_prepared_for(tmp_path: Path) -> None:
    code, told = prepare(wide(tmp_path / "v"), tmp_path / "cache", "--provider", "cuda")
    assert (code, told["state"]) == (4, "refused")


def test_a_preparation_that_takes_too_long_is_ended_and_the_next_one_cleans_up(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    (folder / ".build-1").mkdir(parents=True, mode=0o700)
    folder.chmod(0o700)
    version = endless(tmp_path / "endless")
    command = [
        sys.executable, "-m", "inference.plane.prepare",
        "--version-dir", str(version), "--cache", str(folder), "--seconds", "3",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, timeout=60, check=False)
    assert done.returncode < 0
    assert prepare(wide(tmp_path / "v"), folder)[1]["state"] == "built"
    assert not list(folder.glob(".build-*"))


def endless(folder: Path) -> Path:
    """Each answer takes 2**40 turns."""
    models.slow(folder)
    model = onnx.load(folder / "model.onnx")
    model.graph.initializer.append(numpy_helper.from_array(np.array(1 << 40, "i8"), "many"))
    for node in model.graph.node:
        if node.op_type == "Loop":
            node.input[0] = "many"
    onnx.save(model, folder / "model.onnx")
    return folder


def test_the_longest_unused_entries_go_when_room_is_short(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    keys = []
    for index in range(3):
        version = models.mlp(tmp_path / f"v{index}", width=128 + index, out=128)
        keys.append(prepare(version, folder)[1]["key"])
    os.utime(folder / keys[1], (1, 1))
    size = sum(path.stat().st_size for path in (folder / keys[0]).iterdir())
    version = models.mlp(tmp_path / "v9", width=140, out=128)
    told = prepare(version, folder, "--max-bytes", str(int(size * 3.5)))[1]
    assert told["pruned"] == [keys[1]]
    assert {path.name for path in folder.iterdir() if len(path.name) == 40} == {keys[0], keys[2], told["key"]}


def floats(*values: float) -> list[list[Output] | str]:
    return [[Output(DATATYPES["FP32"], (len(values),), np.array(values, "f4").tobytes())]]


def test_answers_are_compared_bit_for_bit_then_within_a_tolerance() -> None:
    assert compare(floats(1, 2), floats(1, 2)) == "exact"
    assert compare(floats(1, 2), floats(1, 2.00001)) == "close"
    assert compare(floats(1, 2), floats(1, 2.1)) is None
    assert compare(floats(1, float("nan")), floats(1, float("nan"))) == "exact"
    assert compare(["no"], ["no"]) is None
    assert compare([*floats(1), "no"], [*floats(1), "not"]) == "exact"
    assert compare([*floats(1), "no"], floats(1) * 2) is None
    whole: list[list[Output] | str] = [[Output(DATATYPES["INT64"], (1,), turns(1))]]
    other: list[list[Output] | str] = [[Output(DATATYPES["INT64"], (1,), turns(2))]]
    assert compare(whole, other) is None


def test_the_key_changes_with_everything_that_the_file_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {cache.key_of("a", "cpu"), cache.key_of("b", "cpu"), cache.key_of("a", "cuda")}
    for name in ("runtime", "cpu", "machine"):
        other = cache.basis() | {name: "another"}
        monkeypatch.setattr(cache, "basis", lambda other=other: other)
        keys.add(cache.key_of("a", "cpu"))
    assert len(keys) == 6
