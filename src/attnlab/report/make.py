"""Making everything: the figures, the audit and the report; the studies; or some of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnlab.experiments import Made, experiment, names_of, recipe_for
from attnlab.experiments.catalogue import by_paper, has_recipe
from attnlab.experiments.run import RUNS, find, find_or_run
from attnlab.files.atomic import atomic_path
from attnlab.files.documents import did_you_mean
from attnlab.files.errors import InputError
from attnlab.files.folders import claim
from attnlab.papers.scan_and_snap.figures import story
from attnlab.report.audited import find_audit, make_audit, read_audit
from attnlab.report.making import Making, Watcher
from attnlab.report.page import page
from attnlab.report.recorded import ShownStudy, read_recorded

FIGURES, STUDIES = names_of("figure"), names_of("study")
PARTS = (*FIGURES, "audit", "report")
REPORT, PLAYGROUND = "report.html", "playground.html"


@dataclass(frozen=True)
class Reproduction:
    """What was made, in order, and the page about it where there is one."""

    out: Path
    made: tuple[Made, ...]
    report: Path | None
    seconds: float


def reproduce(
    names: Sequence[str] = (),
    *,
    out: Path = Path("out"),
    recipes: Path | None = None,
    seeds: int | None = None,
    watch: Watcher | None = None,
    playground: str | None = None,
) -> Reproduction:
    """Make parts of the report in a folder.

    It ends in a report about these; where `report` itself is named, about all that is there, and
    with the studies: as `make_studies` made them in `out`, or else as the documentation has them. A
    part that is there already, made by the same recipe and code, is reused.

    Parameters
    ----------
    names : sequence of str, optional
        Which, as `PARTS` has them; all by default. The folder of a paper ("joma") names all of its
        figures.
    out : path, optional
        The folder.
    recipes : path, optional
        A folder with recipes of your own.
    seeds : int, optional
        For figures that are averaged over some, such as Fig. 6 and Figs. 11 and 12, which use its
        runs.
    watch : callable, optional
        Told what happens.
    playground : str, optional
        The page that a whole report has in it, as a file beside it.

    Returns
    -------
    Reproduction
        What was made, and where the report is.
    """
    chosen = chosen_parts(names, PARTS)
    whole = "report" in chosen
    if seeds is not None and seeds < 1:
        raise InputError(f"seeds: expected at least 1, got {seeds}")
    asked: dict[str, Any] = {}
    for name in FIGURES:
        if name in chosen or (whole and has_recipe(name, recipes)):
            asked[name] = _recipe(name, recipes, seeds)
    begun = time.perf_counter()

    def make(name: str, progress: Callable[[float], None]) -> Made | None:
        if name == "report":
            before = _made_before(out, asked, making.made) if whole else {}
            there = making.made | before
            shown = {name: there[name] for name in PARTS if name in there}
            missing = [name for name in FIGURES if whole and name not in shown]
            opening = find_or_run(story.EXPERIMENT, story.recipe(), out=out) if whole else None
            if whole and playground is not None:
                _write(out, PLAYGROUND, playground)
            _write_report(
                out, shown, missing, seconds=time.perf_counter() - begun, opening=opening,
                playground=whole and playground is not None,
                studies=_studies(out, recipes) if whole else [],
            )  # fmt: skip
            return None
        if name == "audit":
            return make_audit(out=out, progress=progress)
        return find_or_run(experiment(name), asked[name], out=out, progress=progress)

    parts = [name for name in chosen if name != "report"]
    pages = [REPORT, PLAYGROUND] if whole and playground is not None else [REPORT]
    claim(out, [*parts, RUNS, *pages])
    making = Making([*parts, "report"], make, out=out, watch=watch)
    # Training on text runs long and compiles little, all else compiles much: together they keep
    # two cores at work. Training is here, where a signal comes, because it goes on from a stop.
    long = [name for name in parts if name in asked and asked[name].resumes]
    making.side_by_side(long, [name for name in parts if name not in long])
    making.one_by_one(["report"])
    return Reproduction(out, making.in_order, out / REPORT, time.perf_counter() - begun)


def make_studies(
    names: Sequence[str] = (),
    *,
    out: Path = Path("out"),
    recipes: Path | None = None,
    seeds: int | None = None,
    watch: Watcher | None = None,
) -> Reproduction:
    """Make studies in a folder.

    A study that is there already, made by the same recipe and code, is reused.

    Parameters
    ----------
    names : sequence of str, optional
        Which; all by default.
    out : path, optional
        The folder.
    recipes : path, optional
        A folder with recipes of your own.
    seeds : int, optional
        More of them make every number surer.
    watch : callable, optional
        Told what happens.

    Returns
    -------
    Reproduction
        What was made, and where the report is.
    """
    chosen = chosen_parts(names, STUDIES)
    asked = {name: _recipe(name, recipes, seeds) for name in chosen}
    begun = time.perf_counter()

    def make(name: str, progress: Callable[[float], None]) -> Made:
        return find_or_run(experiment(name), asked[name], out=out, progress=progress)

    claim(out, [*chosen, RUNS])
    making = Making(chosen, make, out=out, watch=watch)
    making.one_by_one(chosen)
    return Reproduction(out, making.in_order, None, time.perf_counter() - begun)


def _recipe(name: str, recipes: Path | None, seeds: int | None) -> Any:
    recipe = recipe_for(name, recipes)
    return recipe if seeds is None else recipe.with_seeds(seeds)


def chosen_parts(names: Sequence[str], known: Sequence[str]) -> list[str]:
    """The parts that are named, or whose paper is, in the order of `known`; all for no names."""
    papers = by_paper(known)
    asked = [part for name in names for part in papers.get(name, [name])]
    for name in asked:
        if name not in known:
            hint = did_you_mean(name, [*known, *papers])
            raise InputError(f"name: {name!r} is not a part; {hint}")
    return [name for name in known if not names or name in asked]


def _made_before(out: Path, asked: dict[str, Any], made: dict[str, Made]) -> dict[str, Made]:
    """What is there and was not made now."""
    left = {name: recipe for name, recipe in asked.items() if name not in made}
    found = {name: find(experiment(name), recipe, out=out) for name, recipe in left.items()}
    if "audit" not in made:
        found["audit"] = find_audit(out=out)
    return {name: part for name, part in found.items() if part is not None}


def _studies(out: Path, recipes: Path | None) -> list[ShownStudy]:
    """Those that are in `out`, made by this code; the others as recorded, where they are."""
    found = []
    for name in STUDIES:
        made = None
        if has_recipe(name, recipes) and (out / name).is_dir():  # for else its text is read in vain
            made = find(experiment(name), recipe_for(name, recipes), out=out)
        if made is not None:
            picture = (out / name / f"{name}.png").read_bytes()
            found.append(ShownStudy(made, picture, recorded=False))
        elif (recorded := read_recorded(name)) is not None:
            found.append(recorded)
    return found


def _write_report(
    out: Path, parts: dict[str, Made], missing: list[str], *, seconds: float, opening: Made | None,
    playground: bool, studies: Sequence[ShownStudy],
) -> None:  # fmt: skip
    """The report about these parts; missing: figures that one would expect in it."""
    audit = parts.get("audit")
    figures = {name: part for name, part in parts.items() if name in FIGURES}
    drawn = [*figures, *([opening.name] if opening else [])]
    text = page(
        figures=list(figures.values()),
        missing=missing,
        pictures={name: (out / name / f"{name}.png").read_bytes() for name in drawn},
        audit=audit,
        claims=read_audit(out) if audit else None,
        seconds=seconds,
        story=opening,
        playground=playground,
        studies=studies,
    )
    _write(out, REPORT, text)


def _write(out: Path, name: str, text: str) -> None:
    with atomic_path(out / name, inside=out) as temporary:
        temporary.write_text(text, encoding="utf-8")
