"""One set of defaults: Python, the command line, recipes and the playground agree."""

import inspect
import sys

import pytest

import attnlab
from attnlab import Limit, Optimizer, Sampled
from attnlab.auditing.trial import simulation_of
from attnlab.cli import reproduce, text, text_classes
from attnlab.data import classes_from
from attnlab.dynamics import as_simulation
from attnlab.papers.scan_and_snap.agreement import measure
from attnlab.playground.asked import asked
from attnlab.report import reproduce as make_parts
from attnlab.sweeping import SweepRecipe
from attnlab.text import Training, TransformerSpec, estimate_classes, open_corpus


class Asked(Exception):
    """Raised where the run would begin."""


def call_of(given, engine=None, progress=None, **fields):
    """What a call of simulate() comes to."""
    return as_simulation(given, engine, **fields)


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        ([], {}),
        (["--engine", "limit"], {"engine": Limit()}),
        (["--engine", "flow"], {"engine": attnlab.Flow()}),
        (["--optimizer", "sgd"], {"optimizer": "sgd"}),
        (["--optimizer", "sgd"], {"optimizer": Optimizer("sgd")}),
        (["--optimizer", "adam"], {"optimizer": "adam"}),
        (["--weight-decay", "0.1"], {"optimizer": Optimizer(weight_decay=0.1)}),
        (["--momentum", "0"], {"momentum": 0.0}),
    ],
)
def test_the_command_line_makes_the_call_of_python(options, arguments, monkeypatch, tmp_path, call):
    def simulate(*what, **how):
        raise Asked(call_of(*what, **how))

    monkeypatch.setattr(attnlab.dynamics, "simulate", simulate)
    with pytest.raises(Asked) as by_command:
        call("simulate", "syn-small", *options, cwd=tmp_path)
    assert by_command.value.args == (call_of(classes_from("syn-small"), **arguments),)


def test_the_defaults_are_the_protocol_of_the_paper():
    default = call_of("syn-small")
    assert default.engine == Sampled(length=128, batch_size=128)
    assert default.moving == Optimizer("sgd", momentum=0.9)
    assert (default.eta_y, default.eta_z, default.steps) == (1, 1, 100)
    assert call_of("syn-small", attnlab.Flow()).moving == Optimizer("sgd", momentum=0.0)


def test_an_audit_has_the_rates_of_a_simulation(monkeypatch, tmp_path, call):
    def try_out(simulation, theories):
        raise Asked(simulation)

    monkeypatch.setattr(sys.modules["attnlab.auditing.audit"], "try_out", try_out)
    with pytest.raises(Asked) as by_command:
        call("audit", "syn-small", cwd=tmp_path)
    simulation, _ = simulation_of("syn-small")
    assert by_command.value.args == (simulation,)
    simulated = call_of("syn-small")
    assert (simulation.eta_y, simulation.eta_z) == (simulated.eta_y, simulated.eta_z)


def test_a_recipe_and_a_page_leave_the_same_unsaid():
    default = call_of("syn-small")
    recipe = SweepRecipe(given={"classes": "syn-small", "eta_y": 1, "eta_z": 1})
    ((way, _),) = recipe.settings()
    assert way == default
    assert asked({"classes": "syn-small"}) == default


@pytest.mark.parametrize(
    ("verb", "function"),
    [
        (text.train_verb, TransformerSpec),
        (text.train_verb, open_corpus),
        (text_classes.classes_verb, estimate_classes),
        (text_classes.classes_verb, open_corpus),
        (text_classes.agreement_verb, measure),
        (reproduce.reproduce_verb, make_parts),
    ],
    ids=lambda of: of.__name__,
)
def test_what_is_asked_for_in_two_ways_has_one_default(verb, function):
    def defaults(of):
        parameters = inspect.signature(of).parameters.values()
        return {one.name: one.default for one in parameters if one.default is not one.empty}

    one, other = defaults(verb), defaults(function)
    shared = one.keys() & other.keys() - {"names"}  # those of parts: none are all
    assert len(shared) > 1
    for name in shared:
        assert one[name] == other[name], name


def test_a_training_of_the_command_line_is_that_of_python(monkeypatch, tmp_path, call):
    def train(training, **given):
        raise Asked(training)

    monkeypatch.setattr(attnlab.text, "train", train)
    with pytest.raises(Asked) as by_command:
        call("text", "train", "builtin", "--out", "run", cwd=tmp_path)
    assert by_command.value.args == (Training("builtin"),)
