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


def test_a_recorded_seed_is_trained_again():
    run = EVIDENCE.runs["dirichlet"]()
    short = replace(run, motion=Steps(30, run.motion.optimizer), seeds=1)
    found, kept = distances(simulate(short, progress=False)), EVIDENCE.read("dirichlet")
    for name in ("kl", "unigram", "previous", "score"):
        np.testing.assert_allclose(
            found[name].values, kept[name].isel(seed=[0], step=[0, 1]).values, atol=2e-3
        )
    assert abs(found["score"][0, 0] - 1) < 0.01  # chance
    even = np.mean([1 / (t + 1) for t in range(1, runs.T)])
    assert abs(found["previous"][0, 0] - even) < 0.01
