"""attnlab text: a training from a file of words to a table, a document and a picture."""

import json
import sys
from unittest import mock

import pytest

import attnlab
from attnlab.cli import app
from attnlab.text.cohort import Cohort

QUICK = [
    "--dim", "16", "--feed-forward", "16", "--heads", "2", "--context", "8", "--batch", "4",
    "--steps", "20", "--measure-every", "10", "--validation-tokens", "160",
]  # fmt: skip


def attnlab_text(*arguments):
    # in this process: a new one for each would cost seconds
    with mock.patch.object(sys, "argv", ["attnlab", "text", *map(str, arguments)]):
        said = []
        with mock.patch.object(app, "_say", said.append), pytest.raises(SystemExit) as stop:
            app.main()
    return stop.value.code, said


def command(folder, rates="0.5,2"):
    held = ["--validation", folder / "held.txt", "--rates", rates]
    return ["train", folder / "words.txt", *held, *QUICK]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder with a corpus and the training of two rates on it."""
    folder = tmp_path_factory.mktemp("text")
    words = [f"w{i * 3 % 17}" for i in range(4000)]
    # the sizes of tests/text/test_train.py, so that they share compiled programs
    (folder / "words.txt").write_text(" ".join(words[:3000]))
    (folder / "held.txt").write_text(" ".join(words[3000:]))
    with mock.patch.dict("os.environ", {"ATTNLAB_CACHE": str(folder / "cache")}):
        code, said = attnlab_text(*command(folder), "--out", folder / "run")
    assert (code, said) == (0, [])
    return folder


def test_an_interrupt_says_what_is_kept(finished, tmp_path, keyboard, monkeypatch):
    real = Cohort.advance

    def advance(cohort, count):
        real(cohort, count)
        keyboard.press()

    monkeypatch.setenv("ATTNLAB_CACHE", str(finished / "cache"))
    monkeypatch.setattr(Cohort, "advance", advance)
    code, said = attnlab_text(*command(finished), "--out", tmp_path / "run")
    assert code == app.INTERRUPTED
    assert said[0].startswith("stopped at step 1 of 20; the same settings go on from there")
    assert (tmp_path / "run" / "checkpoint.safetensors").exists()


def test_a_run_that_diverges_is_named_with_its_step(finished, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("ATTNLAB_CACHE", str(finished / "cache"))
    asked = [*command(finished, rates="0.5,1e38"), "--out", tmp_path / "run"]
    assert attnlab_text(*asked) == (app.DIVERGED, [])
    printed = capsys.readouterr().out
    result = attnlab.load(tmp_path / "run" / "result.nc")
    step = int(result.diverged_step.sel(rate=1e38, seed=0))
    assert step > 0
    line = f"diverged: rate 1e+38, seed 0, with a loss that is not finite from step {step} on"
    assert line in printed.splitlines()
    assert attnlab_text(*asked, "--json") == (app.DIVERGED, [])
    document = json.loads(capsys.readouterr().out)
    assert document["diverged"] == [{"rate": 1e38, "seed": 0, "step": step}]


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
    assert [row["rate"] for row in document["summary"]] == [0.5, 0.5, 2.0, 2.0]  # two heads each
    assert document["steps"] == [0, 10, 20]
    assert document["summary"][0]["validation_loss"] < 2.9
    assert attnlab.load(finished / "run" / "result.nc").attrs["made_at"] == made_at

    code, said = attnlab_text(*words, "--seeds", "2", "--out", finished / "run")
    assert code == 2
    assert "holds another training (seeds: [0] there, [0, 1] here)" in said[0]


def test_names_are_printed_as_they_are_and_no_number_is_cut(finished, capsys, monkeypatch):
    monkeypatch.setenv("ATTNLAB_CACHE", str(finished / "cache"))
    monkeypatch.setenv("COLUMNS", "30")
    (finished / "[b] :on:.txt").write_text((finished / "words.txt").read_text())
    (finished / "f[").mkdir()
    source, out = finished / "[b] :on:.txt", finished / "f[" / "b] [draft]"
    asked = ["train", source, "--validation", finished / "held.txt", *QUICK, "--out", out]
    asked += ["--rates", "300", "--clip", "1"]  # a loss whose exponential no number can hold
    assert attnlab_text(*asked) == (0, [])
    printed = capsys.readouterr().out
    assert "Corpus('[b] :on:.txt'" in printed
    assert printed.endswith(f"wrote {out}\n")
    assert attnlab_text(*asked, "--json") == (0, [])
    row = json.loads(capsys.readouterr().out)["summary"][0]
    assert row["validation_loss"] > 709
    assert row["perplexity"] is None
    cells = [f"{row['validation_loss']:.3f}", f"{row['top_mass_end']['1']:.3f}"]
    lines = [line for line in printed.splitlines() if line.startswith(" 300 ")]
    assert len(lines) == 2
    assert set(cells) <= set(lines[0].split())
    assert f"{row['entropy_start']:.2f} → {row['entropy_end']:.2f}" in lines[0]


def test_the_picture_has_curves_and_words(finished, tmp_path):
    from attnlab.plots import training

    assert attnlab_text("plot", finished / "run", "--out", tmp_path / "run.png") == (0, [])
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")
    result = attnlab.load(finished / "run" / "result.nc")
    found = training.data(result)
    assert found.attrs["rate"] in (0.5, 2.0)
    assert list(found["word"].values) == list(result["probe_word"].values[0])
    figure = training.draw(found)
    labels = [text.get_text() for text in figure.subfigs[1].axes[0].get_xticklabels()]
    assert labels == list(found["word"].values)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "absent.txt", "--out", "run"], "absent.txt: no such corpus"),
        (["train", "builtin", "--out", "run", "--heads", "3"], "heads: 3 heads do not divide"),
        (["train", "builtin", "--out", "run", "--rates", "fast"], "rates: expected a number"),
        (["train", "builtin", "--out", "run", "--seeds", "0"], "seeds: expected at least 1, got 0"),
        (["train", "builtin", "--out", "run", "--tokens", "letters"], "tokens: expected one of"),
        (["train", "builtin", "--out", "run", "--batch", "9000"], "corpus: the training part"),
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
