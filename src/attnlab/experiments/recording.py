"""Write what experiments found into `expected.json` of their papers, to be reviewed as a diff."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attnlab.experiments.made import Made
from attnlab.files.atomic import atomic_path
from attnlab.files.errors import InputError
from attnlab.shelf import Paper, paper
from attnlab.shelf.manifest import EXPECTED

DIGITS = 4  # significant
# Rounding moves a number by far less; a recorded number that is this close is kept.
CLOSE = 5e-3


def record(parts: Sequence[Made]) -> list[Path]:
    """Write the standing and the bounded numbers of figures into their papers' `expected.json`.

    Figures that were not made keep their entries, as claims do; entries of figures that are gone
    go.

    Parameters
    ----------
    parts : sequence of Made
        What was made by the papers' own recipes; parts that belong to no paper are left out.

    Returns
    -------
    list of Path
        The files written.
    """
    of_papers: dict[str, dict[str, Made]] = {}
    for made in parts:
        name, slash, short = made.name.partition("/")
        if slash:
            of_papers.setdefault(name, {})[short] = made
    written = []
    for name, found in of_papers.items():
        of = paper(name)
        if "site-packages" in of.folder.parts:
            raise InputError(f"record: {of.folder} is installed; record in a source checkout")
        document = {
            **{part: dict(entries) for part, entries in of.expected.items() if entries},
            "figures": _entries(of, found),
        }
        written.append(of.folder / EXPECTED)
        with atomic_path(written[-1]) as temporary:
            temporary.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return written


def _entries(of: Paper, found: dict[str, Made]) -> dict[str, Any]:
    before = of.expected["figures"]
    now = {
        name: {
            "standing": made.standing,
            "numbers": _numbers(made, before.get(name, {}).get("numbers", {})),
        }
        for name, made in found.items()
    }
    return {name: now.get(name, before.get(name)) for name in of.figures if name in {*before, *now}}


def _numbers(made: Made, before: dict[str, float]) -> dict[str, float]:
    """Return the numbers that have regression bounds, to four significant digits."""
    found = {}
    for name in made.regression_bounds:
        value = made.numbers.get(name, math.nan)
        if math.isclose(value, before.get(name, math.nan), rel_tol=CLOSE, abs_tol=1e-12):
            found[name] = before[name]
        elif math.isfinite(value):
            found[name] = float(f"{value:.{DIGITS}g}")
    return found
