"""attnlab audit, as a person would use it: exit codes, one document, a page."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import typer

from attnlab.auditing import Verdict, select
from attnlab.cli.audit import audit_verb

RECIPES = Path(__file__).parents[2] / "recipes"


def test_claims_by_name(tmp_path, call):
    code, out, err = call(
        "audit", "--claim", "eq-88", "--claim", "remark-2", "--html", "page.html", cwd=tmp_path
    )
    assert code == 0, err
    for word in ("eq-88", "corrected", "remark-2", "fails", "2 claims, all as recorded"):
        assert word in out
    assert "0.38024" in out  # the counterexample, where few claims are asked for
    assert "read as: equality" in out
    assert "asymptotic order (a constant that does not grow)" in " ".join(out.split())
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")


def test_each_paper_has_a_table_of_its_own(tmp_path, call):
    code, out, err = call("audit", "--claim", "joma-tree", "--claim", "lemma-6", cwd=tmp_path)
    assert code == 0, err
    printed, known = out.index("Scan and Snap (2023; printed text)"), out.index("JoMA (2024; as we")
    assert printed < out.index("lemma-6") < known < out.index("joma-tree")
    assert "exact, as we know it" in out
    assert "2 claims, all as recorded" in out


def test_a_paper_has_its_claims(monkeypatch, capsys):
    few = select(["joma-tree", "joma-delta"])
    monkeypatch.setattr(
        "attnlab.auditing.catalogue.claims_of", lambda name: few if name == "joma" else ()
    )
    audit_verb(paper="joma")
    assert "2 claims, all as recorded" in capsys.readouterr().out


PAPER = """
name: mine
title: Mine
short: Mine
authors: Me
year: 2001
question: Is one below two?
reading: ours
attnlab: ">=0.1"
claims:
  - {section: Numbers, modules: [claims]}
"""
CLAIMS = '''
from attnlab.auditing import Measurement, claim
from attnlab.papers.scan_and_snap.cases import WEAK
from attnlab.theory import Check
from attnlab.theory.relation import BELOW


@claim(BELOW, sources="here", case=WEAK)
def one_below_two(case):
    """$1 < 2$.

    Compare 2 with 1.
    """
    return Measurement(Check("one", 2.0, 1.0), number=0.123456)
'''


def test_a_folder_is_audited_and_put_on_record(tmp_path, monkeypatch, call):
    monkeypatch.setenv("ATTNLAB_PAPERS", "")  # and as it was, afterwards
    folder = tmp_path / "mine"
    folder.mkdir()
    for name, text in (("__init__.py", ""), ("paper.yaml", PAPER), ("claims.py", CLAIMS)):
        (folder / name).write_text(text)
    code, out, err = call("audit", "--paper", "mine", "--record", cwd=tmp_path)
    assert code == 0, err
    assert "mine/expected.json" in out
    assert json.loads((folder / "expected.json").read_text()) == {
        "claims": {"one-below-two": {"verdict": "holds", "number": 0.1235}}
    }
    code, out, err = call("audit", "--paper", "mine", "--claim", "one-below-two", cwd=tmp_path)
    assert code == 0, err
    assert "Mine (2001; ours)" in out
    assert "Compare 2 with 1." in out
    assert "1 claim, as recorded" in out


@pytest.mark.slow
def test_json_is_one_document_and_nothing_else(tmp_path):
    # a real process, in which a library could have its say as well
    command = [sys.executable, "-c", "from attnlab.cli import main; main()"]
    command += ["audit", "--claim", "eq-124", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0
    assert done.stderr == ""
    (found,) = json.loads(done.stdout)["claims"]
    assert found["verdict"] == found["recorded"]["verdict"] == "corrected"
    assert found["value"] == pytest.approx(-0.5756, rel=1e-3)
    assert [check["holds"] for check in found["checks"]] == [False, True]


@pytest.mark.slow
def test_classes_of_a_file(tmp_path, call):
    code, out, err = call(
        "audit",
        str(RECIPES / "classes-two-words.yaml"),
        "--eta-y",
        "2",
        "--eta-z",
        "0.1",
        "--json",
        "--html",
        "mine.html",
        "--plot",
        "mine.png",
        cwd=tmp_path,
    )
    assert code == 0, err
    assert (tmp_path / "mine.png").read_bytes().startswith(b"\x89PNG")
    run = json.loads(out)["run"]
    assert run["eta_y"] == 2.0
    asked = {item["asked_by"]: item for item in run["assumptions"]}
    assert {"Assumption 1(c)", "Assumption 2", "Theorem 1", "Corollary 2"} <= set(asked)
    assert asked["Assumption 1(c)"]["needed"] == 30.0
    assert asked["Assumption 1(c)"]["value"] == 20.0
    assert not asked["Assumption 1(c)"]["holds"]
    assert {"predicted", "simulated", "claimed"} <= set(run["fates"][0])
    assert list(run["fates"][0]["predicted"]) == ["printed", "corrected", "sgd"]
    errors = run["errors"]
    assert errors["at"] == ["transition", "end"]
    printed, corrected, sgd = (level["z_error"][0] for level in errors["theories"])
    assert printed > corrected > 10 * sgd
    assert len(errors["costs"]) == 3
    tokens = {row["token"]: row for row in run["fates"]}
    assert tokens["president"]["role"] == "distinct"
    assert tokens["the"]["role"] == "common"
    assert tokens["president"]["simulated"] > 0 > tokens["the"]["simulated"]
    assert {row["next"] for row in run["snap"]} == {"born", "elected"}
    assert all(row["simulated"] > run["transition"][1] for row in run["snap"])
    assert run["commentary"]["scan_and_snap"]["claimed"] == 6
    shown = (tmp_path / "mine.html").read_text()
    assert "president" in shown
    assert shown.count('src="data:image/png;base64,') == 1
    assert "as sgd predicts it" in shown
    assert "What each level of the theory costs" in shown
    assert f"Without {errors['theories'][1]['leans_on']}" in shown


@pytest.mark.slow
def test_the_table_has_the_errors_of_each_theory_and_their_costs(tmp_path, call):
    code, out, err = call("audit", "syn-small", "--eta-y", "10", cwd=tmp_path)
    assert code == 0, err
    shown = " ".join(out.split())
    for words in (
        "theory z, transition z, end attention, transition attention, end printed",
        "Without Theorem 1's decoder (Eq. 26, weak correlations, uniform classes, a large "
        "vocabulary) the error in z goes",
        "theorem printed corrected sgd training",
        "class next printed corrected sgd training",
        "predicted transition: 0.7053 <= t <= 2.053",
        "Conclusion Theorem 2 and Corollary 2 speak of 20 of 40 tokens",
        "eta_Y >> eta_Z: their ratio (here 10, needs >= 30)",
    ):
        assert words in shown


def test_times_that_have_not_come_are_bounds(tmp_path, call):
    code, out, err = call("audit", "syn-small", "--time", "1", cwd=tmp_path)
    assert code == 0, err
    assert " ".join(out.split()).count("0 32 >= 1 >= 1 >= 1 >= 1") == 1
    assert "It snaps at t >= 1 in training" in " ".join(out.split())


def test_a_claim_is_shown_with_its_hypotheses_and_how_they_were_read(tmp_path, call):
    code, out, err = call("audit", "--claim", "eq-62", cwd=tmp_path)
    assert code == 0, err
    shown = " ".join(out.split())
    assert "read as: much smaller (at most 1/10)" in shown
    assert "Delta << N/K" in shown
    assert "<= 0.1 holds" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--claim", "theorem-33"], "did you mean theorem-3"),
        (["--paper", "jama"], "paper: 'jama' is not known; did you mean 'joma'"),
        (["--paper", "joma", "--claim", "lemma-6"], "claim: 'lemma-6' is not of joma"),
        (["syn-small", "--paper", "joma"], "paper: it is for the claims on built-in settings"),
        (["syn-small", "--record"], "record: it is for the claims on built-in settings"),
        (["--eta-y", "1"], "eta-y: the built-in settings have their own"),
        (["syn-smal"], "did you mean 'syn-small'"),
        (["syn-small", "--eta-z", "0"], "eta_z: expected a finite number above 0"),
        (["syn-small", "--claim", "lemma-6"], "tested on built-in classes only"),
        (["--plot", "page.png"], "plot: the built-in settings have their own; give CLASSES"),
        (["syn-small", "--plot", "page.txt"], "plot: the name should end in .png"),
        (["--html", "page.txt"], "html: the name should end in .html"),
        (["--html", "nowhere/page.html"], "html: the folder nowhere does not exist"),
        (["--html", "x" * 300 + ".html"], ".html: File name too long"),
    ],
)
def test_bad_input_exits_with_2_and_one_message(tmp_path, call, arguments, message):
    code, out, err = call("audit", *arguments, cwd=tmp_path)
    assert code == 2
    assert message in err
    assert "Traceback" not in err
    assert out == ""
    assert not list(tmp_path.iterdir())


def test_a_changed_verdict_exits_with_1(monkeypatch, capsys):
    (claim,) = select(["eq-128"])
    moved = replace(claim, recorded=replace(claim.recorded, verdict=Verdict.HOLDS))
    monkeypatch.setattr("attnlab.auditing.catalogue.find", lambda ids, paper: ((moved,), []))
    with pytest.raises(typer.Exit) as stopped:
        audit_verb(claim=["eq-128"])
    assert stopped.value.exit_code == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert "was holds" in shown
    assert "1 not as recorded: eq-128" in shown


@pytest.mark.parametrize("option", ["--eta-z", "--time"])
def test_extreme_learning_rates_and_times_are_refused(tmp_path, call, option):
    code, out, said = call("audit", "syn-small", option, "1e300", "--json", cwd=tmp_path)
    assert (code, out) == (2, "")
    assert f"{option[2:].replace('-', '_')}: expected" in said
    assert "finite in float32" in said
