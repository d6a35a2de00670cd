"""Numbers on file: of which runs they are, and trainings that give some of them again."""

from dataclasses import replace

import numpy as np
import pytest

from attnlab import simulate
from attnlab.papers.polarisation import runs, theory
from attnlab.papers.polarisation.evidence import EVIDENCE, measured


@pytest.mark.parametrize("name", EVIDENCE.runs)
def test_numbers_on_file_are_of_their_runs(name):
    found = EVIDENCE.read(name)
    assert found.sizes["seed"] == len(EVIDENCE.runs[name]().seeds)
    assert found.to_dataarray().notnull().all()


@pytest.mark.parametrize(
    ("name", "what", "low", "high"),
    [
        ("weighting-softmax", "top", 0.93, 0.96),
        ("weighting-square", "top", 0.98, 1.0),
        ("weighting-l1", "top", 0.52, 1.0),
        ("weighting-relu", "top", 0.52, 1.0),
        ("weighting-sum", "top", 0.21, 0.28),
        ("weighting-sigmoid", "top", 0.10, 0.105),
        ("regression-1", "top", 0.051, 0.060),
        ("regression-1", "growth", 8.4, 79.6),
        ("regression-5-dim-10", "top", 0.07, 0.91),
        ("target-2", "top", 0.16, 0.16),
        ("target-10", "top", 0.955, 0.955),
        ("target-one-hot", "top", 0.988, 0.988),
        ("target-one-hot", "over_median", 3.7, 6.7),
        ("tied-10", "top", 0.997, 1.0),
        ("tied-10", "over_median", 5.5, 6.2),
        ("tied-50", "over_median", 5.5, 6.2),
        ("chain-equal", "loss", 0.820, 0.820),
    ],
)
def test_what_was_measured_before_is_found_again(name, what, low, high):
    """A range over a few draws holds the mean within two errors; one draw is among the seeds."""
    kept = EVIDENCE.read(name)[what].values.ravel()
    error, digit = kept.std(ddof=1) / np.sqrt(kept.size), 5e-4
    if low < high:
        assert low - 2 * error - digit <= kept.mean() <= high + 2 * error + digit
    else:
        assert kept.min() - digit <= low <= kept.max() + digit


@pytest.mark.parametrize("name", ["weighting-square", "regression-5-dim-10"])
def test_a_seed_on_file_is_trained_again(name):
    """One by steps and one by flow."""
    run = replace(EVIDENCE.runs[name](), seeds=1)
    found, kept = measured(run, simulate(run, progress=False)), EVIDENCE.read(name)
    for key, value in found.items():
        np.testing.assert_allclose(value[0], kept[key][0], rtol=1e-5, atol=1e-9)


def test_the_end_of_the_chain_is_near_that_of_bayes():
    run, kept = runs.chain_end(), EVIDENCE.read("chain-end")
    assert [runs.chain_end(time).motion.solver for time in (100.0, run.motion.time)] == [
        "explicit",
        "implicit",
    ]
    pi, stickiness = run.task.frequencies, run.task.stickiness
    bayes = theory.group_loss(pi, stickiness, range(4))
    np.testing.assert_allclose(kept["loss"] - kept["above_bayes"], bayes, atol=2e-6)
    assert (kept["peak"].isel(query=0) > 0.998).all()  # as in training, test_focus.py
