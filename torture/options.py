"""Command lines with one hostile option. Everything is real but the work itself."""

from __future__ import annotations

import io
import json
import os
import sys
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from pathlib import Path
from random import Random
from unittest.mock import patch

from torture.campaign import REFUSED, RIGHT, Case, Verdict, bad, clean_words, refusal
from torture.mutate import HOSTILE_TEXT
from torture.verbs import TEXT

BAD_INPUT, GIVEN_UP = 2, 3  # exit codes
NOT_NUMBERS = (
    "nan",
    "inf",
    "-inf",
    "-1",
    "1e400",
    "x",
    "",
    "true",
    "None",
    "[1]",
    "1;2",
    "\x1b[2J",
)
INFINITE = ("inf", "1e400")
NO_FILES = ("nowhere.yaml", "loop.yaml", "fifo.yaml", "/dev/zero", "x" * 300, "\udcff")
# By kind of option: what must be refused, and what may be.
KINDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "number": (NOT_NUMBERS, ("0", "1e-320", "1e-30", "1e30", "1e300", " 1", "1_0", "9" * 400)),
    "whole": ((*NOT_NUMBERS, "1.5", "1e3"), ("0", "2147483648", "9" * 30, "9" * 5000, "1_0")),
    "list": ((*NOT_NUMBERS, "1,", ",", "1,,2", "1,nan", "1,-1"), ("0", "1e300", "1,1", "2,1")),
    # the largest of something, where infinity is none at all
    "bound": (tuple(text for text in NOT_NUMBERS if text not in INFINITE), (*INFINITE, "1e30")),
    "word": ((*HOSTILE_TEXT, "x"), ()),
    "output": (("", "/", "/nowhere/x.nc", "x\0.nc", f"{'x' * 300}.nc", "x.exe", "."), ()),
    "place": (("/dev/null", "/dev/null/x", "x\0", "x" * 300), ("loop.yaml", "", ".")),
    "folder": (NO_FILES, ("", ".", "/")),
    "input": ((*NO_FILES, "", "/"), ()),
}
# What each verb accepts, and of which kind it is. Those with ! are always given.
VERBS: dict[str, tuple[str, ...]] = {
    "simulate": (
        "CLASSES=syn-small:input",
        "motion=steps:word",
        "gradient=batches:word",
        "eta-y=1,2:list",
        "eta-z=0.5:list",
        "steps=10:whole",
        "time=10:number",
        "length=8:bound",
        "batch-size=4:whole",
        "training-set=20:whole",
        "prior=0.7,0.3:list",
        "normalization=rms:word",
        "heads=2:whole",
        "combine=average:word",
        "position=alibi:0.5:word",
        "optimizer=sgd:word",
        "weight-decay=0.1:number",
        "momentum=0.5:number",
        "init=uniform:word",
        "seeds=2:whole",
        "seed=3:whole",
        "what=attention,loss:word",
        "every=2:whole",
        "geometric=5:whole",
        "at=0,5:list",
        "dtype=float64:word",
        "out=x.nc:output",
        "plot=x.png:output",
    ),
    "sweep": (
        "RECIPE=sweep.json:input",
        "workers=2:whole",
        "executor=local:word",
        "memory-budget=1M:number",
        "cpus-per-task=1:number",
        "gpus-per-task=0:number",
        "dry-run!=:flag",
    ),
    "sweep status": ("DIR=.:folder",),
    "audit": (
        "CLASSES=syn-small:input",
        "eta-y=1:number",
        "eta-z=0.1:number",
        "steps=100:whole",
        "claim=theorem-2:word",
        "html=x.html:output",
    ),
    "text train": (
        "CORPUS=text.txt:input",
        "out!=run:place",
        "vocab-size=50:whole",
        "tokens=word:word",
        "layers=1:whole",
        "heads=2:whole",
        "dim=8:whole",
        "mlp=8:whole",
        "norm=pre:word",
        "positions=alibi:word",
        "dropout=0.1:number",
        "length!=4:whole",
        "learning-rate=1,2:list",
        "seeds=2:whole",
        "steps=10:whole",
        "optimizer=adam:word",
        "batch-size=2:whole",
        "clip=0.5:number",
        "every=5:whole",
        "validation-tokens=40:whole",
        "probes=1:whole",
        "precision=default:word",
    ),
    "text classes": (
        "CORPUS=text.txt:input",
        "out!=c.yaml:output",
        "queries!=1:whole",
        "next!=2:whole",
        "context!=6:whole",
        "min-count!=2:whole",
        "vocab-size=50:whole",
    ),
    "text agreement": (
        "CORPUS=text.txt:input",
        "queries!=1:whole",
        "next!=2:whole",
        "context!=6:whole",
        "min-count!=2:whole",
        "eta-y=1:number",
        "eta-z=1:number",
        "steps=5:whole",
        "seeds=1:whole",
        "top=2:whole",
        "plot=x.png:output",
    ),
    "reproduce": ("NAME=length:word", "seeds=4:whole", "recipes=.:folder", "out=figures:place"),
    "play": ("CLASSES=syn-small:input", "port=5006:whole"),
    "cite": ("FILE=joma:word",),
}
# Where the work of a verb begins.
WORK = (
    ("attnlab.simulation.trainer", "answering"),
    ("attnlab.auditing.audited_run", "simulate"),
    ("attnlab.auditing", "examine_all"),
    ("attnlab.report.make", "find_or_run"),
    ("attnlab.playground.server", "serve"),
)


class Accepted(BaseException):
    """What stands where the work would begin."""


def prepare_options(folder: Path) -> None:
    """Make the files that the options name, and go where they are."""
    import attnlab.auditing.audited_run
    import attnlab.papers.scan_and_snap.agreement
    import attnlab.playground.server
    import attnlab.report.make  # noqa: F401

    os.chdir(folder)
    os.mkfifo("fifo.yaml")
    Path("text.txt").write_text(TEXT)
    motion = {"name": "steps", "steps": 5}
    small = {"task": "syn-small", "grid": {"eta_z": [1, 2]}, "eta_y": 1, "motion": motion}
    Path("sweep.json").write_text(json.dumps(small))


def option_case(draw: Random) -> Case:
    """A verb with what it needs and perhaps one option more, one of all of which is hostile."""
    verb = draw.choice(list(VERBS))
    given = {}
    for option in VERBS[verb]:
        name, _, rest = option.partition("=")
        value, _, kind = rest.rpartition(":")
        given[name] = (value, kind)
    needed = [name for name in given if name.isupper() or name.endswith("!")]
    chosen = list(dict.fromkeys((*needed, draw.choice(list(given)))))
    hostile = draw.choice([name for name in chosen if given[name][1] in KINDS])
    usual, kind = given[hostile]
    musts, mays = KINDS[kind]
    value = draw.choice((*musts, *mays, usual))
    must = "refuse" if value in musts else "" if value in mays else "accept"
    words = verb.split()
    for name in chosen:
        words += [] if name.isupper() else [f"--{name.rstrip('!')}"]
        words += [value if name == hostile else given[name][0]] * (given[name][1] in KINDS)
    return Case(f"attnlab {verb}", {"argv": words, "hostile": hostile, "must": must})


def judge_options(case: Case) -> Verdict:
    """Run the command line up to where its work would begin."""
    must, err = case.given["must"], io.StringIO()
    try:
        with ExitStack() as stack:
            for module, name in WORK:
                stub = patch.object(sys.modules[module], name, side_effect=Accepted)
                stack.enter_context(stub)
            stack.enter_context(redirect_stdout(io.StringIO()))
            stack.enter_context(redirect_stderr(err))
            stack.enter_context(patch.object(sys, "argv", ["attnlab", *case.given["argv"]]))
            from attnlab.cli import main

            main()
    except Accepted:
        pass
    except SystemExit as end:
        said = err.getvalue()
        # a theory that is given up says which rates or time to change: a refusal, only later
        if end.code in (BAD_INPUT, GIVEN_UP):
            return bad(f"refused: {said}") if must == "accept" else clean_words(said)
        if end.code:
            return bad(f"exit code {end.code}: {said[:500]}")
    except Exception as problem:
        found = refusal(problem)
        return bad(f"not caught: {problem!r}") if found == REFUSED else found
    return bad(f"accepted: {case.given['hostile']}") if must == "refuse" else RIGHT
