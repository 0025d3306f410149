"""One node with every small model, shared by the tests that only ask; tests that break things start their own."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import magika
import pytest

from inference.protocol import QuotaSpec
from tests.plane import models
from tests.plane.parts import Node

MAGIKA = Path(magika.__file__).parent / "models" / "standard_v3_3"
FILE_TYPE = """\
apiVersion: pilothouse.dev/v1
kind: ModelContract
metadata: {name: file-type}
spec:
  inputs:
    - {name: bytes, datatype: INT32, shape: [-1, 2048], minimum: 0, maximum: 256}
  outputs:
    - {name: target_label, datatype: FP32, shape: [-1, 214], labels: labels.txt}
  hooks:
    preprocess: {kind: byte_windows, input: file, output: bytes, begin: 1024, end: 1024, pad: 256, strip: true}
    postprocess: {kind: top_label, input: target_label, labels: labels.txt}
  parameters: {batching: {max_batch_size: 16}, inference_timeout_ms: 20000}
"""


def file_type(folder: Path) -> Path:
    folder.mkdir(parents=True)
    shutil.copy(MAGIKA / "model.onnx", folder)
    config = json.loads((MAGIKA / "config.min.json").read_text())
    (folder / "labels.txt").write_text("\n".join(config["target_labels_space"]) + "\n")
    (folder / "contract.yaml").write_text(FILE_TYPE)
    return folder


@pytest.fixture(scope="session")
def shared_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    base = tmp_path_factory.mktemp("models")
    folder = tmp_path_factory.mktemp("node")
    versions = {
        ("mlp", 1): models.mlp(base / "mlp"),
        ("three", 1): models.three_inputs(base / "three"),
        ("lookup", 1): models.lookup(base / "lookup"),
        ("image", 1): models.image(base / "image"),
        ("file-type", 1): file_type(base / "file-type"),
    }
    services = [service for service, _ in versions]
    quotas = tuple(QuotaSpec("acme", service, None, None, None) for service in services)
    node = Node(folder, versions, quotas=quotas)
    try:
        yield node.start()
    finally:
        node.stop()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """An empty node of its own."""
    fresh = Node(tmp_path)
    try:
        yield fresh
    finally:
        fresh.stop()
