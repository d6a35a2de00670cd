"""Making the studies, or some of them: each becomes a part, as a figure does."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from attnlab.report.figure_part import make_figure
from attnlab.report.make import RUNS, Reproduction, Silent, Watcher, chosen_parts, make_folder
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
    make_folder(out)
    watch = Silent() if watch is None else watch
    begun, parts = time.perf_counter(), []
    for i, name in enumerate(chosen):
        watch.begin(name, chosen[i + 1 :])
        started = time.perf_counter()
        part = make_figure(
            name, asked[name], folder=out / name, keep=out / RUNS, progress=watch.progress
        )
        watch.end(name, time.perf_counter() - started, part)
        parts.append(part)
    return Reproduction(out, tuple(parts), None, time.perf_counter() - begun)
