"""Units for a share of the activation."""

import numpy as np
import pytest
import torch

from attnlab.measures.units import units_for


def test_units_for_most_of_the_activation():
    rows = np.zeros((2, 3, 8))
    rows[0, 0, :4] = [10, -10, 0.1, 0.1]  # two hold 99 %
    rows[0, 1] = 1  # all are needed
    number, share = units_for(torch.asarray(rows))
    assert number == pytest.approx((2 + 8) / 2)  # silent rows are left out
    assert share == pytest.approx(number / 8)
    assert np.isnan(units_for(np.zeros((2, 8)))[0])
