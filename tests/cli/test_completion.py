"""Completion in the shell: verbs, options and presets, without loading JAX."""

import os
import subprocess
import sys

import pytest

from attnlab.cli import options
from attnlab.models import SequenceModel
from attnlab.report.make import chosen_parts
from attnlab.shelf import offered
from attnlab.tasks.classes import presets

JOMA = ("erf", "hblt", "hierarchy", "invariants", "salience")


def asking(*words):
    """Return the environment in which bash asks for candidates for the last of these words."""
    return {
        "_ATTNLAB_COMPLETE": "complete_bash",
        "COMP_WORDS": "\n".join(["attnlab", *words]),
        "COMP_CWORD": str(len(words)),
    }


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("s",), ["simulate", "sweep"]),
        (("text", "a"), ["agreement"]),
        (("simulate", "syn-"), ["syn-small", "syn-medium"]),
        (("simulate", "recipes/"), []),  # where the shell itself completes files
        (("simulate", "syn-small", "--eta"), ["--eta-y", "--eta-z"]),
        (("simulate", "syn-small", "--motion", ""), ["steps", "flow"]),
        (("play", "syn-small", "--gradient", "p"), ["population"]),
        (("audit", "syn-small", "--optimizer", "adam"), ["adam", "adamw"]),
        (("predict", "syn-small", "--init", ""), ["zero", "uniform"]),
        (("predict", "joma-toy", "--model", "j"), ["joint"]),
        (("predict", "syn-small", "--theory", "pr"), ["printed"]),
        (("audit", "z"), ["zipf"]),
        (("play", "ran"), ["random"]),
        (("reproduce", "fig1"), ["fig10", "fig11", "fig12"]),
        (("reproduce", "length", "o"), ["optimizers", "overlap"]),
        (("reproduce", "joma"), ["joma", *(f"joma/{name}" for name in JOMA)]),
        (("cite", "j"), ["joma"]),
    ],
)
def test_what_can_follow(words, found, monkeypatch, tmp_path, call):
    for name, value in asking(*words).items():
        monkeypatch.setenv(name, value)
    code, out, err = call(cwd=tmp_path)
    assert (code, out.split(), err) == (0, found, "")


def test_the_words_are_those_that_are_understood():
    assert presets() == options.PRESETS
    kinds = SequenceModel.kinds().items()  # those of other tests are not shipped
    shipped = {name for name, kind in kinds if kind.__module__.startswith("attnlab.models")}
    assert shipped | {*offered("models")} == {*options.MODELS}
    assert tuple(offered("theories")) == options.THEORIES
    for name in options.PARTS:
        assert chosen_parts([name]), name


def answered_without(modules, *arguments, **environment):
    """Return the output of the command line if some modules cannot be imported."""
    code = (
        "import sys\n"
        f"for name in {modules!r}: sys.modules[name] = None\n"
        f"sys.argv = {['attnlab', *arguments]!r}\n"
        "from attnlab.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_shell_is_answered_without_jax():
    found = answered_without(("jax",), **asking("audit", "sy"))
    assert found == "syn-small\nsyn-medium\nsymmetric\n"


def test_verbs_are_completed_without_the_options_of_runs():
    """These are derived from the value, which needs numpy and xarray."""
    found = answered_without(("jax", "numpy", "xarray"), **asking("s"))
    assert found == "simulate\nsweep\n"
    assert "simulate" in answered_without(("jax", "numpy", "xarray"), "--help")


@pytest.mark.parametrize("verb", ["simulate", "predict", "audit", "play", "text train"])
def test_help_needs_no_jax_and_little_time(verb):
    begun = os.times()
    out = answered_without(("jax", "diffrax", "optax"), *verb.split(), "--help")
    ended = os.times()
    spent = sum(ended[2:4]) - sum(begun[2:4])  # of the process, however busy the machine is
    assert spent < 2, f"{spent:.1f} s"
    for words in ("Examples:", "Task:", "Model:", "Motion:", "Gradient:", "Record:", "Run:"):
        assert f"{words}\n" in out, words
