"""Completion in the shell: verbs, options and presets, without loading JAX."""

import pytest
from commands import in_forks

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


@pytest.mark.slow
def test_shells_are_answered_and_helped_without_jax_and_in_little_time():
    """The options of runs need numpy and xarray, the names of verbs do not."""
    runs = ["simulate", "predict", "audit", "play", "text train"]
    cases = [([], asking("audit", "sy")), *(([*verb.split(), "--help"], {}) for verb in runs)]
    (_, found, *_), *helped = in_forks(cases, blocked=("jax", "diffrax", "optax"))
    assert found == "syn-small\nsyn-medium\nsymmetric\n"
    for code, out, _, spent in helped:
        assert code == 0
        assert spent < 2, f"{spent:.1f} s"  # of the process, however busy the machine is
        for words in ("Examples:", "Task:", "Model:", "Motion:", "Gradient:", "Record:", "Run:"):
            assert f"{words}\n" in out, words
    cases = [([], asking("s")), (["--help"], {})]
    (_, found, *_), (_, out, *_) = in_forks(cases, blocked=("jax", "numpy", "xarray"))
    assert found == "simulate\nsweep\n"
    assert "simulate" in out
