"""The flow: its error, its records, and when it is given up."""

import math

import numpy as np
import pytest

import attnlab
from attnlab import Extended, Flow, Save, SequenceClasses, simulate
from attnlab.papers.scan_and_snap.classes import syn_small

RATES = {"eta_y": 1.0, "eta_z": 1.0}


def test_the_error_follows_the_tolerance():
    def at_the_end(rtol):
        flow = Flow(rtol=rtol, atol=1e-2 * rtol)
        arguments = {**RATES, "steps": 1e3, "save": Save("logits", at=[1e3]), "dtype": "float64"}
        return simulate(syn_small(), flow, **arguments).attention_logits.values

    exact, tolerances = at_the_end(1e-13), [1e-5, 1e-7, 1e-9]
    errors = [abs(at_the_end(rtol) - exact).max() for rtol in tolerances]
    assert all(error < 100 * rtol for error, rtol in zip(errors, tolerances, strict=True))
    assert errors == sorted(errors, reverse=True)


def test_records_change_nothing():
    few, many = (
        simulate(syn_small(), Flow(), **RATES, steps=1e4, save=Save("logits", at=at))
        for at in ([0.0, 1e4], [0.0, 1.0, 7.0, 7.5, 300.0, 1e4])
    )
    np.testing.assert_array_equal(few.attention_logits, many.attention_logits.sel(time=few.time))


def test_progress_goes_to_the_end():
    seen = []
    simulate(syn_small(), Flow(), **RATES, steps=1e9, progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == pytest.approx(1)
    assert len(seen) > 20


def test_a_flow_that_does_not_end_is_given_up_and_the_others_go_on():
    save = Save("loss", at=[0.0, 1e-6, 1.0, 1e6])
    with pytest.raises(
        attnlab.Diverged,
        match=r"^the flow was given up after 200 steps \(about \de\+\d+ left\) at time .*"
        r"eta_z = 1e\+12, seed 0\).*Flow.most_steps",
    ) as problem:
        simulate(
            syn_small(), Flow(most_steps=200), eta_y=1.0, eta_z=[1.0, 1e12], steps=1e6, save=save
        )
    result = problem.value.dataset
    time = result.diverged_step.values[:, 0]
    assert time[0] == -1
    assert 1e-6 < time[1] < 1
    assert np.isfinite(result.loss.isel(eta_z=0)).all()
    assert (
        np.isfinite(result.loss.isel(eta_z=1, seed=0)).values.tolist() == [True, True] + [False] * 2
    )


def test_a_flow_without_a_velocity_is_given_up():
    uniform = SequenceClasses([[0.25] * 4] * 2, query=[0, 1], next_token=[2, 3])
    undefined = Extended(normalization="layer")  # of attention that is the same everywhere
    with pytest.raises(
        attnlab.Diverged, match="^the flow could take no further step in float32 at time 0"
    ):
        simulate(uniform, Flow(), **RATES, steps=1e3, model=undefined)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Flow(rtol=1e-300), r"^rtol: expected a number of at least 2.2e-15 in float64"),
        (lambda: Flow(rtol=math.nan), "^rtol"),
        (lambda: Flow(atol=0.0), "^atol: expected a number of at least 2.2e-308"),
        (lambda: Flow(most_steps=0), "^most_steps"),
        (
            lambda: simulate(syn_small(), Flow(rtol=1e-9), **RATES, steps=1),
            "^rtol: expected a number of at least 1.2e-06 in float32",
        ),
    ],
)
def test_tolerances_that_numbers_cannot_meet_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
