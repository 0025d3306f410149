"""A service with a stable version, and a CSV as the load tool writes it."""

from pathlib import Path
from typing import Any

import pytest

from console.services.models import Service
from tests import factories
from tests.cast import Cast, cast

__all__ = ["cast"]


def csv_text(*, rows: int = 200, failed: int = 4, milliseconds: float = 10.0) -> str:
    """One request every 50 ms; the durations rise evenly from `milliseconds` to three times that."""
    lines = ["ts,scenario,duration_ns,status"]
    for number in range(rows):
        took = milliseconds * (1 + 2 * number / rows)
        status = "503" if number < failed else "200"
        lines.append(f"{1_700_000_000_000_000_000 + number * 50_000_000},main,{took * 1e6:.0f},{status}")
    return "\n".join([*lines, ""])


@pytest.fixture
def service(cast: Cast) -> Service:
    return factories.stable(1).service


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, settings: Any) -> None:
    settings.HOME = tmp_path
