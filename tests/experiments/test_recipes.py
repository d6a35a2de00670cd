"""The recipes that come with attnlab, and the runs that they stand for."""

import dataclasses

import pytest
from made_small import small

from attnlab import Optimizer, Steps
from attnlab.experiments import SimulationRecipe, experiment, figures, recipe_for
from attnlab.experiments.base import has_recipe
from attnlab.files.recipe import read_recipe
from attnlab.shelf import recipe_file, shelf
from attnlab.shelf import single as single_of


@pytest.mark.parametrize("name", figures(ours=False))
def test_every_recipe_states_hardware_minutes_and_regression_bounds(name):
    recipe = recipe_for(name)
    of, _, short = name.partition("/")
    assert recipe.figure == short
    assert recipe.hardware
    assert recipe.minutes < 5
    assert recipe.regression_bounds
    assert recipe.about.endswith(".")
    text = recipe_file(name).read_text()
    assert f"./lab reproduce {short}" in text or f"./lab reproduce {name}" in text
    own = next(paper.short for paper in shelf().papers if paper.name == of)
    assert text.startswith("# Fig. " if short.startswith("fig") else (f"# {own}, ", f"# {own}: "))


def test_there_is_no_recipe_without_a_figure():
    for paper in shelf().papers:
        openings = [single.load().name for of, single in single_of("opening") if of == paper]
        for folder in ("", "tiny", "wikitext"):
            found = {path.stem for path in (paper.folder / "recipes" / folder).glob("*.yaml")}
            assert found <= {*paper.figures, *openings}
            assert folder or found == {*paper.figures, *openings}
            assert folder != "tiny" or found == {*paper.figures}


@pytest.mark.parametrize("name", [*figures(ours=False), *figures(ours=True)])
def test_every_tiny_recipe_is_a_lab_note_of_seconds(name):
    recipe, whole = small(name), recipe_for(name)
    assert (recipe.figure, recipe.about) == (whole.figure, whole.about)
    assert recipe.hardware == "one CPU core"
    assert recipe.minutes <= 0.2
    assert not recipe.regression_bounds


def test_a_user_s_recipes_may_be_in_folders_of_papers(tmp_path):
    text = recipe_file("fig9").read_text()
    for folder, ratio in ((".", 3), ("scan_and_snap", 4)):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "fig9.yaml").write_text(text.replace("ratio: 2", f"ratio: {ratio}"))
        assert recipe_for("fig9", tmp_path).ratio == ratio
    assert recipe_for("fig9").ratio == 2
    assert recipe_for("fig7", "wikitext").layers == (1, 3)
    assert has_recipe("fig7", "wikitext") and not has_recipe("fig9", "wikitext")


def test_an_unknown_key_is_refused_with_the_nearest(tmp_path):
    text = recipe_file("fig6").read_text()
    path = tmp_path / "fig6.yaml"
    path.write_text(text.replace("seeds: 10", "seed: 10"))
    with pytest.raises(ValueError, match=r"fig6.yaml: seed: unknown key; did you mean 'seeds'"):
        recipe_for("fig6", tmp_path)
    path.write_text(text.replace("momentum: 0.9", "momentum: 1.9"))
    with pytest.raises(ValueError, match=r"optimizer.momentum: expected a number in \[0, 1\)"):
        recipe_for("fig6", tmp_path)


def test_a_figure_needs_the_whole_lab_note(tmp_path):
    text = recipe_file("fig6").read_text()
    (tmp_path / "fig6.yaml").write_text(text.replace("hardware: two CPU cores\n", ""))
    with pytest.raises(ValueError, match=r"fig6.yaml: hardware: missing"):
        recipe_for("fig6", tmp_path)


@pytest.mark.parametrize(
    ("recipe", "changes", "where"),
    [
        (lambda: recipe_for("fig7"), {"vocab_size": -1000}, "vocab_size"),
        (lambda: recipe_for("heads"), {"heads": (1, -2)}, r"heads\[1\]"),
        (
            lambda: recipe_for("residual"),
            {"tokens": {"everywhere": -2, "within": 2, "across": 2, "own": 2}},
            "tokens.everywhere",
        ),
    ],
)
def test_nothing_that_a_figure_is_made_with_is_negative(recipe, changes, where):
    with pytest.raises(ValueError, match=rf"{where}: expected at least 0, got -"):
        dataclasses.replace(recipe(), **changes)


def test_nor_is_anything_inside_it():
    recipe = recipe_for("optimizers")
    (name, choice), *_ = recipe.choices.items()
    backwards = dataclasses.replace(choice, etas=(-0.1,))
    with pytest.raises(
        ValueError, match=rf"choices.{name}.etas\[0\]: expected at least 0, got -0.1"
    ):
        dataclasses.replace(recipe, choices={name: backwards})


def test_a_recipe_under_another_name_is_refused(tmp_path):
    (tmp_path / "fig8.yaml").write_text(recipe_file("fig9").read_text())
    with pytest.raises(ValueError, match=r"fig8.yaml"):
        recipe_for("fig8", tmp_path)
    with pytest.raises(ValueError, match="did you mean 'fig6'"):
        experiment("fig66")


def test_fig6_is_the_protocol():
    recipe = read_recipe(recipe_file("fig6"), SimulationRecipe)
    assert recipe.grid == {
        "num_last": (1, 3, 5, 10),
        "eta_z": (0.5, 1, 2, 3),
        "ratio": (1, 2, 5, 10),
    }
    base = recipe.base
    assert (base.task.length, base.gradient.size) == (128, 128)
    assert base.motion == Steps(100, Optimizer("sgd", momentum=0.9))
    assert (base.init, len(base.seeds)) == ("uniform", 10)
    sizes = [classes.vocab_size for _, classes in recipe.settings()]
    assert sizes == [33, 79, 125, 240]


def test_select_must_be_on_the_grid():
    with pytest.raises(ValueError, match=r"select.eta_z: 7 is not in the grid of the runs"):
        dataclasses.replace(recipe_for("fig11"), select={"eta_z": 7.0})
