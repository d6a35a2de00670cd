"""Curves of an observed model's heads."""

import numpy as np
import pytest
import xarray as xr

from attnlab.files.errors import InputError
from attnlab.plots import heads

DIMS = ("step", "layer", "head")


def result():
    values = np.arange(24.0).reshape(4, 3, 2) / 24
    return xr.Dataset(
        {
            "relative_entropy": (DIMS, values),
            "relative_entropy_sequence_se": (DIMS, np.full(values.shape, 0.01)),
            "keys_for": ((*DIMS, "mass"), np.stack([values, 2 * values], -1)),
            "snap_step": (DIMS[1:], [[np.nan, 20], [np.nan, np.nan], [np.nan, np.nan]]),
        },
        {"step": [0, 10, 20, 30], "layer": [0, 1, 2], "head": [0, 1], "mass": [0.9, 0.95]},
    )


def test_a_panel_for_each_layer_a_curve_for_each_head_and_a_mark_for_the_snap():
    axes = [ax for ax in heads(result()).axes if ax.axison]
    assert [ax.get_title(loc="left") for ax in axes] == ["layer 0", "layer 1", "layer 2"]
    assert [len(ax.lines) for ax in axes] == [3, 2, 2] and len(axes[1].collections) == 2
    assert (
        axes[2].lines[1].get_ydata().tolist() == result().relative_entropy[:, 2, 1].values.tolist()
    )
    assert axes[0].lines[2].get_xdata() == [20.0]


def test_another_dim_needs_its_entry_and_unknown_names_are_refused():
    figure = heads(result(), "keys_for", mass=0.95)
    assert figure.axes[0].lines[0].get_ydata()[1] == 0.5
    with pytest.raises(InputError, match=r"mass: keys_for has several; give mass= one of 0.9"):
        heads(result(), "keys_for")
    with pytest.raises(InputError, match="relative_entropy"):
        heads(result(), "relativ_entropy")
