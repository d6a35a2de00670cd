"""Experiments are found where they stand, and one of one's own is run as ours are."""

import json
import subprocess
import sys
from dataclasses import dataclass, replace

import numpy as np
import pytest
import xarray as xr
from matplotlib.figure import Figure

from attnlab.experiments import (
    Experiment,
    Judgement,
    Standing,
    StudyRecipe,
    Table,
    experiment,
    figures,
    mean,
    recipe_for,
    run,
)
from attnlab.experiments.base import WORDS, module_of, opening
from attnlab.experiments.running import Part, record
from attnlab.files.errors import InputError
from attnlab.report.make import chosen_parts
from attnlab.shelf import VARIABLE, offered, paper


def test_every_figure_of_a_paper_is_an_experiment_of_its_own_name():
    for name in offered("figures"):
        found = experiment(name)
        assert found.full_name == name
        assert found.paper == paper(name.partition("/")[0])
        assert module_of(name).startswith(f"{found.paper.package}.figures.")
    every = (*figures(ours=False), *figures(ours=True))
    assert sorted(every) == sorted(offered("figures"))
    assert every[0] == "scan_and_snap/fig2"  # the older paper first
    assert "studies/length" in figures(ours=True)
    assert experiment("fig6") == experiment("scan_and_snap/fig6")
    assert opening().full_name == "scan_and_snap/story"
    assert recipe_for(opening()).figure == "story"


def test_a_name_that_two_papers_have_is_refused_with_the_choices(tmp_path, monkeypatch):
    folder = tmp_path / "another"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "figure.py").write_text("raise RuntimeError('not to be imported')\n")
    (folder / "paper.yaml").write_text(
        "name: another\ntitle: A\nshort: A\nauthors: A\nyear: 2025\nquestion: A\n"
        "reading: printed text\nattnlab: '>=0.1'\nfigures: {fig6: 'figure:EXPERIMENT'}\n"
    )
    monkeypatch.setenv(VARIABLE, str(folder))
    choices = "say scan_and_snap/fig6 or another/fig6"
    with pytest.raises(InputError, match=choices):
        experiment("fig6")
    with pytest.raises(InputError, match=choices):
        chosen_parts(["fig6"])
    assert experiment("scan_and_snap/fig6").name == "fig6"
    assert chosen_parts(["another"]) == ["another/fig6"]  # which imports nothing of it
    assert "another/fig6" in chosen_parts([])
    with pytest.raises(InputError, match="figure cannot be imported: figure.py:1: RuntimeError"):
        experiment("another/fig6")


def test_parts_are_named_by_figure_or_paper_in_the_order_of_the_shelf():
    assert chosen_parts(["joma", "fig9", "length"]) == [
        "scan_and_snap/fig9",
        *(name for name in figures(ours=False) if name.startswith("joma/")),
        "studies/length",
    ]
    assert chosen_parts([]) == [*figures(ours=False), "audit", "report"]
    assert chosen_parts(["report", "studies"]) == [*figures(ours=True), "report"]
    for wrong, hint in (("jom", "did you mean 'joma'"), ("studies/lenght", "'studies/length'")):
        with pytest.raises(InputError, match=hint):
            chosen_parts([wrong])


@pytest.mark.slow
def test_one_figure_needs_neither_claims_nor_another_paper():
    code = (
        "import sys; from attnlab.experiments import experiment, recipe_for; "
        "import attnlab.report; recipe_for('fig6'); print(*sorted(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    papers = [name for name in done.stdout.split() if name.startswith("attnlab.papers.")]
    assert "attnlab.papers.scan_and_snap.figures.fig6" in papers
    assert all(name.startswith("attnlab.papers.scan_and_snap") for name in papers)
    assert not [name for name in papers if ".claims" in name or name.endswith("cases")]


def test_a_standing_is_worded_by_kind_and_source():
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
    name="own",
    title="Two sides",
    recipe=Recipe,
    data=data,
    judge=judge,
    table=table,
    draw=lambda runs: Figure(figsize=(1, 1)),
    source="the book",
)


def test_a_user_s_experiment_is_written_with_its_table_its_halves_and_its_verdict(tmp_path):
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


def test_recording_standings_keeps_the_other_entries(tmp_path, monkeypatch):
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "paper.yaml").write_text(
        "name: own\ntitle: A\nshort: A\nauthors: A\nyear: 2025\nquestion: A\nreading: ours\n"
        "attnlab: '>=0.1'\nfigures: {one: 'figure:ONE', two: 'figure:TWO'}\n"
    )
    before = {
        "claims": {"a": {"verdict": "holds"}},
        "figures": {
            "one": {"standing": "holds", "numbers": {"x": 1.5}},
            "two": {"standing": "open", "numbers": {}},
        },
    }
    (folder / "expected.json").write_text(json.dumps(before))
    monkeypatch.setenv(VARIABLE, str(folder))
    made = Part(
        name="own/one",
        key="",
        title="",
        about="",
        outcome="",
        headline="",
        summary="",
        alt="",
        numbers={"x": 1.5001, "y": 2 / 3, "z": float("nan"), "w": 1.0},
        regression_bounds={"x": (1, 2), "y": (0, 1), "z": (0, 1)},
        settings={},
        files={},
        seconds=1.0,
        made_at="",
        versions={},
        standing="fails",
    )
    assert record([made, replace(made, name="audit")]) == [folder / "expected.json"]
    found = json.loads((folder / "expected.json").read_text())
    assert found["figures"].pop("one") == {"standing": "fails", "numbers": {"x": 1.5, "y": 0.6667}}
    del before["figures"]["one"]
    assert found == before
