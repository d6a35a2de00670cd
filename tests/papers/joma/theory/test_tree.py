"""Co-occurrence on a tree: the printed formula against all settings of the latents."""

import numpy as np
import pytest

from attnlab.papers.joma.classes import LatentTree
from attnlab.papers.joma.theory import tree_co_occurrence


@pytest.mark.parametrize("branching", [(2, 2, 2), (1, 3, 2), (2, 2)])
@pytest.mark.parametrize("rho", [0.9, 0.4])
def test_the_formula_is_that_of_all_settings(branching, rho):
    tree = LatentTree(branching, rho, ((0.9,) * branching[0], (0.3,) * branching[0]))
    both = tree.enumerate().mean(0)  # over labels
    given = both / np.diag(both)[:, None]
    rho_0 = 1.0 - 2.0 * np.mean(tree.on)
    H = tree.heights()
    inside = tree.depth > H
    expected = tree_co_occurrence(H[inside], depth=tree.depth, rho=rho, rho_0=rho_0)
    np.testing.assert_allclose(given[inside], expected, rtol=1e-12)


def test_siblings_occur_together_most():
    found = tree_co_occurrence(np.arange(5), depth=5, rho=0.8, rho_0=0.3)
    assert found[0] == 1.0
    assert np.all(np.diff(found) < 0)


def test_the_root_is_no_latent():
    with pytest.raises(ValueError, match="below the depth 3"):
        tree_co_occurrence(3, depth=3, rho=0.5)
