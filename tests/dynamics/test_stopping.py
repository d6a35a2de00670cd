"""Ctrl-C: answered at once, keeping what was recorded."""

import threading

import numpy as np
import pytest

from attnlab import Flow, Interrupted, Limit, simulate
from attnlab.dynamics import stopping
from attnlab.dynamics.stack import RUNS_AT_ONCE
from attnlab.dynamics.stopping import Pace, answering
from attnlab.papers.scan_and_snap.classes import syn_small

RATES = {"eta_y": 1.0, "eta_z": 1.0}


@pytest.mark.parametrize(
    ("engine", "steps", "clock"), [(Limit(), 50, "step"), (Flow(), 1e9, "time")]
)
def test_a_run_that_is_stopped_keeps_what_was_recorded(engine, steps, clock, keyboard):
    whole = simulate(syn_small(), engine, **RATES, steps=steps)
    press = keyboard.press_after(0.3)
    with pytest.raises(Interrupted, match=f"^stopped at {clock} .* of ") as stopped:
        simulate(syn_small(), engine, **RATES, steps=steps, progress=press)
    kept = stopped.value.dataset
    assert 1 < kept.sizes[clock] < whole.sizes[clock]
    assert kept.drop_attrs().equals(whole.isel({clock: slice(kept.sizes[clock])}).drop_attrs())


def test_runs_that_had_not_begun_are_nan(keyboard, monkeypatch):
    monkeypatch.setitem(RUNS_AT_ONCE, "cpu", 1)
    press = keyboard.press_after(0.2)
    with pytest.raises(Interrupted, match=r"^stopped at steps 0 to \d+ of 50$") as stopped:
        simulate(syn_small(), Limit(), **RATES, steps=50, seeds=9, progress=press)
    loss = stopped.value.dataset.loss
    assert np.isfinite(loss[0, 0])
    assert np.isnan(loss[-1]).all()


def test_nothing_recorded_is_no_dataset(keyboard, monkeypatch):
    monkeypatch.setattr("attnlab.dynamics.driving.PACES", {})
    monkeypatch.setattr("attnlab.dynamics.driving._compile", lambda batch: keyboard.press())
    with pytest.raises(Interrupted, match="^stopped at step 0 of 50") as stopped:
        simulate(syn_small(), Limit(), **RATES, steps=50)
    assert stopped.value.dataset is None


def test_what_goes_wrong_in_one_batch_ends_the_others(monkeypatch):
    monkeypatch.setitem(RUNS_AT_ONCE, "cpu", 1)
    seen = []

    def follow(done):
        seen.append(done)
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        simulate(syn_small(), Limit(), **RATES, steps=50, seeds=9, progress=follow)
    assert len(seen) < 9


def test_work_that_does_not_hear_is_left_alone(keyboard, monkeypatch):
    monkeypatch.setattr(stopping, "GRACE_SECONDS", 0.0)
    free = threading.Event()

    def compile_for_ever(told):
        keyboard.press()
        free.wait()

    with pytest.raises(KeyboardInterrupt):
        answering(compile_for_ever)
    free.set()


def test_work_that_keeps_something_is_waited_for(keyboard, monkeypatch):
    monkeypatch.setattr(stopping, "GRACE_SECONDS", 0.0)
    kept = []

    def keep(told):
        told.keeping = True
        keyboard.press()
        threading.Event().wait(0.05)
        kept.append(True)

    with pytest.raises(KeyboardInterrupt):
        answering(keep)
    assert kept


def test_work_answers_and_says_what_goes_wrong(keyboard):
    assert answering(lambda told: 5) == 5
    with pytest.raises(ZeroDivisionError):
        answering(lambda told: 1 / 0)

    def full_disk(told):
        keyboard.press()
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        answering(full_disk)


def test_calls_are_short_at_first_and_then_half_a_second():
    pace = Pace()
    assert pace.steps == 1
    pace.took(1, 1e-6)
    assert pace.steps == stopping.FASTER
    pace.took(3, 10.0)  # cut short: another number of steps
    assert pace.steps == stopping.FASTER
    pace.took(16, 0.05)
    assert pace.steps == 160
    pace.took(160, 100.0)
    assert pace.steps == 1
