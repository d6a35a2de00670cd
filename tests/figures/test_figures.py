"""What the figures say, at small size: the shape of the science, not pixels."""

import dataclasses

import matplotlib
import numpy as np
import pytest
import xarray as xr
from small_recipes import small

from attnlab.figures import Outcome, figure, recipe_for


def make(name, keep=None):
    """The data of a figure; it must also be drawn and judged."""
    module = figure(name)
    data = module.data(small(name), keep=keep)
    settings = dict(matplotlib.rcParams)
    drawn = module.draw(data)
    assert dict(matplotlib.rcParams) == settings
    drawn.canvas.draw()
    assert any(ax.get_xlabel() for ax in drawn.axes) or drawn.subfigs[-1].get_supxlabel()
    finding = module.judge(data)
    assert finding.outcome in set(Outcome)
    assert set(recipe_for(name).expect) <= set(finding.numbers)
    for text in (finding.headline, finding.summary, finding.alt):
        assert text.endswith(".")
        assert "nan" not in text
    assert any(character.isdigit() for character in finding.alt)
    return data


def test_fig2_passes_the_four_stages_in_order(tmp_path):
    frames = make("fig2", keep=tmp_path)
    assert np.all(np.diff(frames["moment"]) > 0)
    # common tokens lose, distinct ones gain, between the start and the end
    before, after = frames["attention"].isel(stage=0), frames["attention"].isel(stage=-1)
    common = frames["common"]
    assert after.where(common).sum() < 0.6 * before.where(common).sum()
    likeliest = int(frames["probability"].where(~common).argmax("token"))
    assert int(after.argmax("token")) == likeliest
    with pytest.raises(ValueError, match="the four stages are not all passed"):
        figure("fig2").data(dataclasses.replace(small("fig2"), winner=1e6), keep=tmp_path)


def test_fig3_theory_falls_with_eta_y_and_starts_where_it_should():
    curves = make("fig3")
    end = curves.isel(time=-1)
    for name in ("printed", "corrected", "eq10"):
        assert (end[name].diff("eta_y") < 0).all(), name
    start = curves.isel(time=0)
    for name in ("corrected", "eq10", "training"):
        np.testing.assert_allclose(start[name], 1.0)
    assert (abs(start["printed"] - 1) > 0.1).all()  # what the correction is about
    assert (end["training"] > 1).all()
    # Eq. 12: the dominant token grows by no more than exp(2 B_n); B_n is approximate, hence 2 %
    assert (end["eq10"] < 1.02 * end["corrected"]).all()


def test_fig4_concentrates_on_the_likeliest_token_less_so_with_a_larger_eta_y():
    frames = make("fig4")
    assert frames["step"].values.tolist() == [0, 2, 4, 6, 8, 10, 100]
    end = frames["attention"].isel(step=-1)
    likeliest = frames["probability"].where(~frames["common"], 0.0).argmax("token")
    assert (end.argmax("token") == likeliest).all()
    winner = end.isel(token=likeliest)
    assert (winner.sel(eta_y=1) > 1.2 * winner.sel(eta_y=10)).all()
    entropy = frames["distinct_entropy"].isel(step=-1)
    assert (entropy.sel(eta_y=1) < entropy.sel(eta_y=10)).all()


def test_fig5_different_rates_pick_different_subsets():
    frames = make("fig5")
    sets = {tuple(row) for row in frames["favourite"].values.tolist()}
    assert len(sets) == frames.sizes["eta"] == 3
    assert (frames["favourite"].sum("token") == 4).all()


def test_fig6_and_the_recall_of_its_runs(tmp_path):
    """Figs. 6, 11 and 12 in one test, because they share their simulations."""
    cells = make("fig6", keep=tmp_path)
    assert (cells["entropy_mean"].diff("eta_z") < 0).all()
    cell = {"num_last": 1, "eta_z": 1.0, "ratio": 5.0}
    assert float(cells["published_mean"].sel(cell)) == 2.022
    assert float(cells["published_std"].sel(cell)) == 0.036
    assert abs(cells["deviation"]).max() < 5
    rows = figure("fig6").table(cells)
    assert len(rows) == 9
    assert tuple(rows[0]) == ("num_last", "eta_z", "ratio", "entropy_mean", "entropy_std", "seeds")
    assert rows[0]["seeds"] == 6

    runs = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    by_ratio, by_eta_z = make("fig11", keep=tmp_path), make("fig12", keep=tmp_path)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == runs
    # a slower descent with a smaller ratio, and with a larger eta_Z
    assert (by_ratio["fall"].diff("ratio") < 0).all()
    assert (by_eta_z["fall"].diff("eta_z") > 0).all()
    for recalls in (by_ratio, by_eta_z):
        assert (recalls["recall_mean"].diff("threshold") <= 0).all()
        assert float(recalls["recall_mean"].isel(threshold=0).min()) > 0.9
        assert float(recalls["recall_mean"].isel(threshold=-1).max()) < 0.1


def test_fig6_full_grid_has_every_published_cell():
    grid, fig6 = recipe_for("fig6").grid, figure("fig6")
    coords = {name: list(grid[name]) for name in fig6.AXES}
    empty = xr.DataArray(
        np.zeros([len(values) for values in coords.values()]), dims=fig6.AXES, coords=coords
    )
    assert empty.size == 64
    mean, std = fig6.published(xr.Dataset({"entropy_mean": empty}))
    assert int(mean.notnull().sum()) == int(std.notnull().sum()) == 32


def test_fig6_says_when_the_published_cells_are_not_matched():
    fig6 = figure("fig6")
    coords = {"num_last": [1], "eta_z": [1.0, 2.0], "ratio": [2.0, 5.0]}
    dims = fig6.AXES
    right = xr.DataArray([[[1.937, 2.022], [1.810, 1.934]]], dims=dims, coords=coords)
    cells = xr.Dataset({"entropy_mean": right, "entropy_std": 0 * right + 0.05})
    for shift, outcome in ((0.0, Outcome.REPRODUCED), (0.2, Outcome.DIFFERS)):
        deviation = (0 * right + shift) / (0.05 / np.sqrt(5))
        finding = fig6.judge(cells.assign(deviation=deviation).assign_attrs(seeds=10))
        assert finding.outcome == outcome


def test_fig8_h_is_below_h_star_and_training_follows():
    curves = make("fig8")
    gap = curves["h_star"] - curves["h"]
    assert (gap >= 0).all()
    assert (gap <= curves["bound_corrected"]).all()
    assert (gap.isel(visits=-1) < gap.max("visits")).all()
    late = curves.isel(time=slice(1, None))
    np.testing.assert_allclose(late["training"], late["theory"], rtol=0.03)


def test_fig9_bound_at_the_transition_does_not_depend_on_eta_z():
    curves = make("fig9")
    for name in ("printed", "corrected", "training"):
        at = curves[f"{name}_at_t0"]
        assert float(at.max() - at.min()) < 1e-3 * float(at.mean()), name
        assert (curves[name].isel(time=-1).diff("eta_z") > 0).all(), name
    assert (curves["corrected"].isel(time=0) == 0).all()
    assert (curves["training"].isel(time=0) == 0).all()
