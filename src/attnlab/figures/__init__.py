"""Figures: one file per figure of the paper, data() then draw(), and judge().

    from attnlab.figures import figure, recipe_for

    fig9 = figure("fig9")
    curves = fig9.data(recipe_for("fig9"))    # a labelled dataset
    fig9.draw(curves).savefig("fig9.png")     # a matplotlib figure
    print(fig9.judge(curves).summary)         # what it says about the paper's

Each file has a TITLE, a Recipe (a frozen dataclass, read from recipes/), and these functions.
"""

from attnlab.figures.catalogue import NAMES, figure, recipe_folder, recipe_for
from attnlab.figures.finding import Finding, Outcome

__all__ = ["NAMES", "Finding", "Outcome", "figure", "recipe_folder", "recipe_for"]
