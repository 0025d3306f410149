"""How ONNX Runtime is asked for; what needs a device is checked up to the device."""

from pathlib import Path

import pytest

from inference.plane import cpus
from inference.plane.runtimes import LoadError, Options, without_folders
from inference.plane.runtimes.onnx import load, provider_options, session_options, verify
from tests.plane import models


def test_cuda_is_asked_for_with_every_safety() -> None:
    options = Options(provider="cuda", gpu_id=3, gpu_memory_bytes=2 << 30)
    assert provider_options(options, "CUDAExecutionProvider") == {
        "device_id": "3",
        "arena_extend_strategy": "kSameAsRequested",
        "cudnn_conv_algo_search": "HEURISTIC",
        "gpu_mem_limit": str(2 << 30),
    }
    settings = session_options(options, "CUDAExecutionProvider")
    assert settings.get_session_config_entry("session.disable_cpu_ep_fallback") == "1"


def test_threads_are_bounded_and_do_not_spin() -> None:
    settings = session_options(Options(threads=2), "CPUExecutionProvider")
    assert (settings.intra_op_num_threads, settings.inter_op_num_threads) == (2, 1)
    assert settings.get_session_config_entry("session.intra_op.allow_spinning") == "0"


def test_a_provider_that_was_quietly_replaced_is_an_error() -> None:
    verify("CUDAExecutionProvider", ["CUDAExecutionProvider", "CPUExecutionProvider"])
    with pytest.raises(LoadError, match="CUDAExecutionProvider was asked for, but the session runs on CPU"):
        verify("CUDAExecutionProvider", ["CPUExecutionProvider"])


def test_a_provider_that_is_not_installed_is_an_error_with_what_is(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"provider tensorrt was asked for.*CPUExecutionProvider"):
        load(models.mlp(tmp_path / "m") / "model.onnx", Options(provider="tensorrt"), lambda _: None)


def test_a_load_failure_names_files_without_their_folder(tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    (folder / "model.onnx").write_bytes(b"not a graph")
    with pytest.raises(LoadError, match=r"model\.onnx") as caught:
        load(folder / "model.onnx", Options(provider="cpu"), lambda _: None)
    assert str(tmp_path) not in str(caught.value) and "/" not in str(caught.value)
    models.mlp(folder / "mlp")
    with pytest.raises(LoadError) as caught:
        load(folder / "mlp" / "gone.onnx", Options(provider="cpu"), lambda _: None)
    assert str(tmp_path) not in str(caught.value)


def test_other_peoples_folders_are_dropped_too() -> None:
    text = (
        "cannot open /opt/x/lib.so.9 for '/srv/node/versions/ab/model.onnx' or"
        ' "/srv/node/versions/ab/w.bin"; see https://example.test/a/b, 1/2'
    )
    assert without_folders(text, Path("/srv/node/versions/ab")) == (
        "cannot open lib.so.9 for 'model.onnx' or \"w.bin\"; see https://example.test/a/b, 1/2"
    )


@pytest.mark.parametrize(("text", "cores"), [("50000 100000", 0.5), ("max 100000", None), ("rubbish", None)])
def test_the_cgroups_quota_counts(tmp_path: Path, text: str, cores: float | None) -> None:
    (tmp_path / "cpu.max").write_text(text)
    assert cpus.available(tmp_path) == (cores if cores is not None else cpus.available(tmp_path / "none"))
    assert cpus.threads_for(10_000) == 1
