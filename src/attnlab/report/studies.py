"""Making the studies, or some of them: each becomes a part, as a figure does."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from attnlab.report.figure_part import make_figure
from attnlab.report.make import RUNS, Reproduction, chosen_parts
from attnlab.report.making import Making, Watcher
from attnlab.report.part import Part
from attnlab.studies import NAMES, recipe_for


def make_studies(
    names: Sequence[str] = (),
    *,
    out: Path = Path("out"),
    recipes: Path | None = None,
    seeds: int | None = None,
    watch: Watcher | None = None,
) -> Reproduction:
    """Make the studies that are named (all of them by default) in the folder `out`.

    A study that is there already, made by the same recipe and code, is reused. recipes: a folder
    with recipes of your own. seeds: more of them make every number surer.
    """
    chosen = chosen_parts(names, NAMES)
    asked = {name: recipe_for(name, recipes) for name in chosen}
    if seeds is not None:
        asked = {name: replace(recipe, seeds=seeds) for name, recipe in asked.items()}
    begun = time.perf_counter()

    def make(name: str, progress: Callable[[float], None]) -> Part:
        return make_figure(name, asked[name], folder=out / name, keep=out / RUNS, progress=progress)

    making = Making(chosen, make, out=out, watch=watch)
    making.one_by_one(chosen)
    return Reproduction(out, making.parts, None, time.perf_counter() - begun)
