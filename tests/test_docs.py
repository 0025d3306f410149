"""What users may set, read, call and type has a line in docs/reference.md, and every promise there exists."""

import re

import pytest

from console.cli.main import pilothouse
from tests.promises import ROOT, commands, endpoints, metrics_exposed, settings_read

REFERENCE = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(settings_read()))
def test_every_setting_is_documented(name: str) -> None:
    assert f"`{name}`" in REFERENCE


@pytest.mark.parametrize("name", sorted(metrics_exposed()))
def test_every_metric_is_documented(name: str) -> None:
    assert f"`{name}" in REFERENCE


def test_every_rest_endpoint_is_documented() -> None:
    missing = [endpoint for endpoint in endpoints() if f"`{endpoint}`" not in REFERENCE]
    assert not missing, "\n".join(missing)


def test_every_documented_endpoint_exists() -> None:
    promised = re.findall(r"`((?:GET|POST|PUT|PATCH|DELETE) /api/v1/[^`]*)`", REFERENCE)
    gone = sorted(set(promised) - set(endpoints()) - {"GET /api/v1/schema"})
    assert not gone, "\n".join(gone)


def test_every_command_is_documented() -> None:
    missing = [path for path in commands(pilothouse, "pilothouse") if f"`{path}" not in REFERENCE]
    assert not missing, "\n".join(missing)


def test_every_file_the_documents_point_at_exists() -> None:
    broken = [
        f"{document.name}: {target}"
        for document in (ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").glob("*.md"))
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text(encoding="utf-8"))
        if not (document.parent / target).exists()
    ]
    assert not broken, "\n".join(broken)
