"""The value: checked where it is made, equal by content, written down and read back."""

import json
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

import attnlab
from attnlab import (
    AlibiPosition,
    Embedded,
    Extended,
    Flow,
    Limit,
    Optimizer,
    Sampled,
    Save,
    SequenceClasses,
    Simulation,
)
from attnlab.files.errors import InputError

NAMED = SequenceClasses(
    [{0: 0.5, 1: 0.5}, {0: 0.5, 2: 0.5}], [3, 3], [4, 5], vocab_size=6, prior=[0.3, 0.7],
    names=["the", "ball", "cup", "won", "goal", "prize"],
)  # fmt: skip
RATIO = xr.DataArray([1.0, 2.0], dims="ratio", coords={"ratio": [1.0, 2.0]})

SIMULATIONS = {
    "default": Simulation("syn-small"),
    "sampled": Simulation("syn-medium:num_last=3", Sampled(8, None, 4), seeds=[3, 5], steps=7),
    "limit": Simulation(NAMED, Limit(2), optimizer=Optimizer("adam", beta_2=0.9), independent=True),
    "flow": Simulation(NAMED, Flow(rtol=1e-3), eta_y=[1.0, 2.0], dtype="float64", init="uniform"),
    "rates": Simulation(NAMED, Limit(), eta_y=2 * RATIO, eta_z=RATIO, save=Save("loss", every=2)),
    "embedded": Simulation("syn-small", model=Embedded(8, 2.0), lump=False),
    "heads": Simulation(
        "syn-small", Sampled(9, 2), model=Extended(heads=2, position=AlibiPosition(0.1))
    ),
    "logits": Simulation(NAMED, Limit(), init=[0.0, 1.0, 0.0, 0.0, 0.5, 0.0]),
    "several": Simulation([NAMED, NAMED.with_prior([0.5, 0.5])], Limit()),
}


@pytest.mark.parametrize("name", SIMULATIONS)
def test_what_is_written_is_read_back(name):
    simulation = SIMULATIONS[name]
    written = json.loads(json.dumps(simulation.to_document()))
    again = Simulation.from_document(written)
    assert again == simulation and hash(again) == hash(simulation)
    assert again.to_document() == simulation.to_document()


def test_equal_by_content_and_by_nothing_else():
    made = list(SIMULATIONS.values())
    assert len(set(made)) == len(made)
    assert Simulation("syn-small", eta_z=np.float64(1.0)) == SIMULATIONS["default"]
    assert Simulation(NAMED, Limit()) != Simulation(NAMED, Limit(), steps=101)
    whole, decimal = (Simulation(NAMED, optimizer=Optimizer("sgd", of)) for of in (0, 0.0))
    assert whole == decimal
    with pytest.raises(ValueError, match="read-only"):
        SIMULATIONS["rates"].eta_y.values[0] = 3.0


@pytest.mark.parametrize("name", SIMULATIONS)
def test_a_result_knows_its_simulation(name):
    simulation = replace(SIMULATIONS[name], steps=2, save=Save(at=[0, 2]))
    result = attnlab.simulate(simulation, progress=False)
    assert Simulation.of(result) == simulation


def test_a_result_without_probabilities_knows_a_preset():
    simulation = Simulation("syn-small", Limit(), steps=2, save=Save("loss"))
    assert Simulation.of(attnlab.simulate(simulation)) == simulation
    own = attnlab.simulate(NAMED, Limit(), steps=2, save=Save("loss"))
    with pytest.raises(InputError, match="custom"):
        Simulation.of(own)
    with pytest.raises(InputError, match="not one that simulate"):
        Simulation.of(xr.Dataset())


def test_arguments_make_or_change_the_value():
    simulation = Simulation(NAMED, Limit(), eta_z=0.5, steps=3)
    short = attnlab.simulate(NAMED, Limit(), eta_z=0.5, steps=3)
    xr.testing.assert_identical(short.drop_attrs(), attnlab.simulate(simulation).drop_attrs())
    longer = attnlab.simulate(simulation, steps=4, momentum=0.5)
    assert Simulation.of(longer) == replace(simulation, steps=4, optimizer=Optimizer(momentum=0.5))


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"classes": "syn-small", "etaz": 1}, "etaz: unknown key; did you mean 'eta_z'"),
        ({"eta_z": 1}, "classes: missing"),
        ({"classes": "syn-small", "engine": {"name": "flow", "length": 3}},
         "engine.length: belongs to the engine 'sampled', not to 'flow'"),
        ({"classes": "syn-small", "engine": {"name": "sampeld"}}, "did you mean 'sampled'"),
        ({"classes": "syn-small", "model": {"name": "embedded"}}, "model.dim: missing"),
        ({"classes": "syn-small", "model": {"name": "extended", "heads": 0}},
         "model.heads: expected a whole number"),
        ({"classes": "syn-small", "eta_y": "fast"}, "eta_y"),
        ({"classes": "syn-small", "steps": True}, "steps: expected a number"),
        ({"classes": {"vocabulary": 3}}, "classes.classes: missing"),
        ({"classes": "syn-small", "save": {"what": ["speed"]}}, "save.what: 'speed'"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(document, words):
    with pytest.raises(InputError) as raised:
        Simulation.from_document(document)
    assert words in str(raised.value)


def test_what_does_not_go_together_is_refused_where_it_is_made():
    with pytest.raises(InputError, match="optimizer"):
        Simulation("syn-small", Flow(), optimizer=Optimizer(momentum=0.5))
    with pytest.raises(InputError, match="position"):
        Simulation("syn-small", Limit(), model=Extended(position=AlibiPosition(0.1)))
    with pytest.raises(InputError, match="engine"):
        Simulation("syn-small", "flow")
    with pytest.raises(InputError, match="init"):
        Simulation("syn-small", init="random")
