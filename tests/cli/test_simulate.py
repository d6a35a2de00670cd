"""attnlab simulate, as a person would use it: one real process, real files."""

import errno
import json
import os
import subprocess
import sys

import numpy as np
import pytest

import attnlab
from attnlab.tasks.classes import classes_from

WORDS = """
vocabulary: [the, a, b, was, "[/]", ":on:"]
classes:
  - {query: was, next: "[/]", probs: {the: 0.5, a: 0.5}}
  - {query: was, next: ":on:", probs: {the: 0.5, b: 0.5}}
"""
QUICK = ["--length", "16", "--batch-size", "8", "--steps", "12"]


@pytest.mark.slow
def test_table_file_and_picture(tmp_path):
    command = [sys.executable, "-c", "from attnlab.cli import main; main()"]
    command += ["simulate", "syn-small", *QUICK, "--out", "run.nc", "--plot", "run.png"]
    command += ["--animate", "run.gif"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    for word in ("winner", "entropy", "common mass", "snap step", "wrote run.nc", "wrote run.png"):
        assert word in done.stdout
    result = attnlab.load(tmp_path / "run.nc")
    assert result.step.values[-1] == 12
    assert attnlab.Simulation.of(result).momentum == 0.9
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "run.gif").read_bytes().startswith(b"GIF89a")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.gif", "run.nc", "run.png"]


def test_json_is_one_document_and_nothing_else(tmp_path, call):
    code, out, err = call(
        "simulate", "syn-small", *QUICK, "--eta-z", "0.5,1", "--seeds", "2", "--json", cwd=tmp_path
    )
    document = json.loads(out)
    assert (code, err) == (0, "")
    assert len(document["summary"]) == 4  # two rates, two classes
    assert {row["eta_z"] for row in document["summary"]} == {0.5, 1.0}
    assert np.shape(document["loss"]["values"]) == (2, 2, 13)


def test_saturating_rates_and_identical_heads_give_a_warning(tmp_path, call):
    options = [*QUICK, "--heads", "2", "--eta-y", "1e6"]
    code, _, err = call("simulate", "syn-small", *options, "--json", cwd=tmp_path)
    assert code == 0, err
    assert "attnlab: init: heads that start alike stay alike; give init='uniform'" in err
    assert "attnlab: eta_y: at 1e+06 a single step saturates the softmax" in err
    assert attnlab.Simulation("syn-small", motion="flow", eta_y=1e6).cautions == []


def test_names_are_printed_as_they_are(tmp_path, call):
    (tmp_path / "[b].yaml").write_text(WORDS)
    code, out, err = call("simulate", "[b].yaml", *QUICK, "--out", "[draft].nc", cwd=tmp_path)
    assert code == 0, err
    for name in ("[b].yaml: T = 16", "[/]", ":on:", "wrote [draft].nc"):
        assert name in out


def test_variants_are_options_and_heads_have_a_column(tmp_path, call):
    code, out, err = call(
        "simulate",
        "syn-small",
        *QUICK,
        "--residual",
        "--normalization",
        "layer",
        "--heads",
        "2",
        "--combine",
        "concatenate",
        "--position",
        "learned",
        "--attend-self",
        "--weight-decay",
        "0.01",
        "--prior",
        "0.7,0.3",
        "--training-set",
        "30",
        "--init",
        "uniform",
        "--json",
        cwd=tmp_path,
    )
    assert code == 0, err
    document = json.loads(out)
    assert [(row["head"], row["sequence_class"]) for row in document["summary"]] == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
    ]
    spec = document["spec"]
    assert spec["model"] == {
        "name": "extended",
        "residual": True,
        "normalization": "layer",
        "heads": 2,
        "combine": "concatenate",
        "position": {"name": "learned"},
        "attend_self": True,
    }
    assert spec["motion"]["optimizer"]["weight_decay"] == 0.01
    assert spec["task"]["training_set"] == 30
    assert spec["task"]["classes"]["origin"] == "syn-small with prior 0.7, 0.3"


def test_any_model_by_its_name_and_fields(tmp_path, call):
    code, out, err = call(
        "simulate",
        "joma-toy",
        "--gradient",
        "population",
        "--steps",
        "2",
        "--json",
        "--model",
        "joint:hidden=3,activation=gelu,temperature=0.5,residual=false",
        cwd=tmp_path,
    )
    assert code == 0, err
    model = json.loads(out)["spec"]["model"]
    assert (model["name"], model["hidden"], model["activation"]) == ("joint", 3, "gelu")
    assert (model["temperature"], model["residual"]) == (0.5, False)


def test_divergence_exits_with_3_and_keeps_the_records(tmp_path, call):
    code, _, err = call(
        "simulate",
        "syn-small",
        "--gradient",
        "population",
        "--eta-y",
        "1e38",
        "--out",
        "run.nc",
        cwd=tmp_path,
    )
    assert code == 3
    assert "became non-finite at step" in err
    assert "Traceback" not in err
    assert int(attnlab.load(tmp_path / "run.nc").diverged_step.item()) > 1


@pytest.mark.parametrize(("option", "file"), [("--out", "run.nc"), ("--plot", "run.png")])
def test_a_full_disk_names_the_file(option, file, tmp_path, call, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    code, _, err = call("simulate", "syn-small", *QUICK, option, file, cwd=tmp_path)
    assert (code, err) == (2, f"attnlab: {file}: No space left on device\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["syn-smal"], "did you mean 'syn-small'"),
        (["syn-medium:num_lst=3"], "num_last"),
        (["absent.yaml"], "absent.yaml"),
        (["syn-small", "--motion", "flwo"], "motion.name: 'flwo' is not among the choices"),
        (["syn-small", "--eta-y", "fast"], "eta_y: expected a number or a list, got 'fast'"),
        (["syn-small", "--eta-y", ""], "eta_y: empty"),
        (["syn-small", "--eta-y", "1,"], "eta_y: empty"),
        (["syn-small", "--what", "[loss"], "what: invalid YAML"),
        (["syn-small", "--dtype", "float46"], "did you mean 'float64'"),
        (["syn-small", "--steps", "2.5"], "steps: expected a whole number, got 2.5"),
        (["syn-small", "--motion", "flow", "--steps", "5"], "steps: belongs to Steps"),
        (["syn-small", "--eta-y", "-1"], "eta_y:"),
        (["syn-small", "--steps", "0"], "steps:"),
        (["syn-small", "--model", "joint", "--heads", "2"], "heads: belongs to Extended"),
        (["syn-small", "--what", "weights"], "what:"),
        (["syn-small", "--at", "5,3"], "at:"),
        (["syn-small", "--out", "missing/run.nc"], "out:"),
        (["syn-small", "--out", "run.txt"], "out:"),
        (["syn-small", "--plot", "run.png", "--what", "loss"], "what: --plot needs"),
        (["syn-small", "--animate", "run.gif", "--what", "loss"], "what: --animate needs"),
        (["syn-small", "--animate", "run.mp4"], "animate:"),
        (["syn-small", "--show-tokens", "1"], "show-tokens: belongs to a drawing"),
        (["syn-small", "--motion", "flow", "--momentum", "0.5"], "momentum: belongs to Steps"),
        (["syn-small", "--normalization", "l1"], "normalization:"),
        (["syn-small", "--heads", "0"], "heads:"),
        (["syn-small", "--position", "alibi"], "position:"),
        (["syn-small", "--position", "learned", "--length", "inf"], "position:"),
        (["syn-small", "--weight-decay", "-1"], "weight_decay:"),
        (["syn-small", "--prior", "0.7,0.7"], "prior:"),
        (["syn-small", "--prior", "1"], "prior:"),
        (["syn-small", "--training-set", "9", "--length", "inf"], "training_set:"),
        (["old.yaml"], "old.yaml: classes: was a field of version 0.1"),
        (["sets.yaml"], "task: the command line takes one set of classes"),
    ],
)
def test_bad_input_exits_with_2_and_one_message(arguments, message, tmp_path, monkeypatch):
    from unittest import mock

    from attnlab.cli import app

    monkeypatch.chdir(tmp_path)
    files = {
        "old.yaml": "classes: syn-small\nengine: limit\n",
        "sets.yaml": "task: [syn-small, syn-small]\n",
    }
    for name in files.keys() & arguments:
        (tmp_path / name).write_text(files[name])
    # in this process: a new one for each would cost seconds
    with mock.patch.object(sys, "argv", ["attnlab", "simulate", *arguments]):
        said = []
        with mock.patch.object(app, "_say", said.append), pytest.raises(SystemExit) as stop:
            app.main()
    assert stop.value.code == 2
    assert len(said) == 1
    assert message in said[0]
    assert {path.name for path in tmp_path.iterdir()} == files.keys() & arguments


RUN = """
task: {name: sequences, classes: syn-small, length: 16}
gradient: {name: batches, size: 8}
motion: {name: steps, steps: 50, optimizer: adam}
model: {name: extended, residual: true}
eta_y: 0.1
record: {what: [attention, loss], every: 10}
"""


def test_a_file_of_a_run_is_run_and_options_replace_its_settings(tmp_path, call):
    (tmp_path / "run.yaml").write_text(RUN)
    options = ("--steps", "12", "--at", "0,6,12", "--no-residual", "--prior", "0.7,0.3")
    code, _, err = call("simulate", "run.yaml", *options, "--out", "run.nc", cwd=tmp_path)
    assert code == 0, err
    run = attnlab.Simulation.of(attnlab.load(tmp_path / "run.nc"))
    assert run == attnlab.simulation.as_simulation(
        classes_from("syn-small").with_prior([0.7, 0.3]),
        model="extended",
        length=16,
        batch_size=8,
        steps=12,
        optimizer="adam",
        eta_y=0.1,
        what=("attention", "loss"),
        at=(0, 6, 12),
    )


def test_help_has_examples(tmp_path, call):
    _, out, _ = call("simulate", "--help", cwd=tmp_path)
    assert "attnlab simulate syn-small --eta-y 10 --plot run.png" in out
