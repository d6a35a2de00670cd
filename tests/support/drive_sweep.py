"""A driver of the tiny sweep, to be started as a process of its own and killed.

Its groups take `seconds` each, by waiting: what is tested is who does what, not how fast.
"""

import sys
import time
from pathlib import Path

from tiny_sweep import in_groups, tiny

from attnlab.sweep import group, run_in


def main(folder: Path, seconds: float) -> None:
    real = group.simulate

    def slow(*args, **given):
        time.sleep(seconds)
        return real(*args, **given)

    group.simulate = slow
    print(run_in(folder, in_groups(tiny())).computed)


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
