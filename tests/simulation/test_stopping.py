"""Ctrl-C: answered at once, keeping what was recorded."""

import threading
from dataclasses import replace

import numpy as np
import pytest
from bowl import Bowl

from attnlab import Batches, Flow, Interrupted, Population, Simulation, Steps, simulate
from attnlab.simulation import stopping, trainer
from attnlab.simulation.groups import RUNS_AT_ONCE, Group
from attnlab.simulation.stopping import Pace, answering

CLASSES = Simulation("syn-small", gradient=Population(), motion=Steps(50))
RUNS = {
    "steps": CLASSES,
    "flow": replace(CLASSES, motion=Flow(1e9)),
    "learner": Simulation(Bowl(), motion=Steps(50), gradient=Batches(4), learning_rate=0.1),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_that_is_stopped_keeps_what_was_recorded(name, keyboard):
    run = RUNS[name]
    clock, whole = run.clock, simulate(run)
    press = keyboard.press_after(0.3)
    with pytest.raises(Interrupted, match=f"^stopped at {clock} .* of ") as stopped:
        simulate(run, progress=press)
    kept = stopped.value.dataset
    assert 1 < kept.sizes[clock] < whole.sizes[clock]
    assert kept.drop_attrs().equals(whole.isel({clock: slice(kept.sizes[clock])}).drop_attrs())


def test_runs_that_had_not_begun_are_nan(keyboard, monkeypatch):
    monkeypatch.setitem(RUNS_AT_ONCE, "cpu", 1)
    press = keyboard.press_after(0.2)
    with pytest.raises(Interrupted, match=r"^stopped at steps 0 to \d+ of 50$") as stopped:
        simulate(CLASSES, seeds=9, progress=press)
    loss = stopped.value.dataset.loss
    assert np.isfinite(loss[0, 0])
    assert np.isnan(loss[-1]).all()


def test_without_a_record_there_is_no_dataset(keyboard, monkeypatch):
    monkeypatch.setattr(trainer, "PACES", {})
    monkeypatch.setattr(Group, "compile", lambda group: keyboard.press())
    with pytest.raises(Interrupted, match="^stopped at step 0 of 50") as stopped:
        simulate(CLASSES)
    assert stopped.value.dataset is None


def test_an_error_in_one_group_ends_the_others(monkeypatch):
    """The others would go on for hours."""
    monkeypatch.setitem(RUNS_AT_ONCE, "cpu", 1)
    errors = iter([RuntimeError("enough")])

    def follow(done):
        for error in errors if done > 0 else ():
            raise error

    with pytest.raises(RuntimeError, match="enough"):
        simulate(CLASSES, seeds=9, steps=2 * 10**9, every=10**9, progress=follow)


def test_work_that_cannot_stop_is_left_alone(keyboard, monkeypatch):
    monkeypatch.setattr(stopping, "GRACE_SECONDS", 0.0)
    free = threading.Event()

    def compile_for_ever(asked):
        keyboard.press()
        free.wait()

    with pytest.raises(KeyboardInterrupt):
        answering(compile_for_ever)
    free.set()


def test_work_that_is_writing_may_finish(keyboard, monkeypatch):
    monkeypatch.setattr(stopping, "GRACE_SECONDS", 0.0)
    kept = []

    def keep(asked):
        asked.keeping = True
        keyboard.press()
        threading.Event().wait(0.05)
        kept.append(True)

    with pytest.raises(KeyboardInterrupt):
        answering(keep)
    assert kept


def test_work_returns_its_result_or_its_error(keyboard):
    assert answering(lambda asked: 5) == 5
    with pytest.raises(ZeroDivisionError):
        answering(lambda asked: 1 / 0)

    def full_disk(asked):
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
