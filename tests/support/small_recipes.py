"""The recipes of the figures at a size that a test can afford."""

from dataclasses import replace
from typing import Any

from attnlab.dynamics import Sampled, Save
from attnlab.experiments import recipe_for

# as Section 6 asks, with a vocabulary that keeps the flow cheap
CLASSES = "single-common:num_classes=4,distinct=3,common_prob=0.1,vocab_size=100"
# of these, the second have f_n . f_n' below the 1/12 that |lambda_1| < 1/K allows
STRONG = "single-common:num_classes=4,distinct=3,common_prob=0.2,vocab_size=100"
WEAK = "single-common:num_classes=4,distinct=3,common_prob=0.01,vocab_size=100"


def small(name: str) -> Any:
    """The recipe of a figure, cut down."""
    recipe = recipe_for(name)
    name = name.rpartition("/")[2]
    if name == "fig3":
        late = (1e3, 1e4)
        return replace(recipe, classes=(STRONG, WEAK), steps=300.0, records=61, late=late)
    if name in ("fig8", "fig9"):
        return replace(recipe, classes=CLASSES, steps=300.0, records=61)
    if name in ("fig11", "fig12"):
        return replace(recipe, runs=small("fig6"))
    if name == "fig6":
        grid = {"num_last": (1.0,), "eta_z": (0.5, 1.0, 3.0), "ratio": (1.0, 5.0, 10.0)}
        return replace(recipe.changed(seeds=6, engine=Sampled(128, 64)), grid=grid)
    if name == "fig2":
        return recipe.changed(steps=100)
    if name == "fig5":
        return recipe.changed(save=Save(what=("attention",), at=(0, 50, 100)))
    if name == "invariants":
        return replace(recipe, steps=400, early=200, every=40, seeds=2)
    if name == "erf":
        return replace(recipe, classes="joma-toy:classes=4", records=20)
    if name == "salience":
        return replace(recipe, components=4, steps=1000, draws=2, records=60)
    if name == "hierarchy":
        return replace(
            recipe, latents=((10, 4),), children=(2,), labels=4, tokens=20, hidden=8, rate=0.01,
            steps=200, judged=200, seeds=2,
        )  # fmt: skip
    if name == "hblt":
        return replace(recipe, branching=(1, 2, 2), sequences=20_000)
    return recipe
