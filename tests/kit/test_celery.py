"""Whoever reads the settings publishes to our broker: a web server's threads and commands as well as Celery."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BROKER = "redis://127.0.0.1:6390/7"
ASK = """
import threading
from celery import current_app
thread = threading.Thread(target=lambda: print(current_app.main, current_app.conf.broker_url))
thread.start()
thread.join()
"""


@pytest.mark.parametrize("start", ["import config.asgi", "import django; django.setup()"])
def test_a_thread_of_every_process_knows_the_broker(start: str, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "config.settings",
        "PILOTHOUSE_HOME": str(tmp_path),
        "REDIS_URL": BROKER,
    }
    asked = subprocess.run(
        [sys.executable, "-c", f"{start}\n{ASK}"],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert asked.stdout.split() == ["pilothouse", BROKER], asked.stderr
