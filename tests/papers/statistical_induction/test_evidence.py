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


@pytest.mark.parametrize(
    ("name", "measure", "at"),
    [
        ("minimal_3", "previous", {10: 0.023, 20: 0.035, 40: 0.19, 60: 0.59, 800: 0.96}),
        ("minimal_3", "diagonal", {10: 0.066, 800: 0.163}),
        ("minimal_3", "off_diagonal", {10: 0.025}),
        ("minimal_2", "diagonal", {800: 0.112}),
        ("minimal_doubly", "previous", {40: 0.08, 60: 0.56, 100: 0.80, 800: 0.45}),
        ("minimal_doubly", "off_diagonal", {800: -0.11}),
        ("minimal_unigram", "previous", {400: 0.020}),
        ("minimal_unigram", "diagonal", {400: 0.093}),
        ("minimal_unigram", "off_diagonal", {400: 0.084}),
        ("slow_dirichlet", "previous", {100: 0.015}),
        ("slow_doubly", "previous", {100: 0.094}),
        ("dirichlet", "previous", {150: 0.0755}),
        ("dirichlet", "kl", {210: 0.162}),
        ("doubly", "previous", {150: 0.23}),
    ],
)
def test_numbers_measured_before_are_those_of_a_seed(name, measure, at):
    """Measured before by other code, one to three seeds: within three deviations and rounding."""
    of = EVIDENCE.read(name)[measure].sel(step=list(at))
    apart = abs(of.mean("seed") - list(at.values()))
    assert (apart <= 3 * of.std("seed", ddof=1) + 5e-4).all()


def test_ends_measured_before_are_those_on_other_test_chains():
    """KL at the end, on 768 test chains that are not those of the numbers measured before."""
    ends = {("minimal_2", 800): 0.058, ("minimal_3", 800): 0.102, ("dirichlet", 600): 0.076}
    for (name, step), before in ends.items():
        assert EVIDENCE.read(name)["kl"].sel(step=step).mean() == pytest.approx(before, abs=0.008)
