"""Where theories meet, at small size: the direction of each finding, from real runs."""

import numpy as np
import pytest
import xarray as xr
from made_small import make, small

from attnlab.experiments import experiment, on_halves
from attnlab.models import Extended
from attnlab.papers.studies.two_outputs import ScoreAttention, TwoOutputs
from attnlab.shelf import offered
from attnlab.simulation import Flow, Record, simulate
from attnlab.tasks.classes import SequenceClasses


def test_one_token_takes_all_without_the_norm_only():
    runs = make("studies/norm")
    top = runs["top"].isel(time=-1)
    assert (top.sel(norm="none") > 0.9).all()
    assert (top.sel(norm="l2") < 0.9).all()
    assert (runs["late"] > 0).all()  # neither has stopped


def test_the_best_score_wins_with_a_fixed_decoder_and_frequency_with_a_fast_one():
    runs = make("studies/frequency")
    right = runs["right"].sel(norm="none").mean("seed")
    fixed, fast = right.isel(ratio=0), right.isel(ratio=-1)
    assert (fixed.sel(rule="score") > fixed.sel(rule="frequency")).all()
    assert (fast.sel(rule="frequency") > fast.sel(rule="score")).all()
    for half in on_halves(experiment("frequency").judge, runs):
        assert np.isfinite(half["score_none_fixed_large"])


def test_every_theory_that_admits_a_run_predicts_it():
    runs = make("studies/together")
    errors = runs["error"]
    asked = [name for name in offered("theories") if name in runs["theory"]]
    assert {"sgd", "polarisation-class", "joma-moving"} <= set(asked)
    for theory in asked:  # each is about one of the models
        assert int(errors.sel(theory=theory).notnull().all("seed").sum()) == 1
    np.testing.assert_allclose(errors.sel(theory="nothing moves"), 1.0)
    moving = errors.sel(model="mlp", theory="joma-moving")
    assert (moving < errors.sel(model="mlp", theory="joma-stationary")).all()


@pytest.mark.parametrize("normalization", ["none", "l2"])
def test_two_outputs_are_sequence_classes_with_two_columns(normalization):
    task, at = TwoOutputs(common=1, own=1), (0.0, 3.0)
    flow = {"motion": Flow(at[-1]), "dtype": "float64", "progress": False}
    found = simulate(
        task,
        model=ScoreAttention(normalization),
        loss="logistic",
        learning_rate={"decoder": 2 * 0.7, "attention": 1.0},
        record=Record(("attention", "parameters"), at=at),
        **flow,
    ).isel(seed=0)
    P, y = found["attention"].values[0], found["parameters.decoder"].values[0]
    L, M = task.vocab_size, task.vocab_size + 3
    classes = SequenceClasses(
        np.pad(P, ((0, 0), (0, 3))), query=[L, L], next_token=[L + 1, L + 2], vocab_size=M
    )
    Y = np.full((1, M, M), -60.0)  # every other output is never likely
    Y[0, :L, L + 1], Y[0, :L, L + 2] = y / 2, -y / 2
    same = simulate(
        classes,
        model=Extended(normalization=normalization),
        eta_y=0.7,
        eta_z=1.0,
        init={"decoder": Y},
        record=Record("attention", at=at),
        **flow,
    ).isel(seed=0)
    xr.testing.assert_allclose(
        found["attention"]
        .isel(time=-1, drop=True)
        .reset_coords(drop=True)
        .rename(sequence_class="sequence"),
        same["attention"].isel(time=-1, token=slice(L), drop=True).reset_coords(drop=True),
        rtol=1e-5,
    )


def test_recipes_are_refused_with_the_field_and_the_remedy():
    from dataclasses import replace

    with pytest.raises(ValueError, match="ratios: expected rising numbers from 0"):
        replace(small("studies/frequency"), ratios=(1.0, 2.0))
    with pytest.raises(ValueError, match="records: expected at least"):
        replace(small("studies/norm"), records=1)
