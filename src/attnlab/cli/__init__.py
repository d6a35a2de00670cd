"""The command line: thin verbs over the package."""

from attnlab.cli.app import main

__all__ = ["main"]
