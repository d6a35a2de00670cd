"""Speed of attention between records, and the snap with its bootstrap over sequences."""

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

from attnlab.files.errors import InputError
from attnlab.observing.call import AttentionCall
from attnlab.observing.snap import (
    MOVING,
    NEVER,
    SNAPPED,
    STOPPED,
    UNKNOWN,
    Spans,
    moved,
    snap,
    speeds,
    stopped_by_schedule,
)
from attnlab.observing.statistics import statistics

STEPS = np.arange(0, 110, 10)


def changes_of(*series):
    """Changes (span, layer 0, head 0, sequence) by sequence."""
    values = np.array(series, float).T[:, None, None, :]
    return xr.DataArray(values, dims=("span", "layer", "head", "sequence"))


def spans_of(changes, *, faulty=(), **others):
    """Equal spans of ten steps; those next to a faulty step are not known."""
    bad = np.isin(STEPS, faulty)
    known = ~(bad[:-1] | bad[1:])
    return Spans(
        changes,
        STEPS,
        np.full(10, 10.0),
        known,
        others.get("rate_known", True),
        others.get("stopped", False),
    )


def moving_until(step):
    return np.where(STEPS[:-1] < step, 1.0, 0.001)


def test_an_interval_is_at_least_as_wide_as_a_span():
    found = snap(spans_of(changes_of(*[moving_until(40)] * 5)), resamples=200)
    for name in ("snap_step", "snap_median", "snap_high"):
        assert found[name].item() == 40, name
    assert found["snap_low"].item() == 30
    assert found["snap_missing"].item() == 0
    assert found["snap_step"].dims == ("layer", "head")
    assert found["snap_state"].item() == SNAPPED
    assert found["snap_speed_left"].item() == pytest.approx(0.001)
    assert found["snap_moved_since"].item() == pytest.approx(6 * 0.001 / 2)


def test_an_interval_covers_what_sequences_disagree_about():
    """A mean snaps with its latest sequence: one of ten moves until 70, the others until 40."""
    found = snap(spans_of(changes_of(*[moving_until(40)] * 9, moving_until(70))), resamples=4000)
    assert found["snap_step"].item() == 70
    assert (found["snap_low"].item(), found["snap_high"].item()) == (40, 70)
    assert found["snap_median"].item() == 70
    # and with 10 draws of 10 the late one is absent in (9/10)^10 of the resamples
    late = spans_of(changes_of(*[moving_until(40)] * 9, moving_until(1000)))
    still = snap(late, resamples=4000)
    assert np.isnan(still["snap_step"].item())
    assert still["snap_state"].item() == MOVING
    assert still["snap_missing"].item() == pytest.approx(1 - 0.9**10, abs=0.03)
    assert still["snap_median"].item() == 40  # of those that have one
    xr.testing.assert_identical(still, snap(late, resamples=4000))


def test_many_heads_are_apart_and_chunks_do_not_matter(monkeypatch):
    rng = np.random.default_rng(0)
    values = rng.random((10, 2, 3, 4)) * moving_until(50)[:, None, None, None]
    dims = ("span", "layer", "head", "sequence")
    whole = xr.DataArray(values, dims=dims)
    found = snap(spans_of(whole), resamples=50)
    assert (found["snap_step"] == 50).all()
    monkeypatch.setattr("attnlab.observing.snap.AT_A_TIME", 1)
    xr.testing.assert_identical(found, snap(spans_of(whole.transpose(*dims[::-1])), resamples=50))


def test_one_sequence_has_no_interval_and_a_short_one_is_left_out():
    alone = snap(spans_of(changes_of(moving_until(40))))
    assert alone["snap_step"].item() == 40
    assert np.isnan(alone["snap_median"].item())
    assert np.isnan(alone["snap_missing"].item())
    changes = changes_of(moving_until(40), moving_until(40), np.full(10, np.nan))
    two = snap(spans_of(changes))
    assert two["snap_median"].item() == 40
    assert two.attrs["snap_sequences"] == 2
    # too short for one of two layers alone, where the others still tell
    series = changes_of(*[moving_until(40)] * 8)
    short = series.copy()
    short[{"sequence": 0}] = np.nan
    both = snap(spans_of(xr.concat([series, short], "layer")))
    assert (both["snap_median"] == 40).all()
    assert (both["snap_missing"] < 0.01).all()


def test_no_snap_is_claimed_across_a_faulty_step():
    series = changes_of(*[moving_until(40)] * 3)
    # at 60 attention is at rest already, but nobody knows since when
    found = snap(spans_of(series, faulty=[60]))
    assert np.isnan(found["snap_step"].item())
    assert found["snap_state"].item() == UNKNOWN
    assert found["snap_missing"].item() == 1
    # before the last known motion it does no harm
    assert snap(spans_of(series, faulty=[20]))["snap_step"].item() == 40
    # a record twice over has no change into it; a head that moves on must not look at rest
    moving = np.ones(10)
    moving[7:] = 0.0
    assert snap(spans_of(changes_of(moving, moving)))["snap_step"].item() == 70
    for faulty in ([90], STEPS):
        assert np.isnan(snap(spans_of(changes_of(moving), faulty=faulty))["snap_step"].item())


def test_a_snap_needs_a_learning_rate_and_a_lasting_quiet():
    quiet = spans_of(changes_of(*[moving_until(40)] * 3))
    unknown = snap(replace(quiet, rate_known=False))
    assert np.isnan(unknown["snap_step"].item())
    assert unknown["snap_state"].item() == UNKNOWN
    assert unknown.attrs["snap_clock"] == "step"
    moving = spans_of(changes_of(*[moving_until(1000)] * 3))
    assert snap(replace(moving, rate_known=False))["snap_state"].item() == MOVING
    short = snap(spans_of(changes_of(*[moving_until(80)] * 3)))  # two spans, not three
    assert np.isnan(short["snap_step"].item())
    assert short["snap_state"].item() == UNKNOWN
    assert snap(spans_of(changes_of(np.zeros(10))))["snap_state"].item() == NEVER
    # the schedule stops a head that moves on per learning rate; one that snapped before stays so
    assert snap(replace(moving, stopped=True))["snap_state"].item() == STOPPED
    assert snap(replace(quiet, stopped=True))["snap_state"].item() == SNAPPED


def test_a_schedule_stops_where_its_mean_is_below_the_share():
    steps = np.arange(0, 1001, 20)
    cosine = np.cumsum([0, *np.repeat(1 + np.cos(np.pi * np.arange(50) / 50), 1)])
    assert stopped_by_schedule(steps, cosine)
    assert not stopped_by_schedule(steps, np.arange(steps.size))
    assert not stopped_by_schedule(steps[:40], cosine[:40])


def test_speeds_per_step_and_per_log_step():
    found = speeds(changes_of([2.0, 2.0, 2.0]).rename(span="step"), np.array([0, 1, 2, 4]))
    np.testing.assert_allclose(found["attention_speed"].squeeze(), [2, 2, 1])
    np.testing.assert_allclose(found["log_speed"].squeeze(), [np.nan, 2 / np.log(2), 2 / np.log(2)])
    with pytest.raises(InputError, match="steps"):
        speeds(changes_of([1.0, 1.0]).rename(span="step"), np.array([0, 1]))


def test_change_is_that_of_fixed_rows():
    rng = np.random.default_rng(0)
    q, k = rng.normal(size=(2, 2, 3, 40, 8))
    seen = np.ones((2, 1, 1, 40), bool)
    seen[1, ..., 20:] = False
    there = seen[:, 0, 0]

    def measured(query):
        call = AttentionCall(query, k, None, 1.0, 0, mask=seen, causal=True)
        return statistics(call, present=there)

    before, after = measured(q), measured(2 * q)
    maps = [one["attention"].values for one in (before, after)]
    found = moved(*maps, after["row_query"].values)
    assert (moved(maps[0], maps[0], after["row_query"].values) == 0).all()
    for b, h in np.ndindex(2, 3):
        rows = before["row_query"].values[b]
        rows = rows[rows >= 0]
        expected = []
        for i in rows:
            logits = k[b, h, : i + 1] @ q[b, h, i]
            p, r = (np.exp(x - x.max()) for x in (logits, 2 * logits))
            expected.append(np.abs(p / p.sum() - r / r.sum()).sum())
        assert found[b, h] == pytest.approx(np.mean(expected), rel=1e-5)
    assert before["row_query"].values[0].max() == 39
    assert before["row_query"].values[1].max() == 19


def test_a_training_that_has_diverged_has_no_snap():
    found = snap(spans_of(changes_of(*[np.full(len(STEPS) - 1, np.nan)] * 3)), resamples=20)
    assert found["snap_state"].item() == UNKNOWN
    assert all(np.isnan(found[name].item()) for name in ("snap_step", "snap_low"))
