"""Which real parts this machine lacks, and how loudly that is said.

On a person's machine a test whose part is missing is skipped as DID NOT RUN and listed again at the end;
with CI=true it fails, so that a green pipeline means everything ran.
"""

import os
from collections import Counter
from typing import NoReturn

import pytest

_missing: Counter[tuple[str, str]] = Counter()


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() in {"1", "true", "yes"}


def did_not_run(part: str, remedy: str) -> NoReturn:
    """Give up on the current test because `part` is not on this machine. remedy: what would bring it, as a phrase."""
    if in_ci():
        pytest.fail(f"{part} is missing and CI runs everything: {remedy}", pytrace=False)
    _missing[part, remedy] += 1
    pytest.skip(f"DID NOT RUN: {part} is missing ({remedy})")


def closing_lines() -> list[str]:
    return [
        f"DID NOT RUN: {count} test{'s' if count != 1 else ''} without {part} - {remedy}"
        for (part, remedy), count in sorted(_missing.items())
    ]
