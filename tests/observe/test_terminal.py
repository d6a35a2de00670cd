"""The table in a terminal, and lines where there is none."""

import io

import numpy as np
import pytest
import xarray as xr
from rich.console import Console

from attnlab.observing.trackers import numbers, table, terminal


def moment(entropy):
    of_heads = ("layer", "head")
    return xr.Dataset(
        {
            "relative_entropy": (of_heads, np.full((2, 2), entropy)),
            "keys_for": ((*of_heads, "mass"), np.array([[[10], [20]], [[30], [40]]])),
        },
        {"layer": [0, 1], "head": [0, 1], "mass": [0.95]},
    )


def test_the_table_has_layers_now_and_at_first():
    out = io.StringIO()
    Console(file=out, width=100).print(table(1200, moment(0.25), moment(0.5)))
    assert "attention at step 1,200" in out.getvalue()
    assert out.getvalue().count("0.25 (0.50)") == 2 and "35 (35)" in out.getvalue()


def test_without_a_terminal_each_measurement_is_a_line():
    out = io.StringIO()
    log = terminal(Console(file=out, width=40))
    log.log(0, moment(0.5), 0)
    log.log(100, moment(0.25), 0)
    assert out.getvalue().splitlines() == [
        "step 0: entropy 0.50 0.50; keys for 95 % 15 35",
        "step 100: entropy 0.25 0.25; keys for 95 % 15 35",
    ]


def test_of_the_largest_logit_the_largest_head_is_shown():
    one = moment(0.5)
    one["max_logit"] = (("layer", "head"), np.array([[3.0, 651.0], [4.0, 2.0]]))
    out = io.StringIO()
    terminal(Console(file=out, width=80)).log(0, one, 0)
    assert "largest logit 651.00 4.00" in out.getvalue()
    assert numbers(one)["attention/max_logit/layer_00"] == 651


@pytest.mark.filterwarnings("error")
def test_missing_statistics_of_a_layer_are_dashes():
    out = io.StringIO()
    terminal(Console(file=out, width=80)).log(0, moment([[0.5, 0.5], [np.nan, np.nan]]), 0)
    assert "entropy 0.50 -;" in out.getvalue()
