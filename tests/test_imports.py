"""The import contracts of pyproject.toml hold: imports point one way, the plane stands alone."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def test_import_contracts_hold() -> None:
    command = [
        sys.executable,
        "-c",
        "from importlinter.cli import lint_imports_command as run; run()",
        "--no-cache",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "module", ["inference.plane", "inference.protocol", "inference.contract", "inference.graph"]
)
def test_the_plane_starts_without_django_and_the_console(module: str) -> None:
    script = (
        f"import sys, importlib; importlib.import_module({module!r});"
        "print(sorted({name.partition('.')[0] for name in sys.modules} & {'django', 'celery', 'console', 'config'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
