"""A verb in a fork and in a new interpreter, to be run as a process of its own."""

import json
import os
import signal
import sys
import time
from pathlib import Path

from torture.__main__ import prepare
from torture.process import start
from torture.verbs import VERBS, Runner


def masks(pid):
    """The signals that a process ignores, blocks and catches."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    found = dict(line.split(":\t") for line in lines if line.startswith("Sig"))
    return {name: int(found[name], 16) for name in ("SigIgn", "SigBlk", "SigCgt")}


def try_verb(folder, cold):
    verb, runner = VERBS["simulate"], Runner(folder)
    process = start(verb.words(runner.given, folder), runner.new_folder(), cold=cold)
    ended = process.wait()
    found = verb.read_back(folder)
    long = start(verb.words(runner.given, folder, longer=True), runner.new_folder(), cold=cold)
    asked = 1 << signal.SIGINT - 1 | 1 << signal.SIGTERM - 1
    while (seen := masks(long.pid))["SigCgt"] & asked != asked:
        time.sleep(0.01)
    os.kill(long.pid, signal.SIGTERM)
    stopped = long.wait()
    return {
        "code": ended.code,
        "values": found.to_dict(),
        "stopped": stopped.code,
        "ignored": seen["SigIgn"],
        "blocked": seen["SigBlk"],
    }


if __name__ == "__main__":
    prepare()
    found = {}
    for way in ("forked", "cold"):
        (folder := Path(sys.argv[1]) / way).mkdir()
        found[way] = try_verb(folder, way == "cold")
    print(json.dumps(found))
