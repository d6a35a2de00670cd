"""A figure made by its tiny recipe, with what is true of every figure."""

import re
from typing import Any

import matplotlib

from attnlab.experiments import Standing, experiment, recipe_for
from attnlab.files.recipe import read_recipe


def small(name: str) -> Any:
    """Read the tiny recipe of a figure; it lacks the regression bounds that `recipe_for` needs."""
    figure = experiment(name)
    return read_recipe(figure.paper.recipe_file(figure.name, "tiny"), figure.recipe)


def make(name: str, keep: Any = None) -> Any:
    """The data of a figure; it must also be drawn and judged."""
    figure = experiment(name)
    data = figure.data(small(name), keep=keep)
    settings = dict(matplotlib.rcParams)
    drawn = figure.draw(data)
    assert dict(matplotlib.rcParams) == settings
    drawn.canvas.draw()
    assert any(ax.get_xlabel() for ax in drawn.axes) or drawn.subfigs[-1].get_supxlabel()
    judgement = figure.judge(data)
    assert judgement.standing in set(Standing)
    assert set(recipe_for(name).regression_bounds) <= set(judgement.numbers)
    for text in (judgement.headline, judgement.summary, judgement.alt):
        assert text.endswith(".")
        assert not re.search(r"\bnan\b", text)
    assert any(character.isdigit() for character in judgement.alt)
    return data
