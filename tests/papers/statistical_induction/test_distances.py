"""Stages: which rule is nearest, and when."""

import numpy as np
import xarray as xr

from attnlab.papers.statistical_induction import runs
from attnlab.papers.statistical_induction.distances import nearest


def test_stages():
    dims, rules = (
        ("seed", "step"),
        {"uniform": [0, 2, 3], "unigram": [1, 0, 2], "bigram": [2, 1, 0]},
    )
    found = xr.Dataset({name: (dims, [of]) for name, of in rules.items()}, {"step": [0, 5, 9]})
    assert nearest(found).values.tolist() == [[0, 1, 2]]
    assert runs.first_step(nearest(found) == 2).tolist() == [9]
    assert np.isnan(runs.first_step(nearest(found) == 3)).all()
