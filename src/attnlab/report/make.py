"""Making everything: the figures, the audit and the report, or some of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnlab.figures import NAMES, recipe_for
from attnlab.figures.catalogue import has_recipe
from attnlab.figures.text_runs import TextRecipe
from attnlab.files.atomic import atomic_path
from attnlab.files.documents import did_you_mean
from attnlab.files.errors import InputError
from attnlab.report.audit_part import find_audit, make_audit, read_audit
from attnlab.report.figure_part import find_figure, make_figure, with_seeds
from attnlab.report.making import Making, Watcher
from attnlab.report.page import page
from attnlab.report.part import Part

PARTS = (*NAMES, "audit", "report")
REPORT = "report.html"
RUNS = "runs"  # simulations, kept for the figures that share them


@dataclass(frozen=True)
class Reproduction:
    """What was made: the parts in order, and the page about them where there is one."""

    out: Path
    parts: tuple[Part, ...]
    report: Path | None
    seconds: float


def reproduce(
    names: Sequence[str] = (),
    *,
    out: Path = Path("out"),
    recipes: Path | None = None,
    seeds: int | None = None,
    watch: Watcher | None = None,
) -> Reproduction:
    """Make the parts that are named (see `PARTS`; all of them by default) in the folder `out`.

    It ends in a report about these; where `report` itself is named, about all that is there. A part
    that is there already, made by the same recipe and code, is reused. recipes: a folder with
    recipes of your own. seeds: for Fig. 6, and for Figs. 11 and 12, which use its runs.
    """
    chosen = chosen_parts(names, PARTS)
    whole = "report" in chosen
    if seeds is not None and seeds < 1:
        raise InputError(f"seeds: expected at least 1, got {seeds}")
    asked: dict[str, Any] = {}
    for name in NAMES:
        if name in chosen or (whole and has_recipe(name, recipes)):
            recipe = recipe_for(name, recipes)
            asked[name] = recipe if seeds is None else with_seeds(recipe, seeds)
    begun = time.perf_counter()

    def make(name: str, progress: Callable[[float], None]) -> Part | None:
        if name == "report":
            before = _made_before(out, asked, making.made) if whole else {}
            there = making.made | before
            shown = {name: there[name] for name in PARTS if name in there}
            missing = [name for name in NAMES if whole and name not in shown]
            _write_report(out, shown, missing, seconds=time.perf_counter() - begun)
            return None
        if name == "audit":
            return make_audit(folder=out / name, progress=progress)
        return make_figure(name, asked[name], folder=out / name, keep=out / RUNS, progress=progress)

    parts = [name for name in chosen if name != "report"]
    making = Making([*parts, "report"], make, out=out, watch=watch)
    # Training on text runs long and compiles little, all else compiles much: together they keep
    # two cores at work. Training is here, where a signal comes, because it goes on from a stop.
    on_text = [name for name in parts if isinstance(asked.get(name), TextRecipe)]
    making.side_by_side(on_text, [name for name in parts if name not in on_text])
    making.one_by_one(["report"])
    return Reproduction(out, making.parts, out / REPORT, time.perf_counter() - begun)


def chosen_parts(names: Sequence[str], known: Sequence[str]) -> list[str]:
    """The parts that are named, in the order of `known`; all of them for no names."""
    for name in names:
        if name not in known:
            raise InputError(f"name: {name!r} is not a part; {did_you_mean(name, known)}")
    return [name for name in known if not names or name in names]


def _made_before(out: Path, asked: dict[str, Any], made: dict[str, Part]) -> dict[str, Part]:
    """What is there and was not made now."""
    left = {name: recipe for name, recipe in asked.items() if name not in made}
    found = {name: find_figure(name, recipe, folder=out / name) for name, recipe in left.items()}
    if "audit" not in made:
        found["audit"] = find_audit(folder=out / "audit")
    return {name: part for name, part in found.items() if part is not None}


def _write_report(out: Path, parts: dict[str, Part], missing: list[str], seconds: float) -> None:
    """The report about these parts; missing: figures that one would expect in it."""
    audit = parts.get("audit")
    figures = {name: part for name, part in parts.items() if name in NAMES}
    text = page(
        figures=list(figures.values()),
        missing=missing,
        pictures={name: (out / name / f"{name}.png").read_bytes() for name in figures},
        audit=audit,
        claims=read_audit(out / "audit") if audit else None,
        seconds=seconds,
    )
    with atomic_path(out / REPORT) as temporary:
        temporary.write_text(text, encoding="utf-8")
