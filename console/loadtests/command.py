"""The load tool's command line for a load test; it ends when this process does."""

import os
import sys
from pathlib import Path

from console.loadtests.models import LoadTest
from console.loadtests.plan import MOST_REQUESTS

# A missed threshold (3) is a result, not a failure.
GOOD_CODES = frozenset({0, 3})


def of(row: LoadTest, *, plane_url: str, csv: Path) -> list[str]:
    plan = row.settings
    return [
        sys.executable, "-m", "console.loadtests.child", str(os.getpid()), "load", "run",
        "--url", plane_url, "--model", row.service,
        "--csv", str(csv), "--json", "--duration", f"{plan['duration_seconds']}s", "--requests", str(MOST_REQUESTS),
    ]  # fmt: skip


def environment(secret: str) -> dict[str, str]:
    return {"PILOTHOUSE_KEY": secret}
