"""attnlab text: a training from a file of words to a table, a document and a picture."""

import json
import re
import subprocess
import sys
from unittest import mock

import pytest

import attnlab
from attnlab.cli import app
from attnlab.simulation.groups import Stepping

QUICK = [
    "--dim",
    "16",
    "--mlp",
    "16",
    "--heads",
    "2",
    "--length",
    "8",
    "--batch-size",
    "4",
    "--steps",
    "20",
    "--every",
    "10",
    "--validation-tokens",
    "160",
]
OUT = ("--out", "run")


def attnlab_text(*arguments):
    # in this process: a new one for each would cost seconds
    with mock.patch.object(sys, "argv", ["attnlab", "text", *map(str, arguments)]):
        said = []
        with mock.patch.object(app, "_say", said.append), pytest.raises(SystemExit) as stop:
            app.main()
    return stop.value.code, said


def command(folder, learning_rate="0.5,2"):
    held = ["--validation", folder / "held.txt", "--learning-rate", learning_rate]
    return ["train", folder / "words.txt", *held, *QUICK]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder with a corpus and the training of two learning rates on it."""
    folder = tmp_path_factory.mktemp("text")
    words = [f"w{i * 3 % 17}" for i in range(4000)]
    # the sizes of tests/simulation/test_text.py, so that they share compiled programs
    (folder / "words.txt").write_text(" ".join(words[:3000]))
    (folder / "held.txt").write_text(" ".join(words[3000:]))
    with mock.patch.dict("os.environ", {"ATTNLAB_CACHE": str(folder / "cache")}):
        code, said = attnlab_text(*command(folder), "--out", folder / "run")
    assert (code, said) == (0, [])
    return folder


@pytest.mark.slow
def test_an_interrupt_names_what_is_kept(finished, tmp_path, keyboard, monkeypatch):
    real, pressed = Stepping.advance, []

    def advance(group, target):
        arrived = real(group, target)
        if group.step and not pressed:
            pressed.append(True)
            keyboard.press()
        return arrived

    monkeypatch.setenv("ATTNLAB_CACHE", str(finished / "cache"))
    monkeypatch.setattr(Stepping, "advance", advance)
    code, said = attnlab_text(*command(finished), "--out", tmp_path / "run")
    assert code == app.INTERRUPTED
    assert re.match(r"stopped at steps? .* of 20; the same settings go on from there", said[0])
    assert (tmp_path / "run" / "checkpoint.safetensors").exists()


@pytest.mark.slow
def test_a_run_that_diverges_is_named_with_its_step(finished, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("ATTNLAB_CACHE", str(finished / "cache"))
    asked = [*command(finished, learning_rate="0.5,1e38"), "--out", tmp_path / "run"]
    assert attnlab_text(*asked) == (app.DIVERGED, [])
    printed = capsys.readouterr().out
    result = attnlab.load(tmp_path / "run" / "result.nc")
    step = int(result.diverged_step.sel(learning_rate=1e38, seed=0))
    assert step > 0
    line = f"diverged: learning rate 1e+38, seed 0, at step {step}"
    assert line in printed.splitlines()
    assert attnlab_text(*asked, "--json") == (app.DIVERGED, [])
    document = json.loads(capsys.readouterr().out)
    assert document["diverged"] == [{"learning_rate": 1e38, "seed": 0, "step": step}]


@pytest.mark.slow
def test_the_same_command_reads_what_there_is_and_prints_a_table(finished, capsys, monkeypatch):
    monkeypatch.setenv("ATTNLAB_CACHE", str(finished / "cache"))
    words = command(finished)
    made_at = attnlab.load(finished / "run" / "result.nc").attrs["made_at"]
    assert attnlab_text(*words, "--out", finished / "run") == (0, [])
    out = capsys.readouterr().out
    for word in ("perplexity", "entropy", "snap", "vocabulary 18", "run was finished before"):
        assert word in out
    assert "wrote" not in out

    assert attnlab_text(*words, "--out", finished / "run", "--json") == (0, [])
    document = json.loads(capsys.readouterr().out)
    rates = [row["learning_rate"] for row in document["summary"]]
    assert rates == [0.5, 0.5, 2.0, 2.0]  # two heads each
    assert document["steps"] == [0, 10, 20]
    assert document["summary"][0]["validation_loss"] < 2.9
    assert attnlab.load(finished / "run" / "result.nc").attrs["made_at"] == made_at

    code, said = attnlab_text(*words, "--seeds", "2", "--out", finished / "run")
    assert code == 2
    assert "holds another run (seeds: 1 there, 2 here)" in said[0]


@pytest.mark.slow
def test_names_are_printed_as_they_are_and_no_number_is_cut(finished, capsys, monkeypatch):
    monkeypatch.setenv("ATTNLAB_CACHE", str(finished / "cache"))
    monkeypatch.setenv("COLUMNS", "30")
    (finished / "[b] :on:.txt").write_text((finished / "words.txt").read_text())
    (finished / "f[").mkdir()
    source, out = finished / "[b] :on:.txt", finished / "f[" / "b] [draft]"
    asked = ["train", source, "--validation", finished / "held.txt", *QUICK, "--out", out]
    # a loss whose exponential no number can hold
    asked += ["--learning-rate", "300", "--clip", "1"]
    assert attnlab_text(*asked) == (0, [])
    printed = capsys.readouterr().out
    assert "Corpus('[b] :on:.txt'" in printed
    assert printed.endswith(f"wrote {out}\n")
    assert attnlab_text(*asked, "--json") == (0, [])
    row = json.loads(capsys.readouterr().out)["summary"][0]
    assert row["validation_loss"] > 709
    assert row["perplexity"] is None
    cells = [f"{row['validation_loss']:.3f}", f"{row['top_mass_end']['1']:.3f}"]
    lines = [line for line in printed.splitlines() if line.split()[:1] == ["300"]]
    assert len(lines) == 2
    assert set(cells) <= set(lines[0].split())
    assert f"{row['entropy_start']:.2f} → {row['entropy_end']:.2f}" in lines[0]


@pytest.mark.slow
def test_the_picture_has_curves_and_words(finished, tmp_path):
    from attnlab.plots import training

    assert attnlab_text("plot", finished / "run", "--out", tmp_path / "run.png") == (0, [])
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")
    result = attnlab.load(finished / "run" / "result.nc")
    found = training.data(result)
    assert found.attrs["learning_rate"] in (0.5, 2.0)
    assert list(found["word"].values) == list(result["probe_word"].values[0])
    figure = training.draw(found)
    labels = [text.get_text() for text in figure.subfigs[1].axes[0].get_xticklabels()]
    assert labels == list(found["word"].values)


@pytest.mark.slow
def test_the_options_are_those_of_the_value_and_their_help_needs_no_jax():
    code = "import sys; from attnlab.cli import main\n"
    code += "try: main()\nfinally: print('jax' in sys.modules)"
    command = [sys.executable, "-c", code, "text", "train", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    for words in ("--mlp N", "--batch-size N", "--momentum X", "[default: 1500]", "--precision"):
        assert words in done.stdout
    assert "--eta-y" not in done.stdout
    assert done.stdout.endswith("False\n")


@pytest.mark.slow
def test_records_may_be_at_steps_that_are_listed(finished, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("ATTNLAB_CACHE", str(finished / "cache"))
    asked = [*command(finished), "--every", "3,10", "--out", tmp_path / "run", "--json"]
    assert attnlab_text(*asked) == (0, [])
    assert json.loads(capsys.readouterr().out)["steps"] == [0, 3, 10, 20]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "absent.txt", *OUT], "absent.txt: no such corpus"),
        (["train", "builtin", *OUT, "--heads", "3"], "heads: 3 heads do not divide"),
        (["train", "builtin", *OUT, "--learning-rate", "fast"], "learning-rate: expected a number"),
        (["train", "builtin", *OUT, "--seeds", "0"], "seeds: expected at least 1, got 0"),
        (["train", "builtin", *OUT, "--tokens", "letters"], "tokens: expected one of"),
        (["train", "builtin", *OUT, "--batch-size", "9000"], "corpus: the training part"),
        (["plot", "absent", "--out", "run.png"], "absent: no finished training"),
        (["plot", "absent", "--out", "run.txt"], "out: the name should end in .png"),
    ],
)
def test_bad_input_exits_with_2_and_one_message(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ATTNLAB_CACHE", str(tmp_path / "cache"))
    code, said = attnlab_text(*arguments)
    assert code == 2
    assert len(said) == 1
    assert message in said[0]
    assert not (tmp_path / "run").exists()
