"""Flat names: every setting inside a run is reached by its name alone."""

import typing
from dataclasses import fields

import pytest

from attnlab import (
    Batches,
    Embedded,
    Extended,
    Flow,
    MarkovChains,
    Optimizer,
    Population,
    Record,
    Sequences,
    Simulation,
    Steps,
    Transformer,
    simulate,
)
from attnlab.files.errors import InputError
from attnlab.models import LearnedPosition
from attnlab.simulation import as_simulation
from attnlab.simulation.settings import parameter_help, settings_of
from attnlab.tasks.classes import classes_from

# Values of settings whose type does not tell how to make another one.
GIVEN = {
    "classes": classes_from("syn-medium"),
    "optimizer": Optimizer("adam"),
    "what": ("loss",),
    "every": 3,
    "at": (0.0, 1.0),
    "evaluate": {"short": Sequences("syn-small", length=8)},
    "position": LearnedPosition(),
    "momentum": 0.5,
}
HOMES = {
    Sequences: "task",
    Steps: "motion",
    Flow: "motion",
    Batches: "gradient",
    Record: "record",
    Extended: "model",
    Embedded: "model",
}


def another(setting):
    """Return a value of a setting that is not its default."""
    if setting.name in GIVEN:
        return GIVEN[setting.name]
    choices = typing.get_args(setting.hint)
    if typing.get_origin(setting.hint) is typing.Literal:
        return next(of for of in choices if of != setting.default)
    if setting.hint is bool:
        return not setting.default
    if int in (setting.hint, *choices):
        return 7
    assert float in (setting.hint, *choices), f"{setting.name}: give a value in GIVEN"
    return 0.25


CASES = [(kind, name) for kind in HOMES for name in settings_of(kind)]


@pytest.mark.parametrize(("kind", "name"), CASES, ids=lambda of: getattr(of, "__name__", of))
def test_every_flat_name_reaches_its_home(kind, name):
    setting, home = settings_of(kind)[name], HOMES[kind]
    value = another(setting)
    alone = as_simulation("syn-small", exact=False, **{name: value})
    default = as_simulation("syn-small", exact=False, gradient=alone.gradient, motion=alone.motion)
    changed = as_simulation(default, **{name: value})
    for run in (alone, changed):
        found = getattr(run, home)
        assert isinstance(found, kind)
        for part in setting.path:
            found = getattr(found, part)
        assert found == value
    for item in fields(Simulation):
        if item.name not in (home, "exact", "init"):
            assert getattr(changed, item.name) == getattr(default, item.name)


def test_settings_of_other_tasks_and_models_are_reached_too():
    run = as_simulation(
        MarkovChains(3, 8), model=Transformer(), learning_rate=0.1, vocab_size=4, layers=3, clip=0.5
    )
    assert (run.task.vocab_size, run.model.layers, run.motion.clip) == (4, 3, 0.5)


def test_several_names_go_to_one_home():
    run = as_simulation("syn-small", optimizer="adam", beta_1=0.5, steps=7)
    assert run.motion == Steps(7, Optimizer("adam", beta_1=0.5))
    run = as_simulation("syn-small", motion="flow", time=7)
    assert (run.motion, run.gradient, run.task.length) == (Flow(7.0), Population(), float("inf"))
    run = as_simulation("syn-small", heads=2, residual=True)
    assert run.model == Extended(heads=2, residual=True)
    run = as_simulation("syn-small", training_set=9, gradient="population")
    assert (run.task.length, run.task.training_set) == (128, 9)


def test_a_paper_that_is_loaded_changes_no_name():
    from attnlab.papers.joma.model import Joint

    assert "residual" in settings_of(Joint)
    assert as_simulation("syn-small", residual=True).model == Extended(residual=True)


def test_when_to_record_replaces_when_the_run_recorded():
    run = Simulation("syn-small", record=Record(what="loss", every=10))
    assert as_simulation(run, at=(0, 5)).record == Record(what="loss", at=(0, 5))
    assert as_simulation(run, geometric=7).record == Record(what="loss", geometric=7)
    with pytest.raises(InputError, match="give at most one of them"):
        as_simulation(run, geometric=7, at=(0, 5))


def test_none_is_a_value():
    run = Simulation("syn-small", motion=Steps(7, clip=0.5), record=Record(every=3))
    assert as_simulation(run, clip=None).motion == Steps(7)
    assert as_simulation(run, eta_z=None).eta_z is None  # fixes the group
    assert as_simulation(run, at=(0, 5)).record == Record(at=(0, 5))  # in place of every


def test_settings_of_a_model_that_a_task_has_by_default():
    from attnlab.tasks import Text

    run = as_simulation(Text("builtin"), heads=2, layers=1, learning_rate=0.1)
    assert isinstance(run.model, Transformer) and (run.model.heads, run.model.layers) == (2, 1)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"lenght": 3}, "lenght: unknown setting; did you mean 'length'"),
        ({"engine": "flow"}, "engine: was a field of version 0.1; now sampled is task"),
        ({"eta_x": 3}, "eta_x: unknown setting; did you mean 'eta_z'"),
        ({"steps": 3, "time": 3.0}, "time: belongs to Flow, and the motion here is Steps; give"),
        ({"motion": "flow", "steps": 3}, "steps: belongs to Steps, and the motion here is Flow"),
        ({"model": Embedded(8), "heads": 2}, "heads: belongs to Extended, and the model here is E"),
        ({"gradient": "population", "batch_size": 3}, "batch_size: belongs to Batches, and the gr"),
        (
            {"optimizer": {"decoder": "adam", "attention": "sgd"}, "beta_1": 0.5},
            "beta_1: each group has its own optimizer; give it in `optimizer`",
        ),
        ({"motion": "glide"}, "motion.name: 'glide' is not among the choices"),
        ({"gradient": "all"}, "gradient.name: 'all' is not among the choices"),
        ({"model": "pairwize"}, "did you mean 'pairwise'"),
        ({"task": "syn-medium"}, "task: given twice"),
        ({"time": 3.0, "length": 8}, "gradient: the population of sequences of 8 tokens cannot be"),
        ({"time": 3.0, "batch_size": 8}, "gradient: a flow needs Population"),
    ],
)
def test_errors_name_the_setting_and_a_remedy(settings, words):
    with pytest.raises(InputError) as raised:
        simulate("syn-small", **settings)
    assert words in str(raised.value)


def test_a_run_is_not_given_another_model_or_motion_silently():
    for run, setting in (
        (Simulation("syn-small", Embedded(8)), {"heads": 2}),
        (Simulation("syn-small", motion=Flow(5.0)), {"steps": 2}),
    ):
        with pytest.raises(InputError, match=f"{next(iter(setting))}: belongs to .*; give the mo"):
            as_simulation(run, **setting)


@pytest.mark.parametrize("kind", [*HOMES, Simulation, Optimizer, MarkovChains, Transformer])
def test_every_setting_is_explained_in_its_docstring(kind):
    helps = parameter_help(kind)
    for item in fields(kind):
        assert helps.get(item.name), f"{kind.__name__}.{item.name}"
