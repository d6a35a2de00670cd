"""Training runs are recorded where they are quoted, and turns are located between records."""

import numpy as np
import pytest

from attnlab.auditing.runs import RECORDS, recorded_at
from attnlab.papers.scan_and_snap import cases
from attnlab.simulation import simulate


def test_what_is_quoted_at_t0_is_recorded_there():
    times = cases.at_ratios(cases.WEAK)["time"].values
    assert {cases.transition_time(cases.WEAK), 10 * cases.transition_time(cases.WEAK)} <= set(
        times.tolist()
    )
    assert times.size == RECORDS
    assert np.all(np.diff(times) > 0)
    assert times[-1] == cases.WEAK.steps
    elsewhere = cases.WEAK.at(eta_z=cases.WEAK.eta_y / 7.0)  # not a trained ratio
    assert cases.transition_time(cases.WEAK) in cases.training_path(elsewhere)[0]
    assert recorded_at(1e3, exactly=[1e9]) == recorded_at(1e3)


def test_a_turn_is_located_between_records():
    times, z = cases.training_path(cases.UNEVEN)
    turn = cases.first_turn(times, z[:, 0, 1])
    run = simulate(
        cases.UNEVEN.classes,
        eta_y=cases.UNEVEN.eta_y,
        eta_z=cases.UNEVEN.eta_z,
        time=2e6,
        dtype="float64",
        what="logits",
        at=[0.0, *np.linspace(1e6, 2e6, 101)],
        progress=False,
    ).isel(seed=0)
    dense = run["time"].values[cases.logits(cases.UNEVEN, run)[:, 0, 1].argmax()]
    assert turn == pytest.approx(dense, rel=0.02)
    assert turn not in times
    assert cases.first_turn(times, -z[:, 0, 0]) == np.inf  # the common token falls throughout
    assert cases.first_turn(times, -z[:, 0, 2]) == times[1]
