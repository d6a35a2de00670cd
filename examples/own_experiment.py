"""An experiment of your own: does a faster decoder leave attention less sparse on these classes?

    python examples/own_experiment.py

writes picture, data, numbers and verdict to out/faster-decoder. docs/guides/own_experiment.md
explains it.
"""

from dataclasses import dataclass

from matplotlib.figure import Figure

from attnlab import Sampled, simulate
from attnlab.experiments import Experiment, Judgement, Standing, StudyRecipe, mean, run


@dataclass(frozen=True, kw_only=True)
class Recipe(StudyRecipe):
    classes: str = "syn-small"
    ratios: tuple[float, ...] = (1.0, 5.0, 10.0)  # eta_Y / eta_Z, with eta_Z = 1
    steps: int = 60
    seeds: int = 8


def data(recipe, *, progress=False, keep=None):
    """Entropy of attention at the end over (ratio, seed), mean over classes."""
    runs = simulate(
        recipe.classes, Sampled(length=64, batch_size=32), eta_y=recipe.ratios, eta_z=1.0,
        steps=recipe.steps, seeds=recipe.seeds, progress=progress,
    )  # fmt: skip
    entropy = runs["distinct_entropy"].isel(step=-1, drop=True).mean("sequence_class")
    return entropy.rename(eta_y="ratio").to_dataset(name="entropy")


def judge(runs):
    """Is entropy higher at the largest ratio than at the smallest, beyond two standard errors?"""
    rise = mean(runs["entropy"].isel(ratio=-1) - runs["entropy"].isel(ratio=0))
    standing = Standing.HOLDS if rise.value > 2 * rise.error else Standing.FAILS
    found = f"From the smallest to the largest ratio entropy rises by {rise} nats."
    return Judgement(standing, found, f"{found} ({rise.count} seeds.)", found, rise.numbers("rise"))


def draw(runs):
    figure = Figure(figsize=(4, 3), layout="constrained")
    ax = figure.subplots()
    ax.errorbar(runs["ratio"], runs["entropy"].mean("seed"), yerr=runs["entropy"].std("seed"))
    ax.set(xlabel="ratio of the rates", ylabel="entropy over distinct tokens (nats)")
    return figure


EXPERIMENT = Experiment(
    name="faster-decoder", title="Sparsity and the decoder's rate", source="Fig. 6",
    recipe=Recipe, data=data, judge=judge, draw=draw,
)  # fmt: skip

if __name__ == "__main__":
    made = run(EXPERIMENT, Recipe(about="A larger ratio gives a higher entropy."), out="out")
    print(f"{made.outcome}: {made.headline} See out/{made.name}.")
