"""Fixtures of the tests of the command line."""

from commands import call  # noqa: F401
