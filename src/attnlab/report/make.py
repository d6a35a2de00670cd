"""Make everything: the figures of the papers, the audit and the report; or some of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from attnlab.experiments import Part, experiment, recipe_for
from attnlab.experiments.base import has_recipe, opening
from attnlab.experiments.running import RUNS, find, find_or_run
from attnlab.files.atomic import write_text
from attnlab.files.errors import InputError
from attnlab.files.folders import claim
from attnlab.files.progress import Choice, Report, reporting, side_by_side
from attnlab.report.audited import find_audit, make_audit, read_audit
from attnlab.report.page import page
from attnlab.report.parts import AUDIT, WHOLE, chosen_parts
from attnlab.report.study_pages import ShownStudy, read_recorded
from attnlab.shelf import offered
from attnlab.shelf.papers import figures

REPORT, PLAYGROUND = "report.html", "playground.html"


class Reproducer:
    """Makes parts, at most two at a time, and reports progress.

    make: makes a part by its name; it gets a function to call with the fraction done, and returns
    None for the report. tell: called with a line for each finished part. made: those that are
    finished. failed: whether one could not be made.
    """

    def __init__(
        self,
        names: Sequence[str],
        make: Callable[[str, Callable[[float], None]], Part | None],
        *,
        out: Path,
        report: Report,
        tell: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.out, self.made, self.failed = out, dict[str, Part](), False
        self._make, self._report, self._tell = make, report, tell
        self._names, self._fractions = tuple(names), dict[str, float]()  # of the parts in progress
        self._left = len(names)

    def side_by_side(self, here: Sequence[str], there: Sequence[str] = ()) -> None:
        """Make these, one by one, and those in a thread of their own."""
        try:
            if here and there:
                side_by_side(lambda: self._go(here), lambda: self._go(there))
            else:
                self._go([*here, *there])
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"stopped in {' and '.join(sorted(self._fractions))}; what was made before is in "
                f"{self.out}, and the same command goes on from there"
            ) from None

    @property
    def in_order(self) -> tuple[Part, ...]:
        """Finished parts, in the order in which they were named."""
        return tuple(self.made[name] for name in self._names if name in self.made)

    def _go(self, names: Sequence[str]) -> None:
        """Make these until something fails, in either thread."""
        for name in names:
            if self.failed:
                return
            try:
                self._one(name)
            except BaseException:
                self.failed = True
                raise

    def _one(self, name: str) -> None:
        started = time.perf_counter()
        self._progress(name, 0.0)
        made = self._make(name, partial(self._progress, name))
        self._progress(name, 1.0)
        del self._fractions[name]
        self._left -= 1
        if made is not None:
            self.made[name] = made
        seconds = f"{time.perf_counter() - started:.1f} s"
        how = "there already" if made is not None and made.reused else seconds
        self._tell(f"{name}: {how}, {self._left} left")

    def _progress(self, name: str, fraction: float) -> None:
        done = fraction - self._fractions.get(name, 0.0)
        self._fractions[name] = fraction
        parts = [f"{of} {100 * x:.0f} %" if x else of for of, x in self._fractions.copy().items()]
        self._report(done, ", ".join(parts))


@dataclass(frozen=True)
class Reproduction:
    """Parts that were made, in order, and the page about them."""

    out: Path
    made: tuple[Part, ...]
    report: Path
    seconds: float


def reproduce(
    names: Sequence[str] = (),
    *,
    out: Path = Path("out"),
    recipes: str | Path | None = None,
    seeds: int | None = None,
    progress: Choice = False,
    tell: Callable[[str], None] = lambda line: None,
    playground: str | None = None,
) -> Reproduction:
    """Make figures of papers, the audit and a report in a folder.

    It ends in a report about these; where `report` itself is named, about all that is there, and
    with what is ours: as it was made in `out`, or else as the documentation has it. A part that is
    there already, made by the same recipe and code, is reused.

    Parameters
    ----------
    names : sequence of str, optional
        Figures ("paper/figure", or "figure" alone), papers for all of their figures, "audit" and
        "report"; by default the figures of all papers that are not ours, the audit and the report.
    out : path, optional
        The folder.
    recipes : str or path, optional
        A folder with recipes of your own, or the name of one among the papers' recipes.
    seeds : int, optional
        For figures that are averaged over some.
    progress : "auto", bool or callable, optional
        "auto" for a bar, False, or a function called with the fraction done.
    tell : callable, optional
        Called with a line for each finished part.
    playground : str, optional
        The page that a whole report includes, written next to it.

    Returns
    -------
    Reproduction
        What was made, and where the report is.
    """
    chosen = chosen_parts(names)
    whole = WHOLE in chosen
    if seeds is not None and seeds < 1:
        raise InputError(f"seeds: expected at least 1, got {seeds}")
    asked: dict[str, Any] = {}
    for name in offered("figures"):
        there = whole and name in figures(ours=False) and has_recipe(name, recipes)
        if name in chosen or there:
            recipe = recipe_for(name, recipes)
            asked[name] = recipe if seeds is None else recipe.with_seeds(seeds)
    begun = time.perf_counter()

    def make(name: str, progress: Callable[[float], None]) -> Part | None:
        if name == WHOLE:
            before = _made_before(out, asked, reproducer.made) if whole else {}
            if whole and playground is not None:
                write_text(out / PLAYGROUND, playground, inside=out)
            page_of = partial(_write_report, out, reproducer.made | before, recipes, whole=whole)
            page_of(seconds=time.perf_counter() - begun, playground=playground is not None)
            return None
        if name == AUDIT:
            return make_audit(out=out, progress=progress)
        return find_or_run(experiment(name), asked[name], out=out, progress=progress)

    parts = [name for name in chosen if name != WHOLE]
    folders = dict.fromkeys(name.partition("/")[0] for name in parts)
    pages = [REPORT, PLAYGROUND] if whole and playground is not None else [REPORT]
    claim(out, [*folders, RUNS, *pages])
    # Training on text runs long and compiles little, all else compiles much: together they keep
    # two cores at work. Training is here, where a signal comes, because it goes on from a stop.
    long = [name for name in parts if name in asked and asked[name].resumes]
    with reporting(progress, len(parts) + 1, "reproduce") as report:
        reproducer = Reproducer([*parts, WHOLE], make, out=out, report=report, tell=tell)
        reproducer.side_by_side(long, [name for name in parts if name not in long])
        reproducer.side_by_side([WHOLE])
    return Reproduction(out, reproducer.in_order, out / REPORT, time.perf_counter() - begun)


def _made_before(out: Path, asked: dict[str, Any], made: dict[str, Part]) -> dict[str, Part]:
    """Return the parts that are there and were not made now."""
    left = {name: recipe for name, recipe in asked.items() if name not in made}
    found = {name: find(experiment(name), recipe, out=out) for name, recipe in left.items()}
    if AUDIT not in made:
        found[AUDIT] = find_audit(out=out)
    return {name: part for name, part in found.items() if part is not None}


def _studies(
    out: Path, parts: dict[str, Part], recipes: str | Path | None, *, whole: bool
) -> list[ShownStudy]:
    """Return what is ours: made now, or, for a whole report, as it is in `out`, or as recorded."""
    found = []
    for name in figures(ours=True):
        made = parts.get(name)
        # to look for a study would read its text; without its folder there is nothing to find
        if made is None and whole and (out / name).is_dir() and has_recipe(name, recipes):
            made = find(experiment(name), recipe_for(name, recipes), out=out)
        if made is not None:
            found.append(ShownStudy(made, _picture(out, name), recorded=False))
        elif whole and (recorded := read_recorded(name)) is not None:
            found.append(recorded)
    return found


def _write_report(
    out: Path,
    parts: dict[str, Part],
    recipes: str | Path | None,
    *,
    whole: bool,
    seconds: float,
    playground: bool,
) -> None:
    """Write the report about these parts; a whole one names the figures that are not there."""
    first = opening() if whole else None
    opens = find_or_run(first, recipe_for(first), out=out) if first else None
    known = figures(ours=False)
    shown = [parts[name] for name in known if name in parts]
    drawn = [made.name for made in (*shown, opens) if made is not None]
    audit = parts.get(AUDIT)
    text = page(
        figures=shown,
        missing=[name for name in known if whole and name not in parts],
        pictures={name: _picture(out, name) for name in drawn},
        audit=audit,
        claims=read_audit(out) if audit else None,
        seconds=seconds,
        opening=opens,
        playground=whole and playground,
        studies=_studies(out, parts, recipes, whole=whole),
    )
    write_text(out / REPORT, text, inside=out)


def _picture(out: Path, name: str) -> bytes:
    return (out / name / f"{Path(name).name}.png").read_bytes()
