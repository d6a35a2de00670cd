"""A driver of the tiny sweep, to be started as a process of its own and killed.

It computes a number of groups, then holds the next one until the file `gate` is there: the tests
ask who does what, not how fast.
"""

import sys
import time
from itertools import count
from pathlib import Path

from tiny_sweep import in_groups, tiny

from attnlab.sweeping import group, run_in


def main(folder: Path, groups: int, gate: Path) -> None:
    real, begun = group.simulate, count()

    def slow(*args, **given):
        if next(begun) >= groups:
            while not gate.exists():
                time.sleep(0.02)
        return real(*args, **given)

    group.simulate = slow
    print(run_in(folder, in_groups(tiny())).computed)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
