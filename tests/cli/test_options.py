"""Options that several verbs take."""

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer

from attnlab import Batches, Extended, Flow, Record, Sequences, Simulation, Steps
from attnlab.cli.app import app
from attnlab.cli.options import SEQUENCES, TEXT, RunOptions, drawn
from attnlab.files.errors import InputError
from attnlab.simulation.settings import settings_of


def test_classes_and_tokens_are_drawn_by_number_or_name():
    assert drawn("0, won", None, Path("x.png")) == {"classes": [0, "won"]}
    assert drawn(None, "the,3", None, Path("x.gif")) == {"tokens": ["the", 3]}
    assert drawn(None, None, None) == {}
    with pytest.raises(InputError, match="show-classes: belongs to a drawing"):
        drawn("0", None, None)


def test_learning_rates_are_options_where_the_run_has_them():
    assert SEQUENCES.read({"eta_y": "1,2.5", "eta_z": "3", "steps": None}) == {
        "eta_y": (1.0, 2.5),
        "eta_z": 3.0,
    }
    assert "learning_rate" in TEXT.by_name
    assert not {"eta_y", "eta_z", "motion", "model"} & TEXT.by_name.keys()


@pytest.mark.parametrize("verb", ["simulate", "predict", "audit", "play"])
def test_every_setting_that_a_text_can_give_is_an_option(verb):
    command = typer.main.get_command(app).commands[verb]
    options = {of.name for of in command.get_params(typer.Context(command))}
    plain: set[str] = set()
    for kind in (Sequences, Extended, Steps, Flow, Batches, Record, Simulation):
        plain |= settings_of(kind).keys()
    by_python_only = {"task", "classes", "record", "evaluate", "loss"}
    assert plain - by_python_only <= options


def test_a_new_field_is_an_option_without_more():
    @dataclass(frozen=True)
    class Waiting:
        """A motion that begins late.

        Parameters
        ----------
        delay : int, optional
            Steps before the first. It moves nothing.
        pause : float or tuple, optional
            Seconds, one number or several.
        """

        delay: int = 5
        pause: float | tuple[float, ...] | None = None

    options = RunOptions({"motion": f"{__name__}:Waiting"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules[__name__], "Waiting", Waiting, raising=False)
        delay = options.by_name["delay"]
    assert (delay.home, delay.default, delay.help) == ("motion", 5, "Steps before the first.")
    assert options.read({"delay": "1e3", "pause": "1,2"}) == {"delay": 1000, "pause": (1.0, 2.0)}
    assert options.read({"pause": "3"}) == {"pause": 3.0}
    with pytest.raises(InputError, match="delay: expected a whole number, got 'soon'"):
        options.read({"delay": "soon"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", "eta_y: expected a number or a word, got a list"),
        ("\ud800", r"eta_y: '\\ud800' is not text"),
    ],
)
def test_an_option_is_a_number_or_a_word(text, message):
    with pytest.raises(InputError, match=message):
        SEQUENCES.read({"eta_y": text})
