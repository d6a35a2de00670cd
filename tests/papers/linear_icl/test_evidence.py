"""Numbers on file: of which runs they are, and one cheap run that gives some of them again."""

from dataclasses import replace

import numpy as np
import pytest

from attnlab import simulate
from attnlab.papers.linear_icl.evidence import EVIDENCE, SHARES, measured, staircases


@pytest.mark.parametrize("name", EVIDENCE.runs)
def test_numbers_on_file_are_of_their_runs(name):
    run, found = EVIDENCE.runs[name](), EVIDENCE.read(name)
    if name == "mixtures":
        assert found.sizes == {"setting": len(SHARES), "seed": len(run.seeds)}
    else:
        components = len(run.task.task.spectrum)
        assert found.sizes == {"seed": len(run.seeds), "component": components}


def test_a_filed_seed_is_trained_again():
    run = replace(staircases(0.3, 2e4), seeds=2)
    found, kept = measured(run, simulate(run, progress=False)), EVIDENCE.read("four-large")
    kept = kept.isel(seed=slice(2))
    for name in ("half", "between", "purity"):
        np.testing.assert_allclose(found[name], kept[name], rtol=1e-4)
