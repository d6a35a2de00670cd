"""Experiments are found where they stand, and one of one's own is run as ours are."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from matplotlib.figure import Figure

import attnlab
from attnlab.experiments import (
    Experiment,
    Judgement,
    Standing,
    StudyRecipe,
    Table,
    experiment,
    mean,
    names_of,
    run,
)
from attnlab.experiments.base import WORDS
from attnlab.experiments.catalogue import by_paper

FOLDER = Path(attnlab.__file__).parent / "experiments"


def test_every_file_of_a_source_is_an_experiment_of_its_own_name():
    files = [path for path in FOLDER.glob("*/*.py") if path.stem != "__init__"]
    named = (*names_of("figure"), *names_of("study"))
    assert sorted(path.stem for path in files) == sorted(named)
    for name in named:
        assert experiment(name).name == name
    figures = by_paper(names_of("figure"))
    assert list(figures) == ["scan_and_snap", "joma"]  # the older paper first
    assert figures["scan_and_snap"] == [f"fig{number}" for number in range(2, 13)]
    assert "joma_erf" in figures["joma"]
    assert by_paper(["audit", "fig6"]) == {"scan_and_snap": ["fig6"]}
    assert "length" in names_of("study")


def test_how_a_claim_stands_is_told_by_its_kind_and_its_source():
    for words in WORDS.values():
        assert list(words) == list(Standing)
    assert experiment("fig6").in_words(Standing.FAILS) == "not reproduced"
    assert experiment("length").in_words(Standing.OPEN) == "the paper does not say"
    theirs = replace(experiment("length"), source="the poster")
    assert theirs.in_words(Standing.PARTLY) == "in part as the poster says"


@dataclass(frozen=True, kw_only=True)
class Recipe(StudyRecipe):
    spread: float


def data(recipe, *, progress=False, keep=None):
    rng = np.random.default_rng(0)
    values = rng.normal(scale=recipe.spread, size=(2, recipe.seeds))
    return xr.Dataset({"value": (("side", "seed"), values)}, {"side": [0, 1]})


def judge(runs):
    numbers = mean(runs["value"].isel(side=0)).numbers("first")
    return Judgement(Standing.HOLDS, "It is so.", "It is so, twice.", "Nothing.", numbers)


def table(runs):
    rows = [{"side": int(side), "mean": float(runs["value"][side].mean())} for side in (0, 1)]
    return Table(rows, "Means by side.")


OWN = Experiment(
    name="own", title="Two sides", recipe=Recipe, data=data, judge=judge, table=table,
    draw=lambda runs: Figure(figsize=(1, 1)), source="the book",
)  # fmt: skip


def test_one_of_ones_own_is_written_with_its_table_its_halves_and_its_verdict(tmp_path):
    made = run(OWN, Recipe(seeds=6, spread=1.0), out=tmp_path)
    assert (made.outcome, made.headline, made.about) == ("as the book says", "It is so.", "")
    assert [list(half) for half in made.halves] == [["first", "first_error"]] * 2
    assert made.settings == {"seeds": "6", "spread": "1"}
    assert made.table[0] == ["side", "mean"]
    assert (tmp_path / "own" / "table.csv").read_text().startswith("side,mean\n0,")
    record = json.loads((tmp_path / "own" / "part.json").read_text())
    assert "It is so, twice." in json.dumps(record)
    assert run(OWN, Recipe(seeds=6, spread=2.0), out=tmp_path).settings["spread"] == "2"
    with pytest.raises(ValueError, match="spread: expected at least 0, got -1"):
        Recipe(seeds=6, spread=-1.0)


def test_a_study_that_mixes_its_seeds_is_refused(tmp_path):
    found = Judgement(Standing.OPEN, "", "", "", {})
    mixed = replace(
        OWN, data=lambda recipe, **how: data(recipe).mean("seed"), judge=lambda runs: found
    )
    with pytest.raises(ValueError, match="data: a study keeps its seeds apart"):
        run(mixed, Recipe(seeds=6, spread=1.0), out=tmp_path)
    assert not (tmp_path / "own").exists()
