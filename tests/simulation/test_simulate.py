"""simulate(): runs are resumed bit for bit, and a folder holds one run."""

import signal
import subprocess
import sys
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import killed_run
import numpy as np
import pytest
from bowl import Bowl
from interrupts import Keyboard

import attnlab
from attnlab import (
    Batches,
    Embedded,
    Extended,
    Flow,
    Interrupted,
    MarkovChains,
    Piecewise,
    Population,
    Record,
    Sequences,
    Simulation,
    Steps,
    Transformer,
    simulate,
)
from attnlab.files.errors import InputError
from attnlab.simulation import groups
from attnlab.simulation.groups import Recorded
from attnlab.tasks import Batch, Task


@dataclass(frozen=True)
class Lines(Task):
    """Linear regression: x and y = w x of a w that is drawn by seed."""

    vocab_size: int = 3
    length: int = 4

    def draw(self, key):
        return jax.random.normal(key, (self.vocab_size,))

    def batch(self, data, key, step, size):
        x = jax.random.normal(key, (size, self.length, self.vocab_size))
        return Batch(x, jax.nn.one_hot(jnp.argmax(x * data, axis=-1), self.vocab_size))


CHAINS = Simulation(
    MarkovChains(2, 8),
    Transformer(layers=1, dim=4, dropout=0.1),
    motion=Steps(12, "adam"),
    gradient=Batches(4),
    learning_rate=[0.1, 0.5],
    seeds=2,
    record=Record(("loss", "train_loss", "entropy", "parameters"), every=4),
)
CLASSES = Simulation(
    Sequences("syn-small", length=16),
    gradient=Batches(4),
    eta_y=[0.5, 1.0],
    seeds=2,
    motion=Steps(12),
    record=Record(every=4),
    init="uniform",
)
RUNS = {
    "transformer": CHAINS,
    "batches": CLASSES,
    "training set and positions": replace(
        CLASSES,
        task=Sequences("syn-small", length=16, training_set=9),
        model=Extended(position="learned", heads=2),
    ),
    "several sets, embedded": replace(
        CLASSES,
        task=Sequences(["syn-small", "syn-small"], length=16),
        model=Embedded(8),
        motion=Steps(12, "adamw"),
    ),
    "general path, own data in each cell": replace(
        CLASSES, exact=False, init="zero", independent=True
    ),
    "own task": replace(CHAINS, task=Lines(), record=Record(("loss", "parameters"), every=4)),
    "schedule": Simulation(
        Bowl(),
        motion=Steps(12, "adam", clip=0.5),
        gradient=Batches(2),
        seeds=2,
        learning_rate={"x": Piecewise((0, 5), (0.1, 0.3)), "y": [0.1, 0.2]},
        record=Record(("loss", "distance", "parameters"), every=4),
    ),
    "flow": Simulation(
        "syn-small",
        motion=Flow(1e3),
        eta_y=[0.5, 1.0],
        seeds=2,
        init="uniform",
        record=Record(at=(0.0, 1.0, 50.0, 1e3)),
    ),
    "flow of a learner": Simulation(
        Bowl(),
        motion=Flow(20.0, solver="implicit"),
        learning_rate=1.0,
        seeds=2,
        dtype="float64",
        record=Record(("loss", "parameters"), at=(0.0, 1.0, 5.0, 20.0)),
    ),
}


def stop_after(records, run, folder, monkeypatch):
    """Run until Ctrl-C is pressed after a number of records in all groups together."""
    keyboard, put, seen = Keyboard(monkeypatch), Recorded.put, []

    def press(recorded, shape, index, found):
        put(recorded, shape, index, found)
        seen.append(index)
        if len(seen) == records:
            keyboard.press()

    monkeypatch.setattr(Recorded, "put", press)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(Interrupted) as stopped:
            simulate(run, out=folder, progress=False)
    finally:
        signal.signal(signal.SIGINT, before)
        monkeypatch.undo()
    return stopped.value


def assert_identical(found, expected):
    assert set(found.variables) == set(expected.variables)
    for name in expected.variables:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)


IN_GROUPS = ("transformer", "batches", "flow")  # also stopped, in several groups


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in RUNS if name not in IN_GROUPS])
def test_a_stopped_run_goes_on_bit_identically(name, tmp_path, monkeypatch):
    run = RUNS[name]
    whole = simulate(run, progress=False)
    stopped = stop_after(2, run, tmp_path / "run", monkeypatch)
    assert f"stopped at {run.clock}" in str(stopped) and "the same settings go on" in str(stopped)
    kept = stopped.dataset  # NaN where a group had not come so far
    assert_identical(kept.fillna(whole), whole.isel({run.clock: slice(kept.sizes[run.clock])}))
    assert bool(np.isfinite(kept["loss"]).any())
    assert not (tmp_path / "run" / "result.nc").exists()
    assert_identical(simulate(run, out=tmp_path / "run", progress=False), whole)
    assert_identical(simulate(run, out=tmp_path / "run", progress=False), whole)  # from the file


@pytest.mark.slow
@pytest.mark.parametrize("name", IN_GROUPS)
@pytest.mark.parametrize("records", [1, 5, 9])
def test_several_groups_go_on_bit_identically(name, records, tmp_path, monkeypatch):
    """Groups that have not begun, are at work, and have ended, when the run is stopped."""
    run = replace(RUNS[name], seeds=3)
    monkeypatch.setitem(groups.RUNS_AT_ONCE, "cpu", 2)
    whole = simulate(run, progress=False)
    stop_after(records, run, tmp_path / "run", monkeypatch)
    monkeypatch.setitem(groups.RUNS_AT_ONCE, "cpu", 2)
    assert_identical(simulate(run, out=tmp_path / "run", progress=False), whole)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "writes"), [("transformer", 1), ("sequence classes", 5)])
def test_a_run_of_two_threads_that_is_killed_goes_on_bit_identically(
    name, writes, tmp_path, monkeypatch
):
    """The process dies right after a checkpoint, while the threads of other groups go on."""
    folder = tmp_path / "run"
    command = [sys.executable, killed_run.__file__, name, folder, str(writes)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not (folder / "result.nc").exists()
    monkeypatch.setitem(groups.RUNS_AT_ONCE, "cpu", killed_run.RUNS_AT_ONCE)
    whole = simulate(killed_run.RUNS[name], progress=False)
    assert_identical(simulate(killed_run.RUNS[name], out=folder, progress=False), whole)


# -- the folder -----------------------------------------------------------------------------------


def test_another_run_is_refused_in_the_folder(tmp_path):
    simulate(CHAINS, out=tmp_path / "run", progress=False)
    with pytest.raises(InputError, match=r"out: .* holds another run .gradient.size: 4 there, 5 h"):
        simulate(CHAINS, batch_size=5, out=tmp_path / "run")
    with pytest.raises(InputError, match=r"out: the folder .* does not exist; make it first"):
        simulate(CHAINS, out=tmp_path / "nowhere" / "run")


def test_the_same_classes_from_elsewhere_are_the_same_run(tmp_path):
    """Where classes come from is told in results; what they are decides."""
    run = replace(CLASSES, init="zero", seeds=1)
    first = simulate(run, out=tmp_path / "run", progress=False)
    classes = run.sets[0]
    written = attnlab.SequenceClasses(
        classes.probs, classes.query, classes.next_token, classes.prior, names=classes.names
    )
    again = simulate(run, classes=written, out=tmp_path / "run", progress=False)
    assert_identical(again, first)


def test_a_damaged_result_is_made_again(tmp_path):
    first = simulate(CHAINS, out=tmp_path / "run", progress=False)
    (tmp_path / "run" / "result.nc").write_bytes(b"nothing")
    assert_identical(simulate(CHAINS, out=tmp_path / "run", progress=False), first)
    (tmp_path / "run" / "result.nc").unlink()
    assert_identical(simulate(CHAINS, out=tmp_path / "run", progress=False), first)


def test_a_run_that_diverged_diverges_again_from_its_checkpoint(tmp_path):
    run = Simulation(
        "syn-small",
        gradient=Population(),
        eta_y=[1.0, 1e38],
        motion=Steps(50),
        record=Record(every=10),
    )
    found = []
    for _ in range(2):
        with pytest.raises(attnlab.Diverged) as problem:
            simulate(run, out=tmp_path / "run", progress=False)
        found.append(problem.value)
    assert str(found[0]) == str(found[1])
    assert_identical(found[1].dataset, found[0].dataset)
