"""attnlab papers, check-paper and new-paper."""

import json
import os
import re

import pytest
from commands import in_forks
from made_papers import make_paper

from attnlab.shelf import VARIABLE, papers, shelf


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch):
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.setenv("COLUMNS", "200")
    papers._find.cache_clear()
    yield
    papers._find.cache_clear()


def test_papers_are_listed_with_their_standings(tmp_path, call):
    expected = {
        "claims": {
            "a": {"verdict": "holds"},
            "b": {"training": "fails"},
            "c": {"verdict": "holds", "training": "holds"},
            "d": {"verdict": "exact", "training": "corrected"},
            "e": {"verdict": "holds", "training": "premise fails in training"},
        },
        "figures": {"fig1": {"standing": "in part"}},
    }
    figures = {"fig1": "fig1:EXPERIMENT", "fig2": "fig2:EXPERIMENT"}
    folder = make_paper(
        tmp_path, "listed_paper", expected=expected, figures=figures, question="How?"
    )
    code, out, err = call("papers", "--paper", str(folder), cwd=tmp_path)
    assert (code, err) == (0, "")
    first, *others = rows_of(out)["listed_paper"]
    assert first == ["listed_paper", "How?", "2 holds", "1 in part"]
    assert others == [
        ["Somebody (2025)", "1 fails", "1 not recorded"],
        ["1 exact on paper and corrected in training"],
        ["1 holds on paper and premise fails in training"],
    ]
    assert all(known.name in out for known in shelf().papers)
    _, out, _ = call("papers", "--json", "--paper", str(folder), cwd=tmp_path)
    (row,) = [row for row in json.loads(out)["papers"] if row["name"] == "listed_paper"]
    assert row["claims"] == {
        "holds": 2,
        "fails": 1,
        "exact on paper and corrected in training": 1,
        "holds on paper and premise fails in training": 1,
    }
    assert row["figures"] == {"in part": 1, "not recorded": 1}
    assert row["reading"] == "printed text" and row["folder"] == str(folder)


def test_the_table_reads_well_in_a_narrow_terminal(tmp_path, call, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = call("papers", cwd=tmp_path)
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    at = lines[0].index("question"), lines[0].index("claims")
    assert at[1] - at[0] > 20  # no column of single words
    rows = rows_of(out, split=lambda line: [line[slice(*at)].strip()])
    for known in shelf().papers:
        asked = " ".join(cell for (cell,) in rows[known.name] if cell)
        assert asked == known.question


def rows_of(table, split=lambda line: re.split(r"  +", line.strip())):
    """Return the cells of each line of each row, by the first word of the row."""
    rows = re.split(r"\n *\n", table.partition("\n")[2].rstrip())
    return {row.split()[0]: [split(line) for line in row.splitlines()] for row in rows}


def test_faults_are_listed_with_their_reasons(tmp_path, call, monkeypatch):
    bad = make_paper(tmp_path, "bad_paper", titel="x")
    half = make_paper(tmp_path, "half_paper", expected={"claims": []})
    monkeypatch.setenv(VARIABLE, os.pathsep.join(map(str, [bad, half])))
    code, out, _ = call("papers", cwd=tmp_path)
    assert code == 0
    assert f"bad_paper cannot be used: {bad}/paper.yaml: titel: unknown key" in out
    assert f"half_paper cannot be used: {half}/expected.json: claims: expected a mapping" in out
    _, out, _ = call("papers", "--json", cwd=tmp_path)
    assert [fault["name"] for fault in json.loads(out)["faults"]] == ["bad_paper", "half_paper"]


def test_bad_input_is_one_message(tmp_path, call):
    bad = make_paper(tmp_path, "bad_paper", titel="x")
    for arguments, words in (
        (("papers", "--paper", str(bad)), "titel: unknown key; did you mean 'title'?"),
        (("check-paper", str(bad)), "titel: unknown key"),
        (("check-paper", "jomo"), "paper: 'jomo' is not known; did you mean 'joma'?"),
        (("check-paper", "Polarization"), "did you mean 'polarisation'?"),
        (("cite", "jomaa"), "did you mean 'joma'?"),
        (("reproduce", "jomaa"), "did you mean 'joma'?"),
        (("reproduce", "JoMA/erf"), "did you mean 'joma'?"),
        (("audit", "--paper", "scan-and-snap"), "did you mean 'scan_and_snap'?"),
        (("predict", "syn-small", "--theory", "correctd"), "did you mean 'corrected'?"),
        (("check-paper", "./nowhere"), "no such file"),
        (("new-paper", "Bad Name"), "name: expected lower-case words"),
    ):
        code, out, err = call(*arguments, cwd=tmp_path)
        assert code == 2 and not out and words in err and err.count("\n") == 1


def test_a_paper_is_checked(tmp_path, call):
    folder = make_paper(tmp_path, "checked_paper", page="page.md")
    code, out, _ = call("check-paper", str(folder), "--no-verdicts", cwd=tmp_path)
    assert code == 1
    assert "passed: manifest (on record: 0 claims, 0 figures)" in out
    assert "failed: links of the page (page: there is no page.md; write it)" in out
    (folder / "page.md").write_text("# Page\n")
    code, out, _ = call("check-paper", str(folder), "--json", cwd=tmp_path)
    document = json.loads(out)
    assert code == 0 and document["failed"] == 0 and document["paper"] == "checked_paper"
    assert {of["standing"] for of in document["outcomes"]} == {"passed", "nothing to check"}


def test_a_new_paper_is_written_and_found(tmp_path, call):
    code, out, _ = call("new-paper", "written_paper", "--out", "papers", cwd=tmp_path)
    assert code == 0 and out.startswith("wrote papers/written_paper\n")
    _, out, _ = call("papers", "--paper", "papers/written_paper", cwd=tmp_path)
    assert "written_paper" in out


WITHOUT_CODE = [
    ["papers"],
    ["papers", "--json"],
    ["--help"],
    ["papers", "--help"],
    ["check-paper", "--help"],
    ["audit", "--help"],
    ["reproduce", "--help"],
]
COMPLETED = ["attnlab check-paper ", "attnlab reproduce ", "attnlab audit "]


@pytest.mark.slow
def test_no_paper_is_imported_and_no_jax(tmp_path):
    loud = make_paper(tmp_path, "loud_paper", code={"__init__": "raise RuntimeError('imported')"})
    asked = [
        {
            "_ATTNLAB_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split())),
        }
        for words in COMPLETED
    ]
    cases = [*((words, {}) for words in WITHOUT_CODE), *(([], words) for words in asked)]
    results = in_forks(cases, **{VARIABLE: str(loud)})
    for (arguments, environment), (code, out, modules, _) in zip(cases, results, strict=True):
        assert code == 0, arguments
        of_runs = "audit" in f"{arguments} {environment}"  # whose options need numpy
        unwanted = ("attnlab.papers", "jax", "jax" if of_runs else "numpy", "loud_paper")
        assert not [name for name in modules if name.startswith(unwanted)], arguments
        if "check-paper" in environment.get("COMP_WORDS", ""):
            assert "loud_paper" in out


@pytest.mark.slow
def test_a_mistyped_name_is_refused_before_jax_is_loaded():
    cases = [
        ["reproduce", "fig66"],
        ["reproduce", "joma/fig6"],
        ["audit", "--claim", "theorm-2"],
        ["audit", "--paper", "joma", "--claim", "theorem-2"],
        ["audit", "syn-small", "--claim", "theorm-2"],
    ]
    for arguments, (code, out, modules, _) in zip(
        cases, in_forks([(case, {}) for case in cases]), strict=True
    ):
        assert (code, out) == (2, ""), arguments
        assert not [name for name in modules if name.startswith(("attnlab.papers", "jax"))]
