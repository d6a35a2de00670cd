"""Numbers on file: of which runs they are, and cheap runs that give some of them again."""

from dataclasses import replace

import numpy as np
import pytest

from attnlab import simulate
from attnlab.papers.linear_icl.evidence import EVIDENCE, FRESH, SIZES, measured
from attnlab.papers.linear_icl.learner import SampleRegression


@pytest.mark.parametrize("name", EVIDENCE.runs)
def test_numbers_on_file_are_of_their_runs(name):
    run, found = EVIDENCE.runs[name](), EVIDENCE.read(name)
    if isinstance(run.task, SampleRegression):
        settings = len(FRESH if name == "mixtures" else SIZES)
        assert found.sizes == {"setting": settings, "seed": len(run.seeds)}
    elif run.task.model.rank is None:
        assert found.sizes == {"setting": len(run.task.tasks), "seed": len(run.seeds)}
    else:
        components = len(run.task.tasks[0].spectrum)
        assert found.sizes == {"seed": len(run.seeds), "component": components}


@pytest.mark.parametrize("name", ["four-large", "drops", "sets"])
def test_a_filed_seed_is_trained_again(name):
    run = replace(EVIDENCE.runs[name](), seeds=1)
    found, kept = measured(run, simulate(run, progress=False)), EVIDENCE.read(name)
    # distances from what is exact, or from a solver's own, are rounding of their largest term
    for variable in set(found) - {"above", "end"}:
        np.testing.assert_allclose(
            found[variable].transpose(*kept[variable].dims),
            kept[variable].isel(seed=slice(1)),
            rtol=1e-4,
            atol=1e-6,
        )
