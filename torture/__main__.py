"""`python -m torture [CAMPAIGN...] [--minutes N] [--seed S]`: a hostile campaign, and its table."""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

NAMES = (
    "parsers",
    "checkpoints",
    "damage",
    "kills",
    "disks",
    "extremes",
    "outputs",
    "theories",
    "signals",
    "twins",
)
# Imported before any fork; JAX itself begins only when it is first used.
MODULES = (
    "jax",
    "diffrax",
    "h5netcdf",
    "safetensors.numpy",
    "typer._adapters",
    "attnlab.cli",
    "attnlab.sweeping",
    "attnlab.simulation.trainer",
    "attnlab.report",
)
OUTCOMES = ("right", "refused", "bad")


@dataclass
class Tally:
    """What came of the cases put to one target."""

    counts: Counter[str] = field(default_factory=Counter)
    kept: list[str] = field(default_factory=list)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="torture", description=__doc__)
    parser.add_argument(
        "campaigns", nargs="*", metavar="CAMPAIGN[:TRIES]", help=f"{', '.join(NAMES)}; default all"
    )
    parser.add_argument("--minutes", type=float, default=5.0, help="for all of it (5)")
    parser.add_argument("--seed", type=int, default=0, help="of the random numbers (0)")
    parser.add_argument("--out", type=Path, default=Path("out/torture"), help="for failing inputs")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="try a kept input again")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args(arguments)
    tries = dict(_name_and_tries(parser, text) for text in options.campaigns or NAMES)
    prepare()
    # not a TemporaryDirectory, which each child of a fork would remove at its end
    folder = Path(tempfile.mkdtemp(prefix="attnlab-torture-"))
    try:
        if options.replay is not None:
            return _replay(options.replay, folder)
        tallies: dict[str, Tally] = {}
        with suppress(KeyboardInterrupt):  # what was tried is told
            _run(tries, options, folder, tallies)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if options.json:
        found = {name: {**tally.counts, "kept": tally.kept} for name, tally in tallies.items()}
        print(json.dumps(found, indent=1))
    else:
        _print_table(tallies)
    return int(any(tally.counts["bad"] for tally in tallies.values()))


def _name_and_tries(parser: argparse.ArgumentParser, text: str) -> tuple[str, float]:
    name, _, tries = text.partition(":")
    if name not in NAMES or not (tries.isdecimal() or not tries):
        parser.error(f"{text!r} is no campaign; give {', '.join(NAMES)}, or one as parsers:1000")
    return name, float(tries or "inf")


def prepare() -> None:
    """Import what cells will need, while JAX has not started: children of a fork begin at once."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "attnlab" / "torture"
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache))
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["EQX_ON_ERROR"] = "nan"
    os.environ["COLUMNS"] = "120"
    for name in MODULES:
        import_module(name)
    gc.collect()
    gc.freeze()  # else a child's end would go through all that was imported


def _campaign(name: str) -> Any:
    return getattr(import_module(f"torture.{name}"), name.capitalize())


def _run(
    tries: dict[str, float], options: argparse.Namespace, folder: Path, tallies: dict[str, Tally]
) -> None:
    from torture.cell import try_cases

    chosen = [(_campaign(name), most) for name, most in tries.items()]
    whole = sum(campaign.share for campaign, _ in chosen)
    for campaign, most in chosen:
        until = time.monotonic() + 60 * options.minutes * campaign.share / whole
        progress, tried, bad = _Progress(campaign.name), 0, 0
        cases = try_cases(campaign, folder / campaign.name, f"{options.seed} {campaign.name}")
        for case, verdict in cases:
            tally = tallies.setdefault(f"{campaign.name}: {case.target}", Tally())
            tally.counts[verdict.outcome] += verdict.tries
            tried += verdict.tries
            if verdict.outcome == "bad":
                bad += verdict.tries
                tally.kept.append(_keep(options.out, campaign.name, case, verdict.words))
            progress.tell(tried, bad)
            if time.monotonic() > until or tried >= most:
                break
        else:
            progress.say(f"all of the {tried:,} that there are")
        cases.close()


class _Progress:
    """A line on stderr now and then."""

    def __init__(self, name: str) -> None:
        self.name, self.said = name, time.monotonic()

    def tell(self, tried: int, bad: int) -> None:
        if time.monotonic() - self.said > (1 if sys.stderr.isatty() else 10):
            self.say(f"{tried} tried; {bad} bad so far")

    def say(self, words: str) -> None:
        print(f"{self.name}: {words}", file=sys.stderr, flush=True)
        self.said = time.monotonic()


def _keep(out: Path, campaign: str, case: Any, words: str) -> str:
    """Write down a case that went badly: as a file of its own where it is one."""
    from torture.campaign import written

    out.mkdir(parents=True, exist_ok=True)
    kept = {"campaign": campaign, "why": words, **written(case)}
    for number in count():
        path = out / f"{campaign}-{number:04d}.json"
        with suppress(FileExistsError), open(path, "x") as file:  # replaces nothing
            json.dump(kept, file, indent=1)
            break
    if case.data:
        path.with_suffix(".input").write_bytes(case.data)
    again = f"python -m torture --replay {path}"
    print(f"bad: {case.target}: {words[:300]}\n  {again}", file=sys.stderr, flush=True)
    return str(path)


def _replay(path: Path, folder: Path) -> int:
    from torture.campaign import case_from
    from torture.cell import try_one

    document = json.loads(path.read_text())
    campaign = _campaign(document.pop("campaign"))
    document.pop("why")
    verdict = try_one(campaign, folder / "replay", case_from(document))
    print(f"{verdict.outcome}: {verdict.words}" if verdict.words else verdict.outcome)
    return int(verdict.outcome == "bad")


def _print_table(tallies: dict[str, Tally]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("", "tried", "right", "refused cleanly", "bad", box=None, header_style="bold")
    for column in table.columns[1:]:
        column.justify = "right"
    total: Counter[str] = Counter()
    for name, tally in tallies.items():
        total += tally.counts
        table.add_row(name, *_row(tally.counts))
    table.add_row("all", *_row(total), style="bold")
    Console(highlight=False).print(table)


def _row(counts: Counter[str]) -> list[str]:
    return [f"{sum(counts.values()):,}", *(f"{counts[outcome]:,}" for outcome in OUTCOMES)]


if __name__ == "__main__":
    sys.exit(main())
