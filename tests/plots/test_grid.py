"""The outcome of a sweep, drawn: what goes where, and what is left out."""

import numpy as np
import pytest
import xarray as xr

from attnlab import plots
from attnlab.files.errors import InputError


def swept(**axes):
    """A number of each run that says where it stands; two seeds, one above and one below."""
    dims = (*axes, "seed")
    shape = [len(values) for values in axes.values()]
    number = np.arange(np.prod(shape, dtype=int), dtype=float).reshape(shape)
    values = np.stack([number - 0.5, number + 0.5], -1)
    return xr.Dataset(
        {
            "final_entropy": (dims, values),
            "final_loss": (dims, -values),
            "finished": (dims, np.ones(values.shape, bool)),
        },
        {**axes, "seed": [0, 1]},
    )


def heights(line):
    return line.get_ydata().tolist()


def test_the_last_parameter_is_the_axis_then_come_lines_and_panels():
    figure = plots.grid(swept(num_last=[1, 3], eta_z=[0.5, 1.0], ratio=[1, 2, 10]))
    first, second = figure.axes
    assert [ax.get_title() for ax in (first, second)] == ["num last = 1", "num last = 3"]
    data = [line for line in first.lines if len(line.get_xdata()) == 3]
    assert heights(data[0]) == [0, 1, 2] and heights(data[-1]) != [0, 1, 2]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        r"$\eta_Z$ = 0.5",
        r"$\eta_Z$ = 1.0",
    ]
    assert legend.get_title().get_text() == (
        "Entropy at the end of training: mean of 2 seeds, bars one standard deviation"
    )
    assert second.get_xlabel() == r"$\eta_Y/\eta_Z$" and second.get_xscale() == "log"
    assert figure.get_supxlabel() == ""


def test_ticks_of_many_values_do_not_collide():
    (ax,) = plots.grid(swept(eta_z=np.geomspace(0.1, 10, 20).round(3))).axes
    assert len(ax.get_xticks()) <= 8
    assert ax.get_ylabel() == "entropy (nats)"


def test_words_are_ticks_and_failed_runs_are_counted():
    result = swept(optimizer=["sgd", "adam"])
    result["finished"][1, 0] = False
    figure = plots.grid(result, "final_loss")
    (ax,) = figure.axes
    assert [text.get_text() for text in ax.get_xticklabels()] == ["sgd", "adam"]
    assert heights(ax.lines[0]) == [0.0, -1.5]
    assert figure.get_supxlabel() == "1 of 4 runs failed and are left out"


def test_a_grid_names_what_it_leaves_out():
    figure = plots.grid(swept(a=[5, 6], b=list(range(8)), c=list(range(13)), d=[1, 2]))
    assert figure.get_supxlabel() == "a = 5 of 2; 6 of 8 b; 12 of 13 c"
    assert len(figure.axes) == 6


def test_without_a_parameter_there_is_one_point():
    (ax,) = plots.grid(swept()).axes
    assert heights(ax.lines[0]) == [0.0]


def test_what_is_no_number_of_a_run_is_refused():
    with pytest.raises(
        InputError, match="name: 'final_entrpy' is not a number of a run; did you mean"
    ):
        plots.grid(swept(ratio=[1, 2]), "final_entrpy")
    with pytest.raises(InputError, match="it has no number of each run; record loss or statistics"):
        plots.grid(swept(ratio=[1, 2])[["finished"]])
