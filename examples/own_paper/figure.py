"""A figure: attention logits as predicted and as trained."""

from dataclasses import dataclass

import xarray as xr
from matplotlib.figure import Figure

from attnlab import Flow, Simulation, predict, simulate
from attnlab.experiments import Experiment, ExperimentRecipe, Judgement, Standing


@dataclass(frozen=True, kw_only=True)
class Recipe(ExperimentRecipe):
    classes: str
    time: float


def data(recipe, *, progress=False, keep=None):
    """Return z of the query over (time, token), trained and predicted."""
    run = Simulation(recipe.classes, motion=Flow(recipe.time), dtype="float64")
    trained, predicted = simulate(run, progress=progress), predict(run, theory="own-paper-early")
    both = {"trained": trained, "predicted": predicted}
    return xr.Dataset({of: z["attention_logits"].isel(seed=0, query=0) for of, z in both.items()})


def judge(z):
    """Check that the error at the end is below a tenth of the largest logit."""
    last = z.isel(time=-1)
    error = float(abs(last["predicted"] - last["trained"]).max() / abs(last["trained"]).max())
    found = f"The prediction is off by {error:.1%} at the end."
    return Judgement(Standing.of(error < 0.1), found, found, found, numbers={"error": error})


def draw(z):
    figure = Figure(figsize=(4, 3), layout="constrained")
    ax = figure.subplots()
    ax.plot(z["time"], z["trained"], "-", z["time"], z["predicted"], "k:")
    ax.set(xlabel="flow time", ylabel="attention logit", title="dotted: predicted")
    return figure


EXPERIMENT = Experiment(
    name="early", title="The start", recipe=Recipe, data=data, judge=judge, draw=draw, kind="figure"
)
