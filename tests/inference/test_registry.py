"""Taking models in: one blob for the same bytes, and what hostile folders are told."""

import io
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from console.kit.errors import Conflict, Forbidden, Invalid, NotFound
from console.tenants.permissions import SYSTEM
from inference.actions import register_version
from inference.blobs import BlobDamaged, BlobStore, contract_bytes, materialise
from inference.models import Alias, Placement, Version
from inference.protocol import FileRef, VersionSpec
from inference.registry import store, take_in
from tests.cast import Cast
from tests.inference.conftest import MakeModel, write_model

pytestmark = pytest.mark.django_db


def blobs() -> list[Path]:
    return sorted(path for path in (store().root / "sha256").glob("*/*") if path.is_file())


def leftovers() -> list[Path]:
    incoming = store().root / "incoming"
    return list(incoming.iterdir()) if incoming.exists() else []


def test_the_first_version_becomes_stable_with_all_traffic(cast: Cast, make_model: MakeModel) -> None:
    version = register_version(
        "adder", make_model(), tenant=cast.platform, actor=cast.ada.actor, note="first"
    )
    assert version.number == 1
    placement = Placement.objects.get(version=version)
    assert (placement.role, placement.weight_percent) == ("stable", 100)
    assert Alias.objects.get(name="stable").version == version
    assert version.signature["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]
    assert version.contract["spec"]["inputs"][0]["name"] == "x"


def test_later_versions_take_no_traffic(cast: Cast, make_model: MakeModel) -> None:
    for name in ("one", "two"):
        register_version("adder", make_model(name), tenant=cast.platform, actor=cast.ada.actor)
    assert [version.number for version in Version.objects.order_by("number")] == [1, 2]
    assert Placement.objects.count() == 1


def test_the_same_bytes_twice_are_one_blob(cast: Cast, make_model: MakeModel) -> None:
    first = register_version("adder", make_model("one"), tenant=cast.platform, actor=cast.ada.actor)
    second = register_version("adder", make_model("two"), tenant=cast.platform, actor=cast.ada.actor)
    assert len(blobs()) == 1
    assert first.digest == second.digest
    assert not leftovers()


def test_a_single_file_is_taken_as_the_graph(cast: Cast, tmp_path: Path) -> None:
    write_model(tmp_path / "anything.onnx", add=1.0)
    taken = take_in(tmp_path / "anything.onnx", name="adder")
    assert [ref.path for ref in taken.files] == ["model.onnx"]
    assert taken.inferred


def with_symlink(folder: Path) -> str:
    (folder / "secret").symlink_to("/etc/passwd")
    return "secret"


def with_hard_link(folder: Path) -> str:
    (folder.parent / "outside.bin").write_bytes(b"x")
    os.link(folder.parent / "outside.bin", folder / "inside.bin")
    return "inside.bin"


def with_linked_folder(folder: Path) -> str:
    (folder / "weights").symlink_to("/etc")
    return "weights"


def with_pipe(folder: Path) -> str:
    os.mkfifo(folder / "pipe")
    return "pipe"


def with_dot_file(folder: Path) -> str:
    (folder / ".git").write_text("x")
    return ".git"


def with_strange_name(folder: Path) -> str:
    (folder / "a b;c").write_text("x")
    return "a b;c"


def with_reserved_name(folder: Path) -> str:
    (folder / "contract.json").write_text("{}")
    return "contract.json"


def with_deep_folders(folder: Path) -> str:
    (folder / "a/b/c/d/e").mkdir(parents=True)
    return "a/b/c/d"


@pytest.mark.parametrize(
    "spoil",
    [
        with_symlink,
        with_hard_link,
        with_linked_folder,
        with_pipe,
        with_dot_file,
        with_strange_name,
        with_reserved_name,
        with_deep_folders,
    ],
)
def test_a_hostile_folder_is_refused_by_name_and_leaves_nothing(
    make_model: MakeModel, spoil: Callable[[Path], str]
) -> None:
    folder = make_model()
    name = spoil(folder)
    with pytest.raises(Invalid) as refused:
        take_in(folder, name="adder")
    assert list(refused.value.fields) == [name]
    assert not blobs()
    assert not leftovers()


def test_too_many_bytes_are_refused_while_they_are_copied(make_model: MakeModel) -> None:
    with pytest.raises(Invalid) as refused:
        take_in(make_model(), name="adder", most_bytes=10)
    assert refused.value.fields == {"model.onnx": "past the size limit"}
    assert not leftovers()


def test_what_is_no_graph_is_refused(make_model: MakeModel) -> None:
    folder = make_model()
    (folder / "model.onnx").write_bytes(b"not a graph")
    with pytest.raises(Invalid) as refused:
        take_in(folder, name="adder")
    assert "model.onnx" in refused.value.fields


def test_a_folder_without_a_graph_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(Invalid, match=r"no \.onnx file"):
        take_in(tmp_path / "empty", name="adder")


def test_a_contract_that_contradicts_the_graph_is_refused_by_field(make_model: MakeModel) -> None:
    contract = """
apiVersion: pilothouse.dev/v1
kind: ModelContract
metadata: {name: adder}
spec:
  inputs: [{name: x, datatype: INT32, shape: [-1, 4]}]
  outputs: [{name: y, datatype: FP32, shape: [-1, 4]}]
"""
    with pytest.raises(Invalid) as refused:
        take_in(make_model(contract=contract), name="adder")
    assert list(refused.value.fields) == ["spec.inputs[0].datatype"]


def test_a_given_contract_wins_over_the_folders_own(make_model: MakeModel) -> None:
    folder = make_model(contract="not: a contract")
    written = """
apiVersion: pilothouse.dev/v1
kind: ModelContract
metadata: {name: adder}
spec:
  inputs: [{name: x, datatype: FP32, shape: [-1, 4]}]
  outputs: [{name: y, datatype: FP32, shape: [-1, 4]}]
  resources: {replicas: 3}
"""
    taken = take_in(folder, name="adder", contract=written)
    assert taken.contract["spec"]["resources"]["replicas"] == 3
    assert not taken.inferred


def test_ben_may_not_register_and_cleo_does_not_learn_that_the_service_exists(
    cast: Cast, make_model: MakeModel
) -> None:
    folder = make_model()
    register_version("adder", folder, tenant=cast.platform, actor=cast.ada.actor)
    with pytest.raises(Forbidden):
        register_version("adder", folder, tenant=cast.platform, actor=cast.ben.actor)
    with pytest.raises(NotFound):
        register_version("other", folder, tenant=cast.platform, actor=cast.cleo.actor)
    with pytest.raises(Conflict, match="taken"):
        register_version("adder", folder, tenant=cast.strange, actor=cast.cleo.actor)


@pytest.mark.parametrize("name", ["", "a/b", "../x", "stats", "-x", "x" * 256])
def test_names_that_cannot_be_addresses_are_refused(cast: Cast, make_model: MakeModel, name: str) -> None:
    with pytest.raises(Invalid):
        register_version(name, make_model(), tenant=cast.platform, actor=SYSTEM)


def spec_of(folder: Path) -> VersionSpec:
    taken = take_in(folder, name="adder")
    return VersionSpec(1, taken.digest, taken.files, taken.contract, 1, 100)


def test_materialise_makes_a_read_only_folder_and_repeats_for_free(
    make_model: MakeModel, tmp_path: Path
) -> None:
    spec = spec_of(make_model())
    made = materialise(spec, tmp_path / "versions", store(), contract_bytes(spec.contract))
    before = (made / "model.onnx").stat()
    again = materialise(spec, tmp_path / "versions", store(), contract_bytes(spec.contract))
    assert again == made
    assert (made / "model.onnx").stat().st_mtime_ns == before.st_mtime_ns
    assert before.st_mode & 0o777 == 0o400
    assert before.st_nlink == 1, "a copy: whoever reaches it must not reach the blob"


def test_materialise_makes_a_damaged_folder_anew(make_model: MakeModel, tmp_path: Path) -> None:
    spec = spec_of(make_model())
    made = materialise(spec, tmp_path / "versions", store(), contract_bytes(spec.contract))
    (made / "model.onnx").chmod(0o600)
    (made / "model.onnx").write_bytes(b"\0" * spec.files[0].size)
    made = materialise(spec, tmp_path / "versions", store(), contract_bytes(spec.contract))
    assert (made / "model.onnx").read_bytes() == store().path(spec.files[0].sha256).read_bytes()


def test_a_blob_with_other_bytes_is_never_laid_out(make_model: MakeModel, tmp_path: Path) -> None:
    spec = spec_of(make_model())
    blob = store().path(spec.files[0].sha256)
    blob.chmod(0o600)
    blob.write_bytes(b"\0" * spec.files[0].size)
    with pytest.raises(BlobDamaged):
        materialise(spec, tmp_path / "versions", store(), contract_bytes(spec.contract))
    assert not list((tmp_path / "versions").iterdir()), "nothing half-made stays"


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", ".x", "a//b", "contract.json"])
def test_materialise_refuses_paths_that_leave_the_folder(tmp_path: Path, path: str) -> None:
    digest = BlobStore(tmp_path / "b").put(io.BytesIO(b"x"))
    spec = VersionSpec(1, "d" * 64, (FileRef(path, digest.sha256, digest.size),), {}, 1, 100)
    with pytest.raises(BlobDamaged):
        materialise(spec, tmp_path / "versions", BlobStore(tmp_path / "b"), b"{}")
