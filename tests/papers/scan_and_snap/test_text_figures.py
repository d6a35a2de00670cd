"""Figs. 7 and 10 at a size that a test can afford, and what their judges say."""

import re
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from made_small import small

from attnlab.experiments import Standing, recipe_for
from attnlab.models import text_transformer
from attnlab.papers.scan_and_snap.figures.fig7 import EXPERIMENT as fig7
from attnlab.papers.scan_and_snap.figures.fig10 import EXPERIMENT as fig10


@pytest.mark.slow
def test_fig7_shows_maps_over_the_words_of_the_probe(tmp_path):
    recipe = small("fig7")
    heard = []
    frames = fig7.data(recipe, progress=heard.append, keep=tmp_path)
    assert heard[-1] == 1
    maps = frames["attention"].isel(layers=0)
    assert maps.dims == ("shown_step", "query", "key")
    np.testing.assert_allclose(maps.sum("key"), 1, atol=1e-5)  # the first words see only these
    assert not np.triu(maps.values, 1).any()
    corpus = recipe.text()
    assert set(frames["word"].values) <= set(corpus.vocabulary)
    assert frames["change"].isel(shown_step=0).isnull().all()
    assert ((frames["change"].isel(shown_step=[1, 2]) > 0) & (frames["change"] <= 1)).any()
    drawn = fig7.draw(frames)
    drawn.canvas.draw()
    assert [label.get_text() for label in drawn.axes[0].get_yticklabels()] == list(
        frames["word"].values
    )
    judgement = fig7.judge(frames)
    assert set(judgement.numbers) == {
        f"{name}_1"
        for name in (
            "entropy_start",
            "entropy_end",
            "first_change",
            "last_change",
            "sparse",
            "slowed",
        )
    }
    assert judgement.standing == Standing.OPEN  # of one seed
    # kept, so that the second time is a look into a file
    (folder,) = (path for path in tmp_path.iterdir() if path.is_dir())
    before = (folder / "result.nc").stat().st_mtime_ns
    assert fig7.data(recipe, keep=tmp_path).identical(frames)
    assert (folder / "result.nc").stat().st_mtime_ns == before


@pytest.mark.slow
def test_fig10_has_a_mean_and_a_deviation_for_each_rate():
    recipe = small("fig10")
    cells = fig10.data(recipe)
    assert cells["entropy_mean"].dims == ("layers", "rate")
    assert (cells["entropy_mean"] > 0).all()
    assert (cells["entropy_mean"] <= np.log(8)).all()
    assert (cells["entropy_std"] >= 0).all()
    assert (cells["finite"] == 2).all()
    fig10.draw(cells).canvas.draw()
    rows = fig10.table(cells).rows
    assert [(row["layers"], row["rate"]) for row in rows] == [(1, 0.5), (1, 5.0)]
    assert rows[1]["entropy_mean"] == float(cells["entropy_mean"][0, 1])
    assert fig10.judge(cells).summary.endswith(".")
    assert (cells["best_loss_mean"] <= cells["loss_mean"]).all()
    assert cells["best_step"].max() <= recipe.training["steps"]


def test_fig10_compares_the_best_losses_and_not_the_last():
    cells = entropies(2.0, 1.5, 1.0)  # at the end the loss is lowest at rate 1
    assert "the best loss of a training is lowest at 5)" in fig10.judge(cells).summary


def entropies(*values, std=0.01, seeds=3, layers=1):
    row = xr.DataArray([values], dims=("layers", "rate"), coords={"rate": [1.0, 2.0, 5.0]})
    cells = {
        "entropy_mean": row,
        "entropy_std": 0 * row + std,
        "loss_mean": 5 - row,
        "loss_std": 0 * row + std,
        "best_loss_mean": 3 + row,
        "best_loss_std": 0 * row + std,
        "best_step": 0 * row,
        "start": row[:, 0],
        "finite": 0 * row + seeds,
    }
    return xr.Dataset(cells, {"layers": [layers]}, {"seeds": seeds, "steps": 9, "corpus": "x"})


@pytest.mark.parametrize(
    ("values", "changes", "outcome", "falls", "rises"),
    [
        ((2.0, 1.5, 1.0), {}, Standing.HOLDS, 2, 0),
        ((2.0, 1.0, 1.5), {}, Standing.PARTLY, 1, 1),
        ((1.0, 1.5, 2.0), {}, Standing.FAILS, 0, 2),
        ((2.0, 1.0, 1.005), {}, Standing.HOLDS, 1, 0),  # the rise is within noise
        ((2.0, 1.5, 1.0), {"std": 1.0}, Standing.OPEN, 0, 0),
        ((1.0, 1.5, 2.0), {"std": 1.0}, Standing.OPEN, 0, 0),
        ((2.0, 1.5, 1.0), {"seeds": 1, "std": np.nan}, Standing.OPEN, 0, 0),
    ],
)
def test_fig10_is_judged_by_the_fall_of_entropy_beyond_noise(
    values, changes, outcome, falls, rises
):
    judgement = fig10.judge(entropies(*values, **changes))
    assert judgement.standing == outcome
    assert (judgement.numbers["falls_1"], judgement.numbers["rises_1"]) == (falls, rises)
    assert f"falls in {falls} and rises in {rises} of 2" in judgement.headline


def test_fig10_is_judged_on_one_layer_alone():
    one, three = entropies(2.0, 1.5, 1.0), entropies(1.0, 1.5, 2.0, layers=3)
    both = xr.concat([one, three], "layers", data_vars="all")
    assert fig10.judge(both).standing == Standing.HOLDS
    assert fig10.judge(both).numbers["rises_3"] == 2
    assert fig10.judge(three).standing == Standing.OPEN


def test_fig10_draws_no_entropy_below_zero():
    drawn = fig10.draw(entropies(2.0, 0.5, 0.1, std=1.0))
    (bars,) = (container[2][0] for container in drawn.axes[0].containers)
    lowest = [segment[:, 1].min() for segment in bars.get_segments()]
    assert lowest == pytest.approx([1.0, 0.0, 0.0])


@pytest.mark.parametrize(
    ("ends", "lasts", "outcome"),
    [
        ([1.0, 1.0, 1.2], [0.1, 0.1, 0.1], Standing.HOLDS),
        ([1.0, 1.0, 1.2], [0.1, 0.5, 0.1], Standing.PARTLY),  # two of three runs slow down
        ([1.0, 1.0, 1.2], [0.5, 0.5, 0.5], Standing.PARTLY),
        ([2.5, 2.5, 2.5], [0.5, 0.5, 0.5], Standing.FAILS),
        ([1.0], [0.1], Standing.OPEN),
        ([1.0], [0.5], Standing.OPEN),
    ],
)
def test_fig7_is_judged_by_sparsity_and_by_freezing_of_several_seeds(ends, lasts, outcome):
    frames = xr.Dataset(
        {
            "entropy": (("layers", "seed", "step"), [[[2.0, end] for end in ends]]),
            # the fastest change is the second, not the first
            "change": (
                ("layers", "seed", "shown_step"),
                [[[np.nan, 0.3, 0.6, last] for last in lasts]],
            ),
        },
        {"layers": [1], "step": [0, 20], "shown_step": [0, 5, 10, 20], "word": ("key", ["a", "b"])},
        {"rate": 5.0, "corpus": "x"},
    )
    judgement = fig7.judge(frames)
    assert judgement.standing == outcome
    assert ("too few seeds" in judgement.headline) is (len(ends) == 1)
    assert "our measure" in judgement.summary
    assert "slows to a quarter of its fastest change" in judgement.headline
    assert not re.search(
        "fr[eo]+z", judgement.summary + judgement.alt
    )  # the word of other measures


def test_the_recipes_at_paper_size_are_the_protocol():
    for figure in (fig7, fig10):
        recipe = recipe_for(figure.name, "wikitext")
        assert recipe.layers == (1, 3)
        run = recipe.run(recipe.corpus)
        assert run.model == text_transformer()
        assert (run.gradient.size, run.motion.clip) == (20, 0.5)
        assert run.motion.optimizer.name == "sgd"
    assert recipe_for(fig7.name, "wikitext").shown_steps == (0, 500, 1000, 1500)
    assert len(run.seeds) == 5
    assert run.task.validation_tokens is None


def test_steps_that_are_not_measured_are_refused():
    with pytest.raises(ValueError, match="shown_steps: step 7 is not recorded"):
        replace(recipe_for(fig7.name), shown_steps=(0, 7))
    with pytest.raises(ValueError, match="layers: expected different depths"):
        replace(recipe_for(fig10.name), layers=(1, 1))
    with pytest.raises(ValueError, match="words: expected 1 to 35"):
        replace(recipe_for(fig7.name), words=36)


def test_settings_of_a_training_are_checked_before_the_text_is_read():
    recipe = recipe_for("fig10")
    with pytest.raises(ValueError, match="training.dropout: "):
        replace(recipe, training={**recipe.training, "dropout": -1.0})
