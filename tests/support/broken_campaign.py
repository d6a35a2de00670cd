"""A campaign against something that breaks in every way, to be run as a process of its own."""

import json
import os
import sys
import time
from pathlib import Path

from torture import process
from torture.campaign import RIGHT, Campaign, Case, judged
from torture.cell import try_cases


def spin():
    while True:
        pass


def refuse(error):
    raise error


WAYS = {
    "right": lambda: RIGHT,
    "refused": lambda: refuse(ValueError("steps: expected a positive number, got -1")),
    "no name": lambda: refuse(ValueError("Maximum allowed size exceeded")),
    "escape": lambda: refuse(ValueError("name: \x1b[2J is not one")),
    "codec": lambda: b"\xff".decode(),
    "key": lambda: {}["steps"],
    "memory": lambda: bytearray(2**40),
    "judge": lambda: refuse(LookupError("what was left")),
    "abort": os.abort,
    "spin": spin,
    "sleep": lambda: time.sleep(1e6),
    "right again": lambda: RIGHT,
}


class Broken(Campaign):
    name, share, cpu_seconds, memory = "broken", 1.0, 1.0, 2**30

    def cases(self, draw):
        return map(Case, WAYS)

    def judge(self, case):
        way = WAYS[case.target]
        return way() if case.target == "judge" else judged(way)


if __name__ == "__main__":
    process.HANG_SECONDS = 1.0
    found = {
        case.target: [verdict.outcome, verdict.words]
        for case, verdict in try_cases(Broken, Path(sys.argv[1]), "0")
    }
    print(json.dumps(found))
