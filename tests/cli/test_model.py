"""`pilothouse model` against a running console: what is registered is what was on the disk."""

import json
from pathlib import Path
from typing import Any

import pytest
from onnx import TensorProto, helper, save_model
from pytest_django.live_server_helper import LiveServer

from console.cli.main import run
from inference.models import Version
from tests.cast import Cast, make_cast

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def house(live_server: LiveServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cast:
    cast = make_cast()
    token = cast.token("models:write", maker=cast.ada)
    monkeypatch.setenv("PILOTHOUSE_URL", live_server.url)
    monkeypatch.setenv("PILOTHOUSE_TOKEN", token.secret)
    return cast


def graph(path: Path, *, width: int = 4) -> Path:
    """A graph that doubles its input."""
    path.parent.mkdir(parents=True, exist_ok=True)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", width])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", width])
    node = helper.make_node("Add", ["x", "x"], ["y"])
    model = helper.make_model(
        helper.make_graph([node], "double", [x], [y]), opset_imports=[helper.make_opsetid("", 17)]
    )
    model.ir_version = 10
    save_model(model, str(path))
    return path


def printed(capsys: Capture) -> Any:
    return json.loads(capsys.readouterr().out)


def test_a_file_is_registered_listed_and_shown(house: Cast, tmp_path: Path, capsys: Capture) -> None:
    path = graph(tmp_path / "double.onnx")
    assert run(["model", "register", str(path), "--name", "double", "--note", "first"]) == 0
    assert "double:1 is registered" in capsys.readouterr().out
    assert run(["model", "register", str(path), "--name", "double", "--parent", "1"]) == 0
    assert "pilothouse rollout start double --version 2" in capsys.readouterr().out
    assert [v.created_by for v in Version.objects.all()] == ["token:ci", "token:ci"]

    assert run(["model", "list"]) == 0
    line = capsys.readouterr().out.splitlines()[1]
    assert line.split() == ["double", "platform", "1", "2", "1:100%"]
    assert run(["model", "show", "double"]) == 0
    assert "first" in capsys.readouterr().out
    assert run(["model", "show", "double:1"]) == 0
    out = capsys.readouterr().out
    assert "version: double:1" in out
    assert "platform: onnx" in out
    assert run(["model", "show", "double:1", "--json"]) == 0
    assert printed(capsys)["signature"]["inputs"][0]["name"] == "x"


def test_a_folder_brings_its_contract_and_its_files(house: Cast, tmp_path: Path, capsys: Capture) -> None:
    folder = tmp_path / "model"
    graph(folder / "any-name.onnx")
    (folder / "labels.txt").write_text("a\nb\nc\nd\n")
    (folder / "contract.yaml").write_text(
        "apiVersion: pilothouse.dev/v1\nkind: ModelContract\nmetadata: {name: double, version: '1'}\n"
        "spec:\n  platform: onnx\n"
        "  inputs: [{name: x, datatype: FP32, shape: [-1, 4], minimum: 0}]\n"
        "  outputs: [{name: y, datatype: FP32, shape: [-1, 4], labels: labels.txt}]\n"
    )
    assert run(["model", "register", str(folder), "--name", "double", "--json"]) == 0
    made = printed(capsys)
    assert {file["path"] for file in made["files"]} >= {"model.onnx", "labels.txt"}
    assert made["contract"]["spec"]["inputs"][0]["minimum"] == 0


def test_the_same_key_registers_once(house: Cast, tmp_path: Path, capsys: Capture) -> None:
    path = graph(tmp_path / "double.onnx")
    command = ["model", "register", str(path), "--name", "double", "--key", "build-7", "--json"]
    assert run(command) == 0
    first = printed(capsys)
    assert run(command) == 0
    assert printed(capsys) == first
    assert Version.objects.count() == 1


def test_a_contract_that_contradicts_the_graph_is_refused(
    house: Cast, tmp_path: Path, capsys: Capture
) -> None:
    path = graph(tmp_path / "double.onnx")
    contract = tmp_path / "wrong.yaml"
    contract.write_text(
        "apiVersion: pilothouse.dev/v1\nkind: ModelContract\nmetadata: {name: double, version: '1'}\n"
        "spec:\n  platform: onnx\n"
        "  inputs: [{name: x, datatype: INT64, shape: [-1, 4]}]\n"
        "  outputs: [{name: y, datatype: FP32, shape: [-1, 4]}]\n"
    )
    command = ["model", "register", str(path), "--name", "double", "--contract", str(contract)]
    assert run(command) == 1
    err = capsys.readouterr().err
    assert "inputs" in err
    assert "Traceback" not in err
    assert not Version.objects.exists()


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({}, "exactly one .onnx"),
        ({"a.onnx": b"", "b.onnx": b""}, "exactly one .onnx"),
        ({"model.onnx": b"", "sub/x": b""}, "not a plain file"),
    ],
)
def test_a_folder_that_is_no_model_never_leaves_the_machine(
    tmp_path: Path, capsys: Capture, files: dict[str, bytes], sentence: str
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    assert run(["model", "register", str(folder), "--name", "x"]) == 1
    assert sentence in capsys.readouterr().err


def test_a_link_in_the_folder_is_not_followed(tmp_path: Path, capsys: Capture) -> None:
    folder = tmp_path / "model"
    graph(folder / "model.onnx")
    secret = tmp_path / "secret"
    secret.write_text("private")
    (folder / "weights.data").symlink_to(secret)
    assert run(["model", "register", str(folder), "--name", "x"]) == 1
    assert "not a plain file" in capsys.readouterr().err


def test_what_is_no_graph_is_refused_with_the_reason(house: Cast, tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "noise.onnx"
    path.write_bytes(b"this is no graph")
    assert run(["model", "register", str(path), "--name", "double"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("Error: ")
    assert "Traceback" not in err


def test_an_unknown_model_and_a_wrong_number(house: Cast, capsys: Capture) -> None:
    assert run(["model", "show", "ghost"]) == 1
    assert run(["model", "show", "ghost:1"]) == 1
    assert run(["model", "show", "ghost:one"]) == 2
    assert run(["model", "list"]) == 0
    assert "no models yet" in capsys.readouterr().out
