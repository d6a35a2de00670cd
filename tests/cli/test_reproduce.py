"""attnlab reproduce and attnlab cite, as a person would use them."""

import errno
import json

import pytest

import attnlab
from attnlab.cli import app
from attnlab.experiments.running import the_record
from attnlab.shelf import paper, recipe_file, shelf
from attnlab.sweeping.store import Ledger


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a recipe of one's own: fig8 as the tests of its paper have it, of which the
    compiled program is shared."""
    folder = tmp_path_factory.mktemp("place")
    path = folder / "mine" / "fig8.yaml"  # such a folder need not have all
    path.parent.mkdir()
    text = recipe_file("fig8").read_text()
    text = text.replace(
        "num_classes=10,distinct=10,common_prob=0.1,vocab_size=1000",
        "num_classes=4,distinct=3,common_prob=0.1,vocab_size=100",
    )
    text = text.replace("steps: 1000", "steps: 300").replace("records: 401", "records: 61")
    text = text.replace("largest_gap: [0.32, 0.33]", "largest_gap: [0.1, 1]")
    text = text.replace("last_gap: [0.05, 0.06]", "last_gap: [0, 0.1]")
    text = text.replace("training_error: [0, 0.002]", "training_error: [0, 0.1]")
    text = text.replace("training_error: [0, 0.001]", "training_error: [0, 0.1]")
    path.write_text(text)
    return folder


@pytest.mark.slow
def test_parts_are_run_then_reused_and_printed(place, call):
    asked = ("reproduce", "fig8", "--recipes", "mine", "--out", "results")
    code, out, err = call(*asked, cwd=place)
    assert code == 0, err
    assert "fig8" in out
    assert "reproduced" in out
    assert "1 left" in err
    results = place / "results"
    made = {path.name for path in (results / "scan_and_snap" / "fig8").iterdir()}
    assert {"fig8.png", "fig8.pdf", "fig8.csv", "fig8.nc"} <= made
    report = (results / "report.html").read_text()
    assert "This report has 1 of 11 figures: 1 reproduced." in " ".join(report.split())
    assert "Figure 8" in report
    assert "Not made yet" not in report
    assert 'id="opening"' not in report
    code, out, err = call("reproduce", "report", *asked[2:], cwd=place)
    assert code == 0, err
    report = (results / "report.html").read_text()
    assert "Figure 8" in report
    assert "Not made yet: scan_and_snap/fig2" in report
    assert 'id="opening"' in report and 'src="playground.html"' in report
    assert (results / "playground.html").is_file()
    opening = the_record(results / "scan_and_snap" / "story")
    assert (opening.outcome, opening.out_of_bounds()) == ("reproduced", {})

    code, out, err = call(*asked, "--json", cwd=place)
    assert (code, err) == (0, "")
    document = json.loads(out)
    (part,) = document["parts"]
    assert part["reused"] is True
    assert part["name"] == "scan_and_snap/fig8"
    assert (part["standing"], part["outcome"]) == ("holds", "reproduced")
    assert document["report"] == "results/report.html"
    assert all((place / name).exists() for name in part["files"])

    recipe = place / "mine" / "fig8.yaml"
    recipe.write_text(recipe.read_text().replace("largest_gap: [0.1, 1]", "largest_gap: [7, 8]"))
    code, out, err = call(*asked, "--json", cwd=place)
    assert code == 1
    (part,) = json.loads(out)["parts"]
    assert part["reused"] is False
    assert list(part["out_of_bounds"]) == ["largest_gap"]

    code, out, err = call("cite", "results/scan_and_snap/fig8/fig8.nc", cwd=place)
    assert code == 0, err
    for text in ("@inproceedings{tian2023scan", f"{{{attnlab.__version__}}}", "num_classes=4"):
        assert text in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["reproduce", "fig66"], "'fig66' is not a part; did you mean 'fig6'?"),
        (["reproduce", "reprot"], "did you mean 'report'?"),
        (["reproduce", "fig6", "--seeds", "0"], "seeds: expected at least 1"),
        (["reproduce", "lenght"], "'lenght' is not a part; did you mean 'length'?"),
        (["reproduce", "joma/fig6"], "figure: 'joma/fig6' is not of joma"),
        (["reproduce", "fig6", "--recipes", "nowhere"], "nowhere/fig6.yaml: no such file"),
        (["reproduce", "length", "--recipes", "nowhere"], "nowhere/length.yaml: no such file"),
        (["reproduce", "length", "--seeds", "1"], "seeds: two halves with an error need"),
        (["reproduce", "fig6", "--seeds", "20", "--record"], "record: expected the papers' own"),
        (["reproduce", "own", "--paper", "own"], "own/paper.yaml: no such file"),
        (["reproduce", "fig9", "--out", "file"], "out: file is not a folder"),
        (["cite", "file"], "file: not a result of attnlab; give a .nc file that it wrote"),
        (["cite", "nothing.nc"], "nothing.nc"),
    ],
)
def test_bad_input_is_one_message_and_nothing_written(arguments, message, tmp_path, call):
    (tmp_path / "file").write_text("x")
    code, out, err = call(*arguments, cwd=tmp_path)
    assert code == 2
    assert message in err
    assert out == ""
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_cite_needs_no_run(tmp_path, call):
    every = [
        of.citation.partition("{")[2].partition(",")[0]
        for of in shelf().papers
        if of.name != "studies"
    ]
    assert every[0] == "tian2023scan"
    for asked, keys in (((), every), (("joma",), ["tian2024joma"])):
        code, out, err = call("cite", *asked, "--json", cwd=tmp_path)
        assert code == 0, err
        document = json.loads(out)
        assert document["run"] is None
        *papers, own = document["bibtex"]
        assert [entry.partition("{")[2].partition(",")[0] for entry in papers] == keys
        assert own.startswith("@software{attnlab")


def test_a_paper_without_bibtex_is_cited_by_its_fields():
    lines = paper("studies").citation.splitlines()
    assert lines[:2] == ["@misc{studies,", f"  title = {{{{{paper('studies').title}}}}},"]
    assert lines[-2:] == ["  year = {2026},", "}"]


@pytest.mark.slow
def test_a_study_is_run_then_reused_and_printed(tmp_path, call):
    text = recipe_file("residual").read_text()
    for old, new in (
        ("steps: 300", "steps: 40"),
        ("queries: [2, 4]", "queries: [2]"),
        ("unused: [0, 1000, 10000]", "unused: [0]"),
        ("  mostly own: {everywhere: 1, within: 1, across: 1, own: 20}\n", ""),
        ("across_quoted_0.3: [0.98, 1]", "across_quoted_0.3: [2, 3]"),
    ):
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "mine" / "studies").mkdir(parents=True)
    (tmp_path / "mine" / "studies" / "residual.yaml").write_text(text)
    asked = ("reproduce", "residual", "--recipes", "mine", "--out", "results", "--seeds", "4")
    code, out, err = call(*asked, cwd=tmp_path)
    assert code == 1, err
    assert "across_quoted_0.3 = 1 is outside its regression bounds, 2 to 3" in out
    assert "of its seeds agree in" in out or "take more (--seeds)" in out
    assert "0 left" in err
    made = {file.name for file in (tmp_path / "results" / "studies" / "residual").iterdir()}
    assert {"residual.png", "residual.pdf", "residual.csv", "residual.nc", "part.json"} <= made
    report = (tmp_path / "results" / "report.html").read_text()
    assert "<h1>Studies of what papers leave open</h1>" in report
    assert 'href="studies/residual/residual.nc"' in report
    assert "Figure by figure" not in report

    code, out, err = call(*asked, "--json", cwd=tmp_path)
    assert (code, err) == (1, "")
    (part,) = json.loads(out)["parts"]
    assert part["reused"] is True
    found = part["numbers"]["across_quoted_0.3"]
    assert part["out_of_bounds"]["across_quoted_0.3"] == found == 1
    assert [half["across_quoted_0.3"] for half in part["halves"]] == [1, 1]
    assert part["summary"].count(" of ") > 8  # counts


def test_a_disk_that_fails_is_one_message(tmp_path, call, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Ledger, "note", full)
    code, _, err = call("reproduce", "fig2", "--out", "figures", cwd=tmp_path)
    assert code == app.STOPPED
    assert err.splitlines()[-1] == (
        "attnlab: figures/runs: No space left on device: 0 of 1 groups are kept; "
        "put that right and run the same command again"
    )
