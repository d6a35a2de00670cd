"""What the tests of the pages share."""

from commands import call  # noqa: F401
