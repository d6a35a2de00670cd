"""Seven maps from logits to weights, with the logistic and the square loss."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from attnlab.experiments import ExperimentRecipe, Judgement, Standing, Table, mean
from attnlab.experiments.cells import over_cells
from attnlab.experiments.texts import Texts
from attnlab.files.progress import Progress
from attnlab.plots import style
from attnlab.simulation import Record, simulate

from .. import runs
from ..model import WEIGHTINGS, ValueAttention
from ..task import Direction, Regression

TEXTS = Texts.read(__file__)
DASHED = {"relu": (0, (3, 2))}  # on top of l1, which it equals while logits are positive
RECORDS = 30
TASKS = {"logistic": Direction(10), "square": Regression(10)}
# Of one colour where the map is normalised by a sum.
COLOURS = dict(
    zip(WEIGHTINGS, (style.ACCENT, style.COMMON, *style.ordered(4), style.OUTLINE), strict=True)
)


@dataclass(frozen=True, kw_only=True)
class Training:
    """rate, steps: of plain gradient descent."""

    rate: float
    steps: int


@dataclass(frozen=True, kw_only=True)
class Recipe(ExperimentRecipe):
    """weightings: maps. seeds: starts. logistic, square: training with either loss."""

    weightings: tuple[str, ...]
    seeds: int
    logistic: Training
    square: Training


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """Return the share of the largest weight and the range of the logits, (loss, weighting, seed,
    record); records are evenly spaced in the logarithm of the step."""

    def one(loss: str, weighting: str, report: Progress) -> xr.Dataset:
        training: Training = getattr(recipe, loss)
        model = ValueAttention(10, weighting, logit_mean=1.0, logit_scale=0.1)
        record = _records(training.steps)
        run = runs.descent(
            TASKS[loss], model, training.steps, training.rate, record=record, seeds=recipe.seeds
        )
        found = simulate(run, progress=report)
        size, a = abs(found["weights"]), found["parameters.attention"]
        kept = {
            "share": size.max("token") / size.sum("token"),
            "spread": a.max("token") - a.min("token"),
        }
        named = xr.Dataset(kept).rename(step="record")
        return named.assign_coords(record=np.arange(named.sizes["record"])).assign(
            step=("record", found["step"].values)
        )

    return over_cells(one, progress, loss=TASKS, weighting=recipe.weightings)


def _records(steps: int) -> Record:
    """Return 0 and 30 steps in about even ratios, of which both losses have as many."""
    at = np.unique(np.rint(np.geomspace(1, steps, 8 * RECORDS)))
    few = at[np.linspace(0, at.size - 1, RECORDS).astype(int)]
    return Record(("weights", "parameters"), at=[0.0, *few])


def judge(found: xr.Dataset) -> Judgement:
    """Judge whether softmax alone puts attention on one token: more of it than all other maps."""
    last = found["share"].isel(record=-1)
    ends = {
        f"{loss}_{name}": mean(last.sel(loss=loss, weighting=name).values)
        for loss in TASKS
        for name in found["weighting"].values
    }
    softmax = ends["logistic_softmax"]
    others = {
        name: ends[f"logistic_{name}"] for name in found["weighting"].values if name != "softmax"
    }
    best = max(others, key=lambda name: others[name].value)
    return TEXTS.judgement(
        Standing.of(softmax.value > others[best].value, softmax.above(0.2)),
        ends,
        best=best,
        best_share=others[best],
        others=", ".join(f"{name} {of}" for name, of in others.items()),
        maps=last.sizes["weighting"],
    )


def table(found: xr.Dataset) -> Table:
    """Return the share of the largest weight at the end, with its error over seeds."""
    last = found["share"].isel(record=-1)
    rows, cells = [], []
    for name in found["weighting"].values:
        of = {loss: mean(last.sel(loss=loss, weighting=name).values) for loss in TASKS}
        rows.append({loss: each.value for loss, each in of.items()})
        cells.append([name, *map(str, of.values())])
    return TEXTS.table(rows, cells)


def draw(found: xr.Dataset) -> Figure:
    """Draw shares and ranges of logits, means over seeds."""
    with style.page(4.2) as figure:
        axes = figure.subplots(2, 2, sharex="col", sharey="row")
        for column, loss in enumerate(TASKS):
            for name in found["weighting"].values:
                of = found.sel(loss=loss, weighting=name).isel(record=slice(1, None))
                for ax, what in zip(axes[:, column], ("share", "spread"), strict=True):
                    ax.plot(
                        of["step"],
                        of[what].mean("seed"),
                        color=COLOURS[str(name)],
                        label=name,
                        linestyle=DASHED.get(str(name), "-"),
                    )
            axes[0, column].set_title(f"{loss} loss")
            axes[1, column].set(xlabel="step", xscale="log")
        style.y_labels(axes[:, 0], ["share of the largest weight", "range of the logits $a$"])
        style.legend_above(figure, axes[0, 0])
    return figure


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw, table=table)
