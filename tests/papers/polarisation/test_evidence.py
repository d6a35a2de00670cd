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
