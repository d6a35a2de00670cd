"""Study: one dataset, several theories. Which predicts training, and what does an assumption cost?

The same sequence classes and learning rates go to each model that a theory is about. Every theory
on the shelf is asked, and predicts where its `check` lets it. Its error counts in the distance that
attention moves in training, so that predicting that nothing moves has the error 1.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from attnlab.experiments import Judgement, Standing, Table, Texts, over_cells
from attnlab.experiments.estimate import Estimate, jackknife, number_name
from attnlab.files.errors import InputError
from attnlab.files.progress import Progress
from attnlab.models import Extended, Pairwise
from attnlab.models.base import Model
from attnlab.papers.joma.model import Joint
from attnlab.plots import style
from attnlab.shelf import offered
from attnlab.simulation import Flow, Record, Simulation, simulate
from attnlab.theory import predict
from attnlab.theory.theory import as_theory

from ..drawn import DrawnClasses, by_draw, distinct

TEXTS = Texts.read(__file__)
MODELS: Mapping[str, Model] = {
    "l2": Pairwise(),
    "none": Extended(normalization="none"),
    "mlp": Joint(scale=0.0),
}
BASELINES = ("nothing moves", "frequency")
SHOWN = 0  # the draw whose curves are drawn


@dataclass(frozen=True, kw_only=True)
class Recipe(DrawnClasses):
    """Settings of the study; unused: outputs that are never used."""

    unused: int
    eta_y: float
    eta_z: float


def data(recipe: Recipe, *, progress: Progress = False, keep: Path | None = None) -> xr.Dataset:
    """Over (model, theory): `error`, relative to how far attention moves (seed); `attention` to the
    most frequent distinct token of the first class (seed, time), the theory "training" among them;
    `fails`, the mean number of a theory's assumptions that do not hold. NaN where a theory refuses
    the model."""
    return over_cells(partial(_cell, recipe), progress, model=MODELS)


def _cell(recipe: Recipe, model: Any, progress: Progress) -> xr.Dataset:
    run = Simulation(
        [classes.with_unused(recipe.unused) for classes in recipe.sets()],
        model=MODELS[model],
        motion=Flow(recipe.time, rtol=1e-6, atol=1e-8),
        eta_y=recipe.eta_y,
        eta_z=recipe.eta_z,
        record=Record(
            ("attention", "logits"), at=(0.0, *np.geomspace(0.1, recipe.time, recipe.records))
        ),
        dtype="float64",
    )
    trained = _attention(simulate(run, progress=progress))
    P = trained.isel(time=0, drop=True)
    often = P.where(distinct(P), -1.0).argmax("token")
    tokens = xr.DataArray(np.arange(P.sizes["token"]), dims="token")
    frequent = xr.where(tokens == P.argmax("token"), 1.0, 0.0)
    answers = {
        "training": trained,
        BASELINES[0]: P.broadcast_like(trained),
        BASELINES[1]: frequent.broadcast_like(trained),
    }
    fails = dict.fromkeys(answers, np.nan)
    for name in offered("theories"):
        try:
            as_theory(name).check(run)
        except InputError:
            continue
        said = predict(run, theory=name)
        answers[name] = _attention(said)
        holds = said["assumption_holds"]
        fails[name] = float((~holds).sum("assumption").mean())
    axis = xr.Variable("theory", list(answers))
    every = xr.concat([of.transpose(*trained.dims) for of in answers.values()], axis)
    along = ["time", "sequence_class", "token"]
    moved = ((trained - P) ** 2).mean(along)
    return xr.Dataset(
        {
            "error": (((every - trained) ** 2).mean(along) / moved) ** 0.5,
            "attention": every.isel(token=often).isel(sequence_class=0),
            "fails": (("theory",), list(fails.values())),
        }
    )


def _attention(result: xr.Dataset) -> xr.DataArray:
    """Return attention by draw, without coordinates in which predictions may differ."""
    own = by_draw(result["attention"])
    return own.drop_vars([name for name in own.coords if name not in ("time", "seed")])


def errors(runs: xr.Dataset) -> dict[tuple[str, str], Estimate]:
    """Return the r.m.s. error of each prediction, by model and theory, with its own over draws."""
    theories = [of for of in (*offered("theories"), *BASELINES) if of in runs["theory"]]
    cells = {
        cell: runs["error"].sel(model=cell[0], theory=cell[1]) for cell in product(MODELS, theories)
    }
    return {
        cell: jackknife(lambda kept: float((kept**2).mean() ** 0.5), values)
        for cell, values in cells.items()
        if values.notnull().all()
    }


def table(runs: xr.Dataset) -> Table:
    """One row for each model and what predicts it."""
    rows, cells = [], []
    for (model, theory), error in errors(runs).items():
        fails = float(runs["fails"].sel(model=model, theory=theory))
        leans = "" if theory in BASELINES else as_theory(theory).leans_on
        rows.append({"error": error.value, "error_error": error.error, "fails": fails})
        shown = "-" if theory in BASELINES else f"{fails:.1f}"
        cells.append([TEXTS.part(model), theory, f"{error}", shown, leans])
    return TEXTS.table(rows, cells, seeds=runs.sizes["seed"])


def draw(runs: xr.Dataset) -> Figure:
    """Attention to one token by each model, and the errors of all predictions."""
    theories = [name for name in offered("theories") if name in runs["theory"]]
    colours = dict(zip(theories, style.ordered(len(theories)), strict=True))
    found = errors(runs)
    one = runs["attention"].isel(seed=SHOWN, time=slice(1, None))
    with style.page(5.2) as figure:
        axes = figure.subplots(2, 2).ravel()
        for ax, model in zip(axes, MODELS, strict=False):
            curves = one.sel(model=model)
            trained = curves.sel(theory="training")
            ax.plot(one["time"], trained, color="0.6", linewidth=4, label="training")
            ax.axhline(float(curves.sel(theory=BASELINES[0])[0]), color="0.3", linewidth=0.8)
            own = [name for name in theories if (model, name) in found]
            for name, dash in zip(own, style.DASHES, strict=False):
                curve = curves.sel(theory=name)
                styles = {"color": colours[name], "linestyle": dash, "label": name}
                ax.plot(one["time"], curve, **styles)
            ax.set(xscale="log", ylim=(0, 1.03))
            ax.legend(loc="upper left")
        rows = [key for key in found if key[1] != BASELINES[0]]
        for y, key in enumerate(rows):
            estimate, colour = found[key], colours.get(key[1], "0.3")
            axes[-1].errorbar(
                estimate.value, -y, xerr=estimate.error, color=colour, marker="o", capsize=2
            )
        axes[-1].axvline(1.0, color="0.3", linewidth=0.8)
        names = [f"{theory}, {TEXTS.part(f'{model}_short')}" for model, theory in rows]
        axes[-1].set_yticks([-y for y in range(len(rows))], names)
        axes[-1].set_xscale("log")
        TEXTS.label(axes)
    return figure


def judge(runs: xr.Dataset) -> Judgement:
    """Judge which theories predict better than that nothing moves."""
    found = errors(runs)
    by_name = {number_name(f"{model}_{theory}"): of for (model, theory), of in found.items()}
    theories = {key: of for key, of in found.items() if key[1] not in BASELINES}
    better = {key: of for key, of in theories.items() if of.value + 2 * of.error < 1}

    def listed(model: str) -> str:
        return ", ".join(f"{theory} {of}" for (on, theory), of in theories.items() if on == model)

    silent = sorted(set(offered("theories")) - {theory for _, theory in theories})
    return TEXTS.judgement(
        Standing.of(len(better) == len(theories), in_part=bool(better)),
        by_name,
        better=len(better),
        asked=len(theories),
        l2=listed("l2"),
        none=listed("none"),
        mlp=listed("mlp"),
        silent=", ".join(silent),
        time=float(runs["time"][-1]),
        seeds=runs.sizes["seed"],
        frequency={model: found[model, BASELINES[1]] for model in MODELS},
    )


EXPERIMENT = TEXTS.experiment(recipe=Recipe, data=data, judge=judge, draw=draw, table=table)
