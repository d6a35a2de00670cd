"""Training runs are recorded where they are quoted, and turns are located between records."""

import numpy as np
import pytest

from attnlab.auditing.runs import RECORDS, recorded_at
from attnlab.papers.scan_and_snap.cases import (
    UNEVEN,
    WEAK,
    at_ratios,
    first_turn,
    logits,
    training_path,
    transition_time,
)
from attnlab.simulation import simulate


def test_what_is_quoted_at_t0_is_recorded_there():
    times = at_ratios(WEAK)["time"].values
    assert {transition_time(WEAK), 10 * transition_time(WEAK)} <= set(times.tolist())
    assert times.size == RECORDS
    assert np.all(np.diff(times) > 0)
    assert times[-1] == WEAK.steps
    elsewhere = WEAK.at(eta_z=WEAK.eta_y / 7.0)  # not a ratio of the ladder
    assert transition_time(WEAK) in training_path(elsewhere)[0]
    assert recorded_at(1e3, exactly=[1e9]) == recorded_at(1e3)


def test_a_turn_is_located_between_records():
    times, z = training_path(UNEVEN)
    turn = first_turn(times, z[:, 0, 1])
    run = simulate(
        UNEVEN.classes,
        eta_y=UNEVEN.eta_y,
        eta_z=UNEVEN.eta_z,
        time=2e6,
        dtype="float64",
        what="logits",
        at=[0.0, *np.linspace(1e6, 2e6, 101)],
        progress=False,
    ).isel(seed=0)
    dense = run["time"].values[logits(UNEVEN, run)[:, 0, 1].argmax()]
    assert turn == pytest.approx(dense, rel=0.02)
    assert turn not in times
    assert first_turn(times, -z[:, 0, 0]) == np.inf  # the common token falls throughout
    assert first_turn(times, -z[:, 0, 2]) == times[1]
