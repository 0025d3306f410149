"""pilothouse serve as a process: one model, nothing else."""

import http.client
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.plane import models
from tests.services.process import Child, free_port, wait_until

ROOT = Path(__file__).resolve().parents[2]
X = {"name": "x", "shape": [1, 16], "datatype": "FP32", "data": [0.5] * 16}


class Served:
    def __init__(self, folder: Path, *arguments: str) -> None:
        self.port = free_port()
        self.log = folder / "serve.log"
        command = [sys.executable, "-m", "inference.plane.serve", "--port", str(self.port), *arguments]
        self.child = Child(command, folder=ROOT, log=self.log)

    def wait(self) -> None:
        self.child.wait_ready(lambda: "is served at" in self.log.read_text(), seconds=40)

    def ask(self, method: str, path: str, body: str | None = None, key: str = "") -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        connection.request(method, path, body, {"Authorization": f"Bearer {key}"} if key else {})
        answer = connection.getresponse()
        told = answer.status, answer.read()
        connection.close()
        return told

    def infer(self, name: str, key: str = "") -> int:
        return self.ask("POST", f"/v2/models/{name}/infer", json.dumps({"inputs": [X]}), key)[0]


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[Served]]:
    running: list[Served] = []
    yield running
    for one in running:
        if one.child.process.poll() is None:
            os.kill(one.child.pid, signal.SIGTERM)
        one.child.process.wait(20)


def workers_of(pid: int) -> list[int]:
    """Not the process that prepares the model's files, which comes and goes beside them."""
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [child for child in children if b"plane.worker" in Path(f"/proc/{child}/cmdline").read_bytes()]


def test_a_model_is_served_with_an_inferred_contract_and_survives_its_worker(
    tmp_path: Path, started: list[Served]
) -> None:
    folder = models.mlp(tmp_path / "m")
    (folder / "contract.yaml").unlink()
    served = Served(tmp_path, "--model-path", str(folder / "model.onnx"), "--name", "tiny")
    started.append(served)
    served.wait()
    text = served.log.read_text()
    assert "--print-contract shows it" in text and "kind: ModelContract" not in text
    assert "no key is needed" in text
    assert served.infer("tiny") == 200
    (worker,) = workers_of(served.child.pid)
    os.kill(worker, signal.SIGKILL)
    assert served.infer("tiny") == 200
    assert "starting it again" in served.log.read_text()
    os.kill(served.child.pid, signal.SIGINT)
    assert served.child.process.wait(20) == 0
    assert served.log.read_text().rstrip().endswith("drained")


def test_a_contract_names_the_model_and_keys_are_asked_for(tmp_path: Path, started: list[Served]) -> None:
    folder = models.mlp(tmp_path / "classifier")
    keys = tmp_path / "keys"
    key = "ph_" + "k" * 24
    keys.write_text(f"# clients\n{key}\n")
    served = Served(
        tmp_path,
        "--model-path", str(folder / "model.onnx"), "--contract", str(folder / "contract.yaml"),
        "--require-key", str(keys), "--replicas", "2", "--print-contract",
    )  # fmt: skip
    started.append(served)
    served.wait()
    text = served.log.read_text()
    assert "kind: ModelContract" in text and "was inferred" not in text
    assert (served.infer("classifier", key), served.infer("classifier")) == (200, 401)
    assert len(workers_of(served.child.pid)) == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--host", "0.0.0.0"], "name keys with --require-key"),
        (["--gpu-id", "0"], "provider cuda was asked for, but this onnxruntime has only"),
        (["--threads", "0"], "--replicas and --threads must be at least 1"),
        (["--provider", "Nonsense"], "provider Nonsense was asked for"),
        (["--require-key", "/nonexistent"], "cannot be read"),
        (["--contract", "wrong.yaml"], "spec.inputs[0].shape"),
    ],
)
def test_what_cannot_be_served_is_said_in_one_sentence(
    tmp_path: Path, started: list[Served], arguments: list[str], words: str
) -> None:
    folder = models.mlp(tmp_path / "m")
    wrong = (folder / "contract.yaml").read_text().replace("[-1, 16]", "[-1, 17]")
    (tmp_path / "wrong.yaml").write_text(wrong)
    arguments = [str(tmp_path / word) if word.endswith(".yaml") else word for word in arguments]
    served = Served(tmp_path, "--model-path", str(folder / "model.onnx"), *arguments)
    started.append(served)
    assert served.child.process.wait(30) == 2
    assert words in served.log.read_text() and "Traceback" not in served.log.read_text()


def test_a_port_in_use_is_said(tmp_path: Path, started: list[Served]) -> None:
    folder = models.mlp(tmp_path / "m")
    first = Served(tmp_path, "--model-path", str(folder / "model.onnx"))
    started.append(first)
    first.wait()
    second = Served(tmp_path, "--model-path", str(folder / "model.onnx"), "--port", str(first.port))
    started.append(second)
    wait_until(lambda: second.child.process.poll() is not None, seconds=30, what="the second to end")
    assert second.child.process.returncode == 2
    assert f"port {first.port} on 127.0.0.1 is in use" in second.log.read_text()
