"""What the shell completes: verbs, options and presets, without loading JAX."""

import os
import subprocess
import sys

import pytest

from attnlab.cli import arguments, reproduce
from attnlab.data import presets
from attnlab.dynamics import models
from attnlab.report.make import chosen_parts
from attnlab.shelf import offered

JOMA = ("erf", "hblt", "hierarchy", "invariants", "salience")


def asking(*words):
    """What bash says when it asks for candidates for the last of these words."""
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
        (("simulate", "syn-small", "--engine", ""), ["sampled", "limit", "flow"]),
        (("predict", "joma-toy", "--model", "j"), ["joint"]),
        (("predict", "syn-small", "--theory", "p"), ["printed"]),
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
    assert presets() == arguments.PRESETS
    ours = {getattr(models, name) for name in models.__all__} - {models.Model}
    assert {model.called() for model in ours} | {*offered("models")} == {*arguments.MODELS}
    assert tuple(offered("theories")) == arguments.THEORIES
    for name in reproduce.NAMES:
        assert chosen_parts([name]), name


def test_a_shell_is_answered_without_jax():
    code = (
        "import sys\n"
        "for name in ('jax', 'numpy', 'xarray'): sys.modules[name] = None\n"
        "sys.argv = ['attnlab']\n"
        "from attnlab.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **asking("audit", "sy")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "syn-small\nsyn-medium\nsymmetric\n"), done.stderr
