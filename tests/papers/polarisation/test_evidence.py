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


@pytest.mark.parametrize("name", ["weighting-square", "regression-5-dim-10", "target-5"])
def test_a_seed_on_file_is_trained_again(name):
    run = replace(EVIDENCE.runs[name](), seeds=1)
    found, kept = measured(run, simulate(run, progress=False)), EVIDENCE.read(name)
    for key, value in found.items():
        np.testing.assert_allclose(value[0], kept[key][0], rtol=1e-5, atol=1e-9)


def test_the_end_of_the_chain_is_near_that_of_bayes():
    """Before it is stiff an explicit solver finds the same peak of the frequent query."""
    run = runs.chain_end(100.0, seeds=1)
    assert (run.motion.solver, runs.chain_end().motion.solver) == ("explicit", "implicit")
    found, kept = measured(run, simulate(run, progress=False)), EVIDENCE.read("chain-end")
    np.testing.assert_allclose(found["peak"][0], kept["peak"][0], atol=1e-3)
    pi, stickiness = run.task.frequencies, run.task.stickiness
    bayes = theory.group_loss(pi, stickiness, range(4))
    np.testing.assert_allclose(kept["loss"] - kept["above_bayes"], bayes, atol=2e-6)
