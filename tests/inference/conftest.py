"""Small real models, and a node's supervisor over real plane and worker processes."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from inference.registry import store
from tests.cast import cast
from tests.inference.node import RunningNode

__all__ = ["cast"]

MakeModel = Callable[..., Path]


@pytest.fixture
def make_model(tmp_path: Path) -> MakeModel:
    """`make_model("name", add=1.0)` writes a folder with model.onnx: y = x + add, FP32 [n, 4]."""

    def make(name: str = "model", *, add: float = 1.0, contract: str | None = None) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        write_model(folder / "model.onnx", add=add)
        if contract is not None:
            (folder / "contract.yaml").write_text(contract, encoding="utf-8")
        return folder

    return make


def write_model(path: Path, *, add: float) -> None:
    shape: list[str | int | None] = ["n", 4]
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "add"], ["y"])],
        "add",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(np.array(add, dtype=np.float32), "add")],
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), str(path))


@pytest.fixture(autouse=True)
def own_blobs(settings: object, tmp_path: Path) -> None:
    """Each test has a home of its own, so that it can count blobs."""
    setattr(settings, "HOME", tmp_path / "home")  # noqa: B010  the fixture's type is private to pytest-django


@pytest.fixture
def node(own_blobs: None) -> Iterator[RunningNode]:
    """A supervisor with real plane and workers; everything it started is ended afterwards."""
    # Sockets need short paths; pytest's own folders are long.
    with tempfile.TemporaryDirectory(prefix="ph-node-") as folder:
        running = RunningNode(Path(folder), blobs=store().root)
        yield running
        running.end()
