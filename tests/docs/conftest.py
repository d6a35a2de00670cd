"""What the tests of the pages share."""

from commands import call, script  # noqa: F401
