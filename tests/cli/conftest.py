"""What the tests of the command line share."""

from commands import call  # noqa: F401
