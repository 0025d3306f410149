"""A service with a stable version, in a home of its own."""

from pathlib import Path
from typing import Any

import pytest

from console.services.models import Service
from tests import factories
from tests.cast import Cast, cast

__all__ = ["cast"]


@pytest.fixture
def service(cast: Cast) -> Service:
    return factories.stable(1).service


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, settings: Any) -> None:
    settings.HOME = tmp_path
