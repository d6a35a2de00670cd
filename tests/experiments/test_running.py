"""Running experiments: what is written, what is reused, and what is made again."""

import csv
import dataclasses
import json
import os

import numpy as np
import pytest
import xarray as xr
from made_small import small
from matplotlib.figure import Figure

from attnlab.experiments import experiment, recipe_for, running
from attnlab.experiments.running import RECORD, find_or_run, read_record
from attnlab.files.netcdf import load
from attnlab.papers.scan_and_snap.figures import joint_runs


@pytest.fixture
def recipe():
    return small("fig9")


@pytest.fixture
def makes(monkeypatch):
    """Counts how often fig9 is made, without training: the flow takes seconds to compile."""
    calls = []

    def train(setting, *, eta_y, eta_z, times, progress):
        calls.append(1)
        z = np.zeros((eta_z.size, times.size, setting.tokens.size))
        z[..., setting.distinct] += 1e-3 * np.log1p(eta_y.values[:, None, None] * times[:, None])
        dims = ("eta_z", "time", "token")
        coords = {"eta_z": eta_z.values, "time": times, "token": setting.tokens}
        return xr.Dataset(
            {
                "attention_logits": (dims, z),
                "probability": (("sequence_class", "token"), setting.P),
            },
            coords=coords,
        )

    monkeypatch.setattr(joint_runs, "train", train)
    return calls


FIG9 = experiment("fig9")
QUICK = dataclasses.replace(FIG9, draw=lambda data: Figure(figsize=(1, 1)))  # an empty picture


@pytest.mark.slow
def test_an_experiment_becomes_pictures_data_and_a_record(recipe, makes, tmp_path):
    made = find_or_run(FIG9, recipe, out=tmp_path)
    folder = tmp_path / "scan_and_snap" / "fig9"
    names = {path.name for path in folder.iterdir()}
    assert names == {"fig9.png", "fig9.pdf", "fig9.csv", "fig9.nc", RECORD}
    assert (folder / "fig9.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "fig9.pdf").read_bytes().startswith(b"%PDF")
    data = load(folder / "fig9.nc")
    assert json.loads(data.attrs["spec"])["recipe"]["figure"] == "fig9"
    with open(folder / "fig9.csv") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == data.sizes["eta_z"] * data.sizes["time"]
    last = data.isel(eta_z=-1, time=-1)
    assert float(rows[-1]["corrected"]) == pytest.approx(float(last["corrected"]), rel=1e-6)
    assert made.settings["ratio"] == "2"
    assert "about" not in made.settings


@pytest.mark.slow
def test_what_is_finished_is_reused_until_something_changes(recipe, makes, tmp_path):
    folder = tmp_path / "scan_and_snap" / "fig9"

    def make(recipe):
        return find_or_run(QUICK, recipe, out=tmp_path)

    first = make(recipe)
    assert not first.reused
    again = make(recipe)
    assert again.reused
    assert again.files == first.files
    assert again.made_at == first.made_at
    assert len(makes) == 1
    changed = dataclasses.replace(recipe, ratio=3.0)
    assert not make(changed).reused
    assert not make(recipe).reused  # the folder holds the other one now
    assert len(makes) == 3
    for name in ("fig9.csv", "fig9.png"):
        path = folder / name
        path.write_bytes(path.read_bytes() + b" ")
        assert not make(recipe).reused
    (folder / "fig9.pdf").unlink()
    assert not make(recipe).reused
    (folder / RECORD).write_text("{}")
    assert not make(recipe).reused
    assert make(recipe).reused


def test_no_byte_of_a_record_can_change_unnoticed(recipe, makes, tmp_path):
    find_or_run(QUICK, recipe, out=tmp_path)
    folder = tmp_path / "scan_and_snap" / "fig9"
    whole = (folder / RECORD).read_bytes()
    for at in range(0, len(whole), 13):  # a seal of any file sees each byte (test_sealed.py)
        changed = bytearray(whole)
        changed[at] ^= 1
        (folder / RECORD).write_bytes(changed)
        assert read_record(folder, None) is None, at
    (folder / RECORD).write_bytes(whole)
    assert read_record(folder, None) is not None
    (folder / "fig9.nc").unlink()
    os.mkfifo(folder / "fig9.nc")  # nor is a pipe waited for
    assert read_record(folder, None) is None


def test_a_change_of_code_makes_it_anew(recipe, makes, tmp_path, monkeypatch):
    find_or_run(QUICK, recipe, out=tmp_path)
    monkeypatch.setattr(running, "code_digest", lambda *folders: "other")
    assert not find_or_run(QUICK, recipe, out=tmp_path).reused


def test_a_failure_leaves_no_record(recipe, makes, tmp_path):
    broken = dataclasses.replace(FIG9, draw=lambda data: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        find_or_run(broken, recipe, out=tmp_path)
    assert list((tmp_path / "scan_and_snap" / "fig9").iterdir()) == []
    assert read_record(tmp_path / "scan_and_snap" / "fig9", "any") is None


def test_an_error_in_a_figure_names_its_paper(recipe, makes, tmp_path):
    broken = dataclasses.replace(FIG9, judge=lambda data: 1 / 0)
    with pytest.raises(ZeroDivisionError) as raised:
        find_or_run(broken, recipe, out=tmp_path)
    assert raised.value.__notes__ == ["in paper scan_and_snap: ZeroDivisionError: division by zero"]


def test_numbers_outside_their_regression_bounds_are_named(recipe, makes, tmp_path):
    bounds = {"printed_start": (100.0, 101.0), "none": (0.0, 1.0)}
    narrow = dataclasses.replace(recipe, regression_bounds=bounds)
    made = find_or_run(QUICK, narrow, out=tmp_path)
    assert list(made.out_of_bounds()) == ["printed_start", "none"]
    assert made.out_of_bounds()["printed_start"] == made.numbers["printed_start"]


def test_seeds_go_to_the_figures_that_average_over_them():
    assert small("fig6").with_seeds(40).seeds == tuple(range(40))
    assert small("fig11").with_seeds(40).runs.seeds == tuple(range(40))
    assert small("fig4").with_seeds(40).seeds == (0,)
    assert small("fig9").with_seeds(40) == small("fig9")
    assert recipe_for("joma/hierarchy").with_seeds(40).seeds == 40


def test_settings_in_words():
    shown = small("fig11").in_words()
    assert shown["select"] == "eta_z 1"
    assert shown["runs: task"] == "name sequences, classes syn-medium, length 128"
    assert shown["runs: gradient"] == "name batches, size 64"
    assert shown["runs: motion"].startswith("name steps, steps ")
    assert shown["runs: grid"] == "num_last 1; eta_z 0.5 1 3; ratio 1 5 10".replace(";", ",")
