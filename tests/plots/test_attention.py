"""Drawings of labelled results: what they show, read off their axes."""

import matplotlib
import numpy as np
import pytest
import xarray as xr
from matplotlib.colors import to_rgb

from attnlab import plots
from attnlab.plots.attention import MOST_LINES, frames

NAMES = ["the", "a", "goal", "cat", "kick", "purr", "ball", "milk", "?"]


def result(*, steps=(0, 2, 4, 6, 8, 10, 50, 100), rates=(1.0, 10.0), seeds=2, names=True):
    """Two classes over nine tokens: the first two are common, the last one is never drawn."""
    p = np.array([[0.3, 0.2, 0.5, 0, 0, 0, 0, 0, 0], [0.3, 0.1, 0, 0.6, 0, 0, 0, 0, 0]])
    shape = (len(rates), seeds, len(steps), *p.shape)
    moved = np.array(steps)[:, None, None] * np.array([-1, -1, 2, 2, 0, 0, 0, 0, 0]) * (p > 0)
    attention = np.broadcast_to(p + 1e-3 * moved, shape)
    each = ("eta_y", "seed", "step")
    loss = np.array([0.0, 1.0])[:, None, None] + np.exp(-np.array(steps) / 10)
    named = {
        "token": NAMES,
        "token_id": ("token", range(9)),
        "query_name": ("sequence_class", [NAMES[4], NAMES[5]]),
        "next_name": ("sequence_class", [NAMES[6], NAMES[7]]),
    }
    return xr.Dataset(
        {
            "attention": ((*each, "sequence_class", "token"), attention),
            "probability": (("sequence_class", "token"), p),
            "loss": (each, np.broadcast_to(loss[: len(rates)], shape[:3])),
            "entropy": ((*each, "sequence_class"), -np.log(attention.max(-1))),
        },
        {
            "eta_y": list(rates),
            "seed": range(seeds),
            "step": list(steps),
            "token": range(9),
            "sequence_class": [0, 1],
            "query_token": ("sequence_class", [4, 5]),
            "next_token": ("sequence_class", [6, 7]),
            **(named if names else {}),
        },
    )


def drawn(draw, *given):
    """A drawing, which leaves matplotlib's settings as they are."""
    settings = dict(matplotlib.rcParams)
    figure = draw(*given)
    assert dict(matplotlib.rcParams) == settings
    figure.canvas.draw()
    return figure


def test_frames_have_the_contextual_tokens_of_one_run_and_their_names():
    shown = frames(result())
    assert shown["attention"].dims == ("step", "sequence_class", "token")
    assert shown["word"].values.tolist() == ["the", "a", "goal", "cat"]
    assert shown["common"].values.tolist() == [True, True, False, False]
    assert shown["label"].values.tolist() == ["kick → ball", "purr → milk"]
    unnamed = frames(result(names=False))
    assert unnamed["label"].values.tolist() == ["token 4 → token 6", "token 5 → token 7"]
    with pytest.raises(ValueError, match="attention: not in the result; record it"):
        plots.bars(result().drop_vars("attention"))
    with pytest.raises(ValueError, match="no dim `step` or `time`; give the whole record"):
        plots.bars(result().isel(step=-1))


def test_bars_are_attention_at_the_moments_of_fig4():
    figure = drawn(plots.bars, result())
    assert [ax.get_title() for ax in figure.axes[:8]] == [
        *(f"step {step}" for step in (0, 2, 4, 6, 8, 10, 100)),
        "",
    ]
    last = figure.axes[6]
    np.testing.assert_allclose(
        [bar.get_height() for bar in last.containers[0]], [0.2, 0.1, 0.7, 0.0]
    )
    assert figure.axes[7].get_ylabel() == "purr → milk"


def test_a_heatmap_has_every_moment_and_token():
    figure = drawn(plots.heatmap, result())
    first, second, _ = figure.axes  # the last is the colour bar
    image = first.images[0].get_array()
    np.testing.assert_allclose(image, frames(result())["attention"].isel(sequence_class=0))
    assert [first.get_title(), second.get_title()] == ["kick → ball", "purr → milk"]
    assert [text.get_text() for text in first.get_xticklabels()] == ["the", "a", "goal", "cat"]
    assert first.get_yticklabels()[-1].get_text() == "100"


def test_curves_are_means_over_seeds_for_each_swept_value():
    figure = drawn(plots.curves, result(), "loss")
    (ax,) = figure.axes
    for line, offset in zip(ax.lines, (0.0, 1.0), strict=True):
        np.testing.assert_allclose(line.get_ydata(), np.exp(-result()["step"] / 10) + offset)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        r"$\eta_Y$ = 1.0",
        r"$\eta_Y$ = 10.0",
    ]
    assert ax.get_ylabel() == "loss (nats)"
    by_class = drawn(plots.curves, result(seeds=1).isel(seed=0, eta_y=0))
    assert [ax.get_title() for ax in by_class.axes] == ["kick → ball", "purr → milk"]
    assert not by_class.legends


def test_what_cannot_be_a_curve_is_refused():
    with pytest.raises(ValueError, match="name: 'los' is not recorded; did you mean 'loss'"):
        plots.curves(result(), "los")
    with pytest.raises(ValueError, match="name: attention is of single tokens"):
        plots.curves(result(), "attention")
    names = [f"n{i}" for i in range(MOST_LINES)]
    many = xr.concat([result()] * MOST_LINES, "model").assign_coords(model=names)
    with pytest.raises(ValueError, match=r"24 lines cannot be told apart; select some"):
        plots.curves(many, "loss")


def test_many_values_have_a_colour_bar():
    rates = np.geomspace(0.1, 10, 20)
    many = xr.concat([result()] * 20, "eta_z").assign_coords(eta_z=rates)
    ax, bar = drawn(plots.curves, many, "loss").axes
    assert bar.get_ylabel() == r"$\eta_Z$" and bar.get_yscale() == "log"
    assert len(ax.lines) == 40
    labels = [line.get_label() for line in ax.lines if not line.get_label().startswith("_")]
    assert labels == [r"$\eta_Y$ = 1.0", r"$\eta_Y$ = 10.0"]  # they differ by their dashes
    assert len({str(line.get_color()) for line in ax.lines}) == 20
    (ax, _) = drawn(plots.curves, many.isel(eta_y=0), "loss").axes
    assert ax.get_legend() is None


def test_a_comparison_has_a_dashed_line_for_every_solid_one():
    simulated = result()
    predicted = simulated.assign(attention=0.9 * simulated["attention"])
    figure = drawn(plots.compare, simulated, predicted)
    assert len(figure.axes) == 2
    for i, ax in enumerate(figure.axes):
        solid, dashed = ax.lines[::2], ax.lines[1::2]
        assert len(solid) == len(dashed) == 3  # those that the class draws
        assert {line.get_linestyle() for line in solid} == {"-"}
        assert {line.get_linestyle() for line in dashed} == {"--"}
        of_class = frames(simulated)["attention"].isel(sequence_class=i)
        for k, one, other in zip([0, 1, 2 + i], solid, dashed, strict=True):
            np.testing.assert_allclose(one.get_ydata(), of_class.isel(token=k))
            np.testing.assert_allclose(other.get_ydata(), 0.9 * of_class.isel(token=k))
            assert one.get_color() == other.get_color()
    red, _, blue = to_rgb(figure.axes[0].lines[0].get_color())  # of a common token
    assert red > blue
    red, _, blue = to_rgb(figure.axes[0].lines[-1].get_color())
    assert blue > red
    texts = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert texts == ["the, common", "a, common", "goal, distinct"]
    shared = [[line.get_color() for line in ax.lines[:4]] for ax in figure.axes]
    assert shared[0] == shared[1]  # a token has one colour in all panels
    with pytest.raises(ValueError, match="predicted: not of the same runs, times and tokens"):
        plots.compare(simulated, predicted.isel(step=slice(1, None)))


def test_a_comparison_of_an_odd_number_of_classes_has_no_hole():
    two = result()
    three = xr.concat([two, two.isel(sequence_class=[0])], "sequence_class", data_vars="all")
    three = three.assign_coords(sequence_class=[0, 1, 2])
    first, second, last = drawn(plots.compare, three, three).axes
    assert last.get_position().x0 == pytest.approx(first.get_position().x0)
    assert last.get_position().x1 == pytest.approx(second.get_position().x1)
