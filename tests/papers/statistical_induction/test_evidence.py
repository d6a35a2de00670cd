"""Numbers on file: of which runs they are, and one short run that gives some of them again."""

from dataclasses import replace

import numpy as np
import pytest

from attnlab import Steps, simulate
from attnlab.papers.statistical_induction import runs
from attnlab.papers.statistical_induction.distances import distances
from attnlab.papers.statistical_induction.evidence import EVIDENCE


@pytest.mark.parametrize("name", EVIDENCE.runs)
def test_numbers_on_file_are_of_ten_seeds(name):
    run = EVIDENCE.runs[name]()
    assert EVIDENCE.read(name).sizes == {"seed": 10, "step": len(run.record_steps)}


def again(name, steps, **record):
    """Train the first seed for `steps` steps and compare with its file."""
    run = EVIDENCE.runs[name]()
    motion, record = Steps(steps, run.motion.optimizer), replace(run.record, **record)
    found = distances(simulate(replace(run, motion=motion, seeds=1, record=record), progress=False))
    kept = EVIDENCE.read(name).sel(seed=[0], step=found["step"])
    for measure in found:
        np.testing.assert_allclose(found[measure], kept[measure], atol=2e-3)
    return found


def test_a_recorded_seed_is_trained_again():
    found = again("dirichlet", 30)
    assert abs(found["score"][0, 0] - 1) < 0.01  # chance
    even = np.mean([1 / (t + 1) for t in range(1, runs.T)])
    assert abs(found["previous"][0, 0] - even) < 0.01


def test_a_recorded_seed_of_the_minimal_model_is_trained_again():
    again("minimal_2", 20, at=[0, 1, 20])
