"""The shipped survey: of which runs it is, and one short run that gives its numbers again."""

from dataclasses import replace

import numpy as np

from attnlab import Steps, simulate
from attnlab.papers.statistical_induction import runs
from attnlab.papers.statistical_induction.distances import distances
from attnlab.papers.statistical_induction.survey import FILE, digests, survey, surveyed


def test_the_survey_is_of_the_runs_that_it_names():
    assert FILE.read_text().splitlines()[0] == f"# digests: {digests()}"
    for name, (run, _) in surveyed().items():
        assert survey()[name].sizes == {"seed": 10, "step": len(run.record_steps)}


def test_a_recorded_seed_is_trained_again():
    run, prior = surveyed()["dirichlet"]
    short = replace(run, motion=Steps(30, run.motion.optimizer), seeds=1)
    found, kept = distances(simulate(short, progress=False), prior), survey()["dirichlet"]
    for name in ("kl", "unigram", "previous", "score"):
        np.testing.assert_allclose(
            found[name].values, kept[name].isel(seed=[0], step=[0, 1]).values, atol=2e-3
        )
    assert abs(found["score"][0, 0] - 1) < 0.01  # chance
    even = np.mean([1 / (t + 1) for t in range(1, runs.T)])
    assert abs(found["previous"][0, 0] - even) < 0.01
