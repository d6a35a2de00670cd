"""attnlab predict: a table, a document, a picture."""

import json
import re

import pytest

import attnlab
from attnlab.cli import app
from attnlab.formulas import solving

QUICK = ("--gradient", "population", "--steps", "20")


def test_a_table_with_times_and_assumptions(call, tmp_path):
    code, out, err = call("predict", "syn-small", *QUICK, "--theory", "corrected", cwd=tmp_path)
    assert code == 0, err
    assert "theory: corrected" in out and "t0_prime" in out
    code, out, err = call("predict", "syn-small", *QUICK, "--out", "p.nc", cwd=tmp_path)
    assert code == 0, err
    assert "theory: sgd" in out
    assert "eta_Y >> eta_Z: their ratio" in out and ">= 30" in out
    predicted = attnlab.load(tmp_path / "p.nc")
    assert predicted.attrs["theory"] == "sgd"
    assert attnlab.Simulation.of(predicted).last == 20


def test_json_is_one_document_and_the_worst_learning_rate_is_shown(call, tmp_path):
    code, out, err = call(
        "predict",
        "syn-small",
        *QUICK,
        "--eta-y",
        "100,1",
        "--theory",
        "sgd",
        "--json",
        cwd=tmp_path,
    )
    assert code == 0, err
    document = json.loads(out)
    assert document["theory"] == "sgd" and len(document["summary"]) == 4
    (ratio,) = [row for row in document["assumptions"] if "eta_Y >> eta_Z" in row["assumption"]]
    assert ratio["value"] == 1.0 and not ratio["holds"]


def test_the_picture_has_both(call, tmp_path):
    code, _, err = call("predict", "syn-small", *QUICK, "--plot", "both.png", cwd=tmp_path)
    assert code == 0, err
    assert (tmp_path / "both.png").read_bytes().startswith(b"\x89PNG")
    shown = ("--plot", "some.png", "--show-classes", "7")
    code, _, err = call("predict", "syn-small", *QUICK, *shown, cwd=tmp_path)
    assert code == 2 and "classes: 7 is not in the result" in err


@pytest.mark.slow
def test_a_joint_model_by_joma_beside_its_run(call, tmp_path):
    code, out, err = call(
        "predict",
        "joma-toy",
        "--model",
        "joint",
        "--theory",
        "joma",
        *QUICK,
        "--plot",
        "x.png",
        "--json",
        cwd=tmp_path,
    )
    assert code == 0, err
    document = json.loads(out)
    assert document["theory"] == "joma"
    assert document["spec"]["model"]["name"] == "joint"
    said = {row["assumption"]: row for row in document["assumptions"]}
    (drift,) = [row for name, row in said.items() if "b-bar is constant" in name]
    assert drift["value"] > 0 and drift["source"] == "JoMA, claim 1"
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")


def test_what_is_wrong_is_named(call, tmp_path):
    for options, words in (
        (("--theory", "prited"), "did you mean 'printed'"),
        (("--at", "1.5"), "at: optimizer steps are whole"),
        (("--eta-y", "0", "--theory", "corrected"), "eta_y"),
        (("--model", "joint", "--theory", "sgd"), "the theory is about the paper's model"),
        (("--residual",), "the theory is about the paper's model"),
        (("--theory", "joma"), "give model=Joint"),
        (("--model", "joint:activation=gleu"), "did you mean 'gelu'"),
        (("--model", "joint:hiden=3"), "did you mean 'hidden'"),
        (("--model", "joint:hidden"), "model: expected field=value, got 'hidden'"),
        (("--model", "joint:hidden=3,hidden=4"), "model.hidden: given twice"),
    ):
        code, out, err = call("predict", "syn-small", *QUICK, *options, cwd=tmp_path)
        assert (code, out) == (2, "") and words in err


def test_an_equation_that_cannot_be_followed_is_given_up(call, tmp_path, monkeypatch):
    monkeypatch.setattr(solving, "MOST_CALLS", 1000)
    arguments = ["predict", "syn-small", "--motion", "flow", "--time", "1e38", "--theory", "sgd"]
    code, _, said = call(*arguments, cwd=tmp_path)
    assert code == app.DIVERGED
    assert re.match(
        r"attnlab: theory: the flow was given up after 1,000 calls, at time \S+ of 1e\+38; "
        "give rates closer to each other, or a shorter time\n$",
        said,
    )
