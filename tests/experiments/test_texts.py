"""Texts beside an experiment's code: what fills their fields; arrays over draws."""

import numpy as np
import pytest

from attnlab.experiments.base import Standing
from attnlab.experiments.cells import over_draws
from attnlab.experiments.estimate import Estimate, Median
from attnlab.experiments.texts import Texts
from attnlab.files.errors import InputError

YAML = """
name: fall
title: "Fall: how fast?"
headline: >-
  It falls by {slope}, that is {slope.value:.1f},
  in {part:.2f} of the {layers} layers.
summary: "{headline} Or {percent[part]:.0f} %, at {half}."
alt: "A line. {summary}"
caption: "Over {seeds} seeds."
heading: [layer, slope]
"""


def test_a_judgement_is_in_the_words_of_its_file(tmp_path):
    (tmp_path / "fall.yaml").write_text(YAML)
    texts = Texts.read(str(tmp_path / "fall.py"))
    found = {"slope": Estimate(-2.0, 0.5, 4), "part": 0.25, "half": Median(3.0, 1.0, 4.0, 5)}
    told = texts.judgement(Standing.HOLDS, found, layers=8)
    assert told.headline == "It falls by -2 ± 0.5, that is -2.0, in 0.25 of the 8 layers."
    assert told.summary.startswith(told.headline + " Or 25 %")
    assert told.alt == "A line. " + told.summary
    half = {"half": 3.0, "half_low": 1.0, "half_high": 4.0}
    assert told.numbers == {"slope": -2.0, "slope_error": 0.5, "part": 0.25, **half}
    with pytest.raises(KeyError, match="layers"):
        texts.judgement(Standing.HOLDS, found)
    table = texts.table([{"layer": 1.0, "slope": 2.0}], [["1", "2"]], seeds=4)
    assert (table.caption, table.shown()) == ("Over 4 seeds.", [["layer", "slope"], ["1", "2"]])


def test_an_unknown_text_is_refused(tmp_path):
    (tmp_path / "fall.yaml").write_text(YAML + "headlines: two\n")
    with pytest.raises(InputError, match="headlines"):
        Texts.read(str(tmp_path / "rise.py"), "fall")  # one of several in a module


def test_draws_are_in_the_order_of_their_axes():
    found = over_draws({"of": (("token",), np.arange(12).reshape(6, 2))}, width="ab", seed=range(3))
    assert found["of"].dims == ("width", "seed", "token")
    assert found["of"].sel(width="b", seed=1).values.tolist() == [8, 9]
