"""Record benchmarks as JSON, a file for each commit, or compare them with another commit.

    ./lab bench record limit trainer --out records
    ./lab bench record limit text --against v0.1.0 --pairs 10

With --against, a work tree of that commit runs each benchmark in turn with this one, so that a busy
machine slows both down. Printed are the median of the ratios of time, here over there, and an
interval of order statistics that covers the median in 95 % of draws. Options of a benchmark follow
its name after a colon: "fig6:--no-torch".
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

from scipy.stats import binom

from attnlab.files.atomic import write_text

ROOT = Path(__file__).resolve().parents[1]
NUMBER = r"([\d,]+(?:\.\d+)?)"
# numbers kept from a benchmark's output: name, unit, and pattern
KEPT = {
    "fig6": {"cold": ("s", rf"^cold: {NUMBER} s"), "warm": ("s", rf"^warm: {NUMBER} s")},
    "joint": {"softmax, 5 queries": ("us", rf"^ +5 softmax +{NUMBER}")},
    "length": {"T = 131,072": ("us", rf"T = 131,072: {NUMBER} us")},
    "limit": {"steps": ("per s", rf"^one core: {NUMBER} steps a second")},
    "text": {
        "tokens": ("per s", rf"^attnlab: {NUMBER} tokens/s"),
        "compilation": ("s", rf"^start and compilation: {NUMBER} s"),
    },
    "trainer": {
        "step of one run": ("ms", rf"^attnlab, .*: {NUMBER} ms"),
        "compilation": ("s", rf"^start and compilation: {NUMBER} s"),
        "PyTorch over attnlab": ("", rf"^ratio: {NUMBER}"),
    },
    "variants": {
        "residual": ("ms", rf"^residual +{NUMBER}"),
        "layer": ("ms", rf"^layer +{NUMBER}"),
        "all": ("ms", rf"^all +{NUMBER}"),
    },
}


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="bench record", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="+", metavar="NAME", help=f"of {', '.join(KEPT)}")
    parser.add_argument("--out", type=Path, default=Path("records"), help="folder of the record")
    parser.add_argument("--against", metavar="COMMIT", help="compare with this commit instead")
    parser.add_argument("--pairs", type=int, default=10)
    given = parser.parse_args(arguments)
    for name in given.names:
        if name.partition(":")[0] not in KEPT:
            parser.error(f"{name}: not recorded; choose one of {', '.join(KEPT)}")
    if given.against and given.pairs < 6:
        parser.error("--pairs: fewer than 6 give no interval of 95 %")
    if given.against:
        compare(given.names, given.against, given.pairs)
    else:
        print(write(given.names, given.out))


def write(names: list[str], out: Path) -> Path:
    """Run benchmarks and write their numbers with commit, machine and versions."""
    commit = git("rev-parse", "HEAD") + ("-dirty" if git("status", "--porcelain") else "")
    found = {
        "commit": commit,
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": {
            "processor": platform.processor() or platform.machine(),
            "cores": os.cpu_count(),
        },
        "versions": {name: version(name) for name in ("jax", "numpy", "torch", "diffrax")},
        "benchmarks": {name: measure(name, ROOT) for name in names},
    }
    path = out / f"{commit[:12]}.json"
    out.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(found, indent=1))
    return path


def compare(names: list[str], commit: str, pairs: int) -> None:
    """Print ratios of time, here over there, of runs in turn."""
    with tempfile.TemporaryDirectory() as folder:
        there = Path(folder, "there")
        git("worktree", "add", "--detach", str(there), commit)
        try:
            for name in names:
                report(name, [(measure(name, there), measure(name, ROOT)) for _ in range(pairs)])
        finally:
            git("worktree", "remove", "--force", str(there))


def report(name: str, found: list[tuple[dict[str, float], dict[str, float]]]) -> None:
    """Print a line for each quantity of a benchmark."""
    for quantity, (unit, _) in KEPT[name.partition(":")[0]].items():
        before, now = ([of[side][quantity] for of in found] for side in (0, 1))
        ratios = [b / a if unit != "per s" else a / b for a, b in zip(before, now, strict=True)]
        low, high = interval(ratios)
        print(
            f"{name}, {quantity}: {statistics.median(before):,.4g} {unit} there, "
            f"{statistics.median(now):,.4g} {unit} here; time here over there "
            f"{statistics.median(ratios):.3f} ({low:.3f} to {high:.3f}, {len(ratios)} pairs)",
            flush=True,
        )


def interval(values: list[float]) -> tuple[float, float]:
    """Return the order statistics between which the median lies with a probability of 95 %."""
    ordered, n = sorted(values), len(values)
    outside = int(binom.ppf(0.025, n, 0.5))
    low = max(outside - 1, 0)
    return ordered[low], ordered[n - 1 - low]


def measure(name: str, root: Path) -> dict[str, float]:
    """Run one benchmark of a work tree and return its numbers."""
    name, _, options = name.partition(":")
    with tempfile.TemporaryDirectory() as cache:
        # an empty compilation cache, so that first calls compile
        environment = os.environ | {"PYTHONPATH": str(root / "src"), "XDG_CACHE_HOME": cache}
        command = [sys.executable, "-m", "benchmarks", name, *options.split()]
        done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{name} in {root}: {done.stderr.strip()[-2000:]}")
    found = {}
    for quantity, (_, pattern) in KEPT[name].items():
        match = re.search(pattern, done.stdout, re.MULTILINE)
        if match is None:
            raise SystemExit(f"{name}: its output has no line for {quantity!r}:\n{done.stdout}")
        found[quantity] = float(match[1].replace(",", ""))
    return found


def git(*words: str) -> str:
    """Return what a git command prints."""
    return subprocess.run(
        ["git", *words], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()
