"""The cast for every test of this folder."""

from tests.cast import cast

__all__ = ["cast"]
