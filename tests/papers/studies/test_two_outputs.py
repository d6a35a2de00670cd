"""The two-output model of the study on frequency is sequence classes with a given decoder."""

import numpy as np
import pytest
import xarray as xr

from attnlab.models import Extended
from attnlab.papers.studies.two_outputs import ScoreAttention, TwoOutputs
from attnlab.simulation import Diverged, Flow, Record, simulate
from attnlab.tasks.classes import SequenceClasses


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


def test_a_start_that_diverges_is_named():
    """Starts are settings of one program."""
    task, flow = TwoOutputs(common=1, own=1, starts=(0.0, 5.0)), Flow(1e3, most_steps=20)
    settings = {"loss": "logistic", "learning_rate": 1.0, "motion": flow, "progress": False}
    with pytest.raises(Diverged, match=r"\(setting [01], ") as problem:
        simulate(task, model=ScoreAttention(), **settings)
    assert problem.value.dataset["diverged_step"].sizes["setting"] == 2
