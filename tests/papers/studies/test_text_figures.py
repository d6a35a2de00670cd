"""The studies on text at a size that a test can afford; what their judges say of made-up runs."""

import re
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from made_small import small

from attnlab.experiments import Standing, experiment, on_halves, recipe_for
from attnlab.measures.turning import SHAPES
from attnlab.models import text_transformer
from attnlab.papers.studies.figures import dip, freeze
from attnlab.papers.studies.figures.dip import Arm, turns


def make(name, **changes):
    """The data of a tiny study; it must also be judged, on halves too, shown and drawn."""
    study, heard = experiment(name), []
    runs = study.data(replace(small(name), **changes), progress=heard.append)
    assert heard == sorted(heard)
    assert heard[-1] == pytest.approx(1.0)
    judgement = study.judge(runs)
    for text in (judgement.headline, judgement.summary, judgement.alt):
        assert text.endswith(".")
        assert "nan" not in text
    for half in on_halves(study.judge, runs):
        assert half.keys() == judgement.numbers.keys()
    table = study.table(runs)
    assert {len(row) for row in table.shown()} == {len(table.shown()[0])}
    figure = study.draw(runs)
    figure.canvas.draw()
    return runs, judgement


@pytest.mark.slow
def test_dip_records_every_arm_and_layer():
    runs, judgement = make("dip")
    assert runs["step"].values.tolist() == [0, 1, 2, 4, 8, 16, 20]
    for what in ("entropy", "window_entropy", "frequent_mass", "mlp_stable_rank", "qk_stable_rank"):
        values = runs[what].sel(arm="kept")
        assert values.dims == ("layers", "rate", "seed", "step", "layer")
        assert values.sel(layers=2).notnull().all()
        assert values.sel(layers=1).isnull().all()
        other = runs[what].sel(arm="linear")
        assert other.sel(layers=1, layer=0).notnull().all()
        assert other.sel(layers=1, layer=1).isnull().all()
        assert other.sel(layers=2).isnull().all()
    assert (runs["entropy"].sel(arm="kept", layers=2).isel(step=0, layer=0).std("rate") == 0).all()
    assert {"cycles_kept_2", "cycles_linear_1"} <= judgement.numbers.keys()


def test_arms_of_dip_differ_in_their_own_settings():
    arms = {"kept": Arm(layers=(1, 2)), "reset": Arm(layers=(1,), reset_moments=True)}
    runs = replace(recipe_for("dip"), arms=arms).runs()
    assert list(runs) == [("kept", 1), ("kept", 2), ("reset", 1)]
    assert [run.model.layers for run in runs.values()] == [1, 2, 1]
    assert [run.motion.reset_moments for run in runs.values()] == [False, False, True]
    linear = replace(recipe_for("dip"), arms={"linear": Arm(layers=(1,), activation="linear")})
    assert [run.model.activation for run in linear.runs().values()] == ["linear"]


def made_up(curve, seeds=5):
    """Runs of one depth whose entropy is a function of rate x steps, with a little noise."""
    rates, steps = np.array([1e-5, 1e-4]), np.unique(np.geomspace(1, 30_000, 80).astype(int))
    steps = np.append(0, steps)
    x = rates[:, None] * steps
    noise = np.random.default_rng(0).normal(scale=0.002, size=(seeds, *x.shape))
    entropy = (curve(np.maximum(x, 1e-9)) + noise).transpose(1, 0, 2)[None, None, ..., None]
    dims = ("arm", "layers", "rate", "seed", "step", "layer")
    names = ("entropy", "window_entropy", "frequent_mass", "mlp_stable_rank", "qk_stable_rank")
    return xr.Dataset(
        {name: (dims, entropy) for name in names},
        {
            "arm": ["kept"],
            "layers": [1],
            "rate": rates,
            "seed": range(seeds),
            "step": steps,
            "layer": [0],
        },
        {"corpus": "made up", "turn": 0.05, "context": 35, "frequent_share": 0.5},
    )


def hollow(x, at, depth):
    return -depth * np.exp(-((np.log10(x / at) / 0.2) ** 2))


@pytest.mark.parametrize(
    ("curve", "shape", "standing"),
    [
        (lambda x: 2.5 + 0 * x, "no fall", Standing.FAILS),
        (lambda x: 2.5 - x / (x + 0.01), "dip", Standing.FAILS),
        (lambda x: 2.5 + hollow(x, 0.01, 1), "bounce", Standing.HOLDS),
        (lambda x: 2.5 + hollow(x, 0.01, 1) - x / (x + 0.1), "cycle", Standing.CORRECTED),
    ],
    ids=["no fall", "dip", "bounce", "cycle"],
)
def test_the_shape_of_a_curve_is_told(curve, shape, standing):
    runs = made_up(curve)
    found = turns(runs, "entropy")
    assert (found["shape"] == SHAPES.index(shape)).all()
    judgement = dip.judge(runs)
    assert judgement.standing == standing
    assert f"{found['shape'].size} {shape}" in judgement.summary
    if shape in ("bounce", "cycle"):
        assert judgement.numbers["first_at_kept_1"] == pytest.approx(0.01, rel=0.1)
        assert judgement.numbers["slope_kept_1"] == pytest.approx(-1, abs=0.1)
        # JoMA's numbers stand beside ours where the rate is there
        assert "published 1.554 at 2,000, 2.213" in judgement.summary


def test_runs_of_one_start_count_once():
    """Two rates whose runs are equal tell no more than one of them."""
    runs = made_up(lambda x: 2.5 + hollow(x, 0.01, 1) - x / (x + 0.1), seeds=12)
    runs = runs.isel(rate=[0, 0]).assign_coords(rate=[1e-5, 1.1e-5])
    both, one = (dip.judge(of).numbers for of in (runs, runs.isel(rate=[0])))
    for end in ("", "_low", "_high"):
        assert both[f"first_kept_1{end}"] == pytest.approx(one[f"first_kept_1{end}"])
    assert both["first_kept_1_low"] < both["first_kept_1"] < both["first_kept_1_high"]


@pytest.mark.slow
def test_freeze_measures_how_much_of_attention_moves():
    runs, judgement = make("freeze")
    assert runs["change"].dims == ("layers", "rate", "seed", "measured_step")
    assert ((runs["change"] > 0) & (runs["change"] < 1)).all()
    # in the first steps it moves as fast as the rate is large
    first = runs["change"].isel(measured_step=0).mean("seed")
    assert (first.sel(rate=5.0) > 5 * first.sel(rate=0.1)).all()
    assert {"left_at_best_1_5", "left_1_0.1"} <= judgement.numbers.keys()


@pytest.mark.parametrize(
    ("left", "verdict", "standing"),
    [
        ((0.1, 0.1), "slowed", Standing.HOLDS),
        ((0.9, 0.9), "moving", Standing.PARTLY),  # sparse it is all the same
        ((0.0, 0.5), "cannot tell", Standing.OPEN),
    ],
)
def test_slowed_is_what_the_seeds_agree_on(left, verdict, standing):
    steps, seeds = [1, 10, 100, 1000, 2000, 3000], 6
    low, high = left
    ends = np.where(np.arange(seeds) % 2, low, high)[:, None] + 0.01 * np.arange(3)
    change = np.concatenate([np.ones((seeds, 3)), ends], axis=1)
    entropy = np.concatenate([np.full((seeds, 3), 2.5), np.full((seeds, 3), 1.0)], axis=1)
    entropy = entropy + 0.01 * np.arange(seeds)[:, None]
    dims, shape = ("layers", "rate", "seed", "measured_step"), (1, 1, seeds, len(steps))
    falling = np.broadcast_to(np.linspace(3, 2, len(steps)), shape)
    runs = xr.Dataset(
        {
            "change": (dims, change.reshape(shape)),
            "entropy": (dims, entropy.reshape(shape)),
            "top": (dims, entropy.reshape(shape)),
            "validation_loss": (dims, falling),
            "train_loss": (dims, falling),
        },
        {"layers": [1], "rate": [1.0], "seed": range(seeds), "measured_step": steps},
        {"corpus": "made up", "gap": 1},
    )
    assert freeze.verdict(freeze.left(runs["change"].squeeze())) == verdict
    judgement = freeze.judge(runs)
    assert judgement.standing == standing
    assert "slowed to a quarter of its fastest change" in judgement.headline
    assert not re.search(
        "fr[eo]+z", judgement.summary + judgement.alt
    )  # the word of other measures


def test_what_is_left_is_as_uncertain_as_the_fastest_change():
    dims = {"seed": range(4), "measured_step": range(5)}
    peaks = np.array([1.0, 2.0, 3.0, 4.0])[:, None]
    same_end = xr.DataArray(np.hstack([peaks, np.ones((4, 4))]), dims, ("seed", "measured_step"))
    assert freeze.left(same_end).error > 0.05  # the peaks differ, although the ends do not
    same_share = xr.DataArray(
        peaks * np.array([1.0, 0.5, 0.5, 0.5, 0.5]), dims, ("seed", "measured_step")
    )
    assert freeze.left(same_share).value == pytest.approx(0.5)
    assert freeze.left(same_share).error == pytest.approx(0)
    best = xr.DataArray([0, 0, 0, 0], {"seed": range(4)}, ("seed",))
    assert freeze.left(same_share, best=best).value == pytest.approx(1)


@pytest.mark.parametrize("name", ["dip", "freeze"])
def test_the_recipes_at_paper_size_are_read(name):
    recipe = recipe_for(name, "wikitext")
    assert recipe.figure == name
    assert recipe.run(recipe.corpus).model == text_transformer()
    assert recipe.seeds >= 4


def test_recipes_that_make_no_sense_are_refused():
    recipe = recipe_for("freeze")
    for wrong, message in (
        ({"measured_steps": (1, 10)}, "measured_steps: expected more than 3 rising steps"),
        ({"gap": 1000}, "gap: expected at least 1, and less than"),
        ({"layers": ()}, "layers: expected different depths"),
    ):
        with pytest.raises(ValueError, match=message):
            replace(recipe, **wrong)
    with pytest.raises(ValueError, match="arms.kept.layers: expected different depths"):
        replace(recipe_for("dip"), arms={"kept": Arm(layers=(1, 1))})
