"""One set of defaults: Python, the command line, recipes and the playground agree."""

import inspect
import sys

import pytest

import attnlab
from attnlab import Batches, Flow, Optimizer, Population, Sequences
from attnlab.auditing.audited_run import simulation_of
from attnlab.cli import reproduce, text, text_classes
from attnlab.papers.scan_and_snap.agreement import measure
from attnlab.playground.opening import asked
from attnlab.report import reproduce as make_parts
from attnlab.simulation import as_simulation, text_run
from attnlab.sweeping import SweepRecipe
from attnlab.tasks.classes import classes_from
from attnlab.tasks.text import estimate_classes, open_corpus


class Asked(Exception):
    """Raised where the run would begin."""


def call_of(given, progress=None, out=None, **settings):
    """Return the run of a call of simulate()."""
    return as_simulation(given, **settings)


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        ([], {}),
        (["--gradient", "population"], {"gradient": Population()}),
        (["--length", "inf", "--batch-size", "4"], {"length": "inf", "gradient": Batches(4)}),
        (["--motion", "flow"], {"motion": Flow()}),
        (["--time", "1e3"], {"motion": Flow(1e3)}),
        (["--motion", "flow:time=1e3,rtol=1e-4"], {"motion": Flow(1e3, rtol=1e-4)}),
        (["--steps", "1e3", "--clip", "2"], {"steps": 1000, "clip": 2.0}),
        (["--residual", "--heads", "2"], {"model": attnlab.Extended(residual=True, heads=2)}),
        (["--no-lump", "--no-exact"], {"lump": False, "exact": False}),
        (["--seed", "7"], {"seeds": [7]}),
        (["--seeds", "3,5"], {"seeds": [3, 5]}),
        (["--learning-rate", "0.5,2"], {"learning_rate": [0.5, 2.0]}),
        (["--every", "doubling", "--what", "loss"], {"every": "doubling", "what": "loss"}),
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

    monkeypatch.setattr(attnlab.simulation, "simulate", simulate)
    with pytest.raises(Asked) as by_command:
        call("simulate", "syn-small", *options, cwd=tmp_path)
    assert by_command.value.args == (call_of(classes_from("syn-small"), **arguments),)


def test_the_defaults_are_the_protocol_of_the_paper():
    default = call_of("syn-small")
    assert default.task == Sequences("syn-small", length=128)
    assert default.gradient == Batches(128)
    assert set(default.optimizers.values()) == {Optimizer("sgd", momentum=0.9)}
    assert (default.eta_y, default.eta_z, default.last) == (1, 1, 100)
    assert call_of("syn-small", motion=Flow()).momentum == 0.0


def test_an_audit_has_the_learning_rates_of_a_simulation(monkeypatch, tmp_path, call):
    def try_out(simulation, theories):
        raise Asked(simulation)

    monkeypatch.setattr(sys.modules["attnlab.auditing.audited_run"], "try_out", try_out)
    with pytest.raises(Asked) as by_command:
        call("audit", "syn-small", cwd=tmp_path)
    simulation, _ = simulation_of("syn-small")
    assert by_command.value.args == (simulation,)
    simulated = call_of("syn-small")
    assert (simulation.eta_y, simulation.eta_z) == (simulated.eta_y, simulated.eta_z)


def test_a_recipe_and_a_page_have_the_same_defaults():
    default = call_of("syn-small")
    recipe = SweepRecipe(given={"task": "syn-small", "eta_y": 1, "eta_z": 1})
    ((run, _),) = recipe.settings()
    assert run == default
    assert asked({"task": "syn-small"}) == default


@pytest.mark.parametrize(
    ("verb", "function"),
    [
        (text.train_verb, open_corpus),
        (text_classes.classes_verb, estimate_classes),
        (text_classes.classes_verb, open_corpus),
        (text_classes.agreement_verb, measure),
        (reproduce.reproduce_verb, make_parts),
    ],
    ids=lambda of: of.__name__,
)
def test_an_option_and_its_parameter_have_one_default(verb, function):
    def defaults(of):
        parameters = inspect.signature(of).parameters.values()
        return {one.name: one.default for one in parameters if one.default is not one.empty}

    one, other = defaults(verb), defaults(function)
    shared = one.keys() & other.keys() - {"names"}  # those of parts: none are all
    assert len(shared) > 1
    for name in shared:
        assert one[name] == other[name], name


def test_a_training_of_the_command_line_is_that_of_python(monkeypatch, tmp_path, call):
    def simulate(run, **given):
        raise Asked(run)

    monkeypatch.setattr(attnlab.simulation, "simulate", simulate)
    with pytest.raises(Asked) as by_command:
        call("text", "train", "builtin", "--out", "run", cwd=tmp_path)
    assert by_command.value.args == (text_run("builtin", learning_rate=[5.0]),)
