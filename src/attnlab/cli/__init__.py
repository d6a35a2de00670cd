"""The command line: thin verbs over the package."""

import sys

from attnlab.cli import signals
from attnlab.cli.exit_codes import INTERRUPTED
from attnlab.cli.printing import open_streams


def main() -> None:
    """Run the command line, and answer signals from the first import on."""
    open_streams()
    signals.listen()
    try:
        from attnlab.cli.app import main as run

        run()
    except KeyboardInterrupt:
        print("attnlab: stopped", file=sys.stderr)
        signals.leave()
    except SystemExit as end:
        if end.code == INTERRUPTED:
            signals.leave()
        raise


__all__ = ["main"]
