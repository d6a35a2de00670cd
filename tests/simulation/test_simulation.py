"""The value: checked when made, equal by content, written down and read back; it needs no JAX."""

import json
import subprocess
import sys
from dataclasses import dataclass, replace

import numpy as np
import optax
import pytest
import xarray as xr
from bowl import Bowl

import attnlab
from attnlab import (
    AlibiPosition,
    Batches,
    Embedded,
    Extended,
    Flow,
    MarkovChains,
    Optimizer,
    Pairwise,
    Piecewise,
    Population,
    Record,
    SequenceClasses,
    Sequences,
    Simulation,
    Steps,
    Transformer,
)
from attnlab.files.errors import InputError
from attnlab.models import Model
from attnlab.tasks import Task

NAMED = SequenceClasses(
    [{0: 0.5, 1: 0.5}, {0: 0.5, 2: 0.5}],
    [3, 3],
    [4, 5],
    vocab_size=6,
    prior=[0.3, 0.7],
    names=["the", "ball", "cup", "won", "goal", "prize"],
)
RATIO = xr.DataArray([1.0, 2.0], dims="ratio", coords={"ratio": [1.0, 2.0]})
WHOLE = {"gradient": Population()}
CHAINS = Simulation(
    MarkovChains(2, 8),
    Transformer(layers=1, dim=4),
    motion=Steps(7, "adam"),
    gradient=Batches(4),
    learning_rate=0.1,
)
SIMULATIONS = {
    "default": Simulation("syn-small"),
    "training set": Simulation(
        Sequences("syn-medium:num_last=3", length=8, training_set=4),
        **WHOLE,
        seeds=[3, 5],
        motion=Steps(7),
    ),
    "batches of classes": Simulation(
        Sequences(NAMED, length="inf"),
        gradient=Batches(2),
        independent=True,
        motion=Steps(optimizer=Optimizer("adam", beta_2=0.9)),
    ),
    "flow": Simulation(
        NAMED, motion=Flow(5.0, rtol=1e-3), eta_y=[1.0, 2.0], dtype="float64", init="uniform"
    ),
    "rates": Simulation(
        NAMED, **WHOLE, eta_y=2 * RATIO, eta_z=RATIO, record=Record(("loss", "attention"), every=2)
    ),
    "schedule": Simulation(NAMED, **WHOLE, eta_y=Piecewise((0, 2), (1.0, 0.5)), eta_z=None),
    "embedded": Simulation(Sequences("syn-small", lump=False), Embedded(8, 2.0)),
    "heads": Simulation(
        Sequences("syn-small", length=9),
        Extended(heads=2, position=AlibiPosition(0.1)),
        gradient=Batches(2),
    ),
    "logits": Simulation(NAMED, **WHOLE, init=[0.0, 1.0, 0.0, 0.0, 0.5, 0.0]),
    "several": Simulation([NAMED, NAMED.with_prior([0.5, 0.5])], **WHOLE),
    "general path": Simulation(
        "syn-small",
        **WHOLE,
        init={"attention": np.eye(34)},
        record=Record(evaluate={"short": Sequences("syn-small", length=4)}),
    ),
    "chains": CHAINS,
    "groups": replace(
        CHAINS,
        motion=Steps(7, {"attention": "adam", "embedding": "sgd"}, clip=0.5),
        learning_rate={
            "attention": [0.1, 0.2],
            "embedding": Piecewise((0, 3), (0.1, 0.0)),
            "decoder": None,
            "norm": None,
            "positions": None,
        },
        record=Record(("loss", "attention"), at=(0, 3), evaluate={"short": MarkovChains(2, 5)}),
    ),
    "learner": Simulation(Bowl(2.0), motion=Flow(3.0), learning_rate=0.5),
    "learner by steps": Simulation(
        Bowl(),
        motion=Steps(3),
        gradient=Batches(4),
        learning_rate={"x": 0.1, "y": None},
        init={"x": np.full(3, 0.5)},
    ),
}


@pytest.mark.parametrize("name", SIMULATIONS)
def test_a_document_gives_the_value_back(name):
    run = SIMULATIONS[name]
    written = json.loads(json.dumps(run.to_document()))
    again = Simulation.from_document(written)
    assert again == run and hash(again) == hash(run)
    assert again.to_document() == run.to_document()


# what differs beyond the document: where the task is read from, and what each kind of run labels
RESULTS = ("default", "batches of classes", "rates", "several", "general path", "groups", "learner")


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_gives_the_value_back(name):
    run = SIMULATIONS[name]
    if run.clock == "step":
        run = replace(run, motion=replace(run.motion, steps=3))
    result = attnlab.simulate(run, progress=False)
    assert Simulation.of(result) == run


def test_equal_by_content_and_by_nothing_else():
    made = list(SIMULATIONS.values())
    assert len(set(made)) == len(made)
    assert Simulation("syn-small", eta_z=np.float64(1.0)) == SIMULATIONS["default"]
    assert Simulation("syn-small", learning_rate={"attention": 1.0}) == SIMULATIONS["default"]
    assert Simulation(NAMED, **WHOLE) != Simulation(NAMED, **WHOLE, motion=Steps(101))
    whole, decimal = (Simulation(NAMED, motion=Steps(3, Optimizer("sgd", of))) for of in (0, 0.0))
    assert whole == decimal
    assert replace(CHAINS, seeds=(0,)) == CHAINS != replace(CHAINS, seeds=3)
    starts = [Simulation(Bowl(), learning_rate=1.0, init={"y": np.full(2, v)}) for v in (1, 2)]
    assert starts[0] != starts[1]


def test_arrays_of_a_value_are_read_only():
    for array in (
        SIMULATIONS["rates"].eta_y.values,
        SIMULATIONS["logits"].init,
        SIMULATIONS["learner by steps"].init["x"],
    ):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 3.0


def test_classes_alone_are_sequences_that_suit_the_gradient():
    assert Simulation("syn-small").task == Sequences("syn-small", length=128)
    assert Simulation("syn-small", **WHOLE).task.infinite
    flow = Simulation("syn-small", motion="flow")
    assert flow.task.infinite and flow.gradient == Population()
    assert Simulation(Bowl(), learning_rate=0.1).gradient == Population()
    assert Simulation("syn-small").model == Pairwise()


def test_a_result_without_probabilities_gives_the_value_back_only_for_a_preset():
    run = Simulation("syn-small", **WHOLE, motion=Steps(2), record=Record("loss"))
    assert Simulation.of(attnlab.simulate(run)) == run
    own = attnlab.simulate(NAMED, steps=2, what="loss")
    with pytest.raises(InputError, match="custom"):
        Simulation.of(own)
    with pytest.raises(InputError, match="not one that simulate"):
        Simulation.of(xr.Dataset())


def test_settings_make_or_change_the_value():
    run = Simulation(NAMED, **WHOLE, eta_z=0.5, motion=Steps(3))
    short = attnlab.simulate(NAMED, gradient="population", eta_z=0.5, steps=3)
    xr.testing.assert_identical(short.drop_attrs(), attnlab.simulate(run).drop_attrs())
    longer = attnlab.simulate(run, steps=4, momentum=0.5)
    assert Simulation.of(longer) == replace(run, motion=Steps(4, Optimizer(momentum=0.5)))


# -- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"task": "syn-small", "etaz": 1}, "etaz: unknown key; did you mean 'eta_z'"),
        ({"eta_z": 1}, "task: missing"),
        ({"task": {"name": "sequence", "classes": "syn-small"}}, "did you mean 'sequences'"),
        ({"task": {"name": "sequences"}}, "task.classes: missing"),
        (
            {"task": {"name": "sequences", "classes": "syn-small", "length": 1}},
            "task.length: expected a whole number",
        ),
        (
            {"task": "syn-small", "motion": {"name": "flow", "steps": 3}},
            "motion.steps: belongs to the motion 'steps', not to 'flow'",
        ),
        ({"task": "syn-small", "motion": {"name": "flw"}}, "did you mean 'flow'"),
        ({"task": "syn-small", "motion": {"name": "steps", "optimizer": "sdg"}}, "optimizer"),
        ({"task": "syn-small", "gradient": "batch"}, "did you mean 'batches'"),
        (
            {"task": "syn-small", "model": {"name": "extended", "heads": 0}},
            "model.heads: expected a whole number",
        ),
        ({"task": "syn-small", "eta_y": "fast"}, "eta_y"),
        (
            {"task": "syn-small", "motion": {"name": "steps", "steps": True}},
            "motion.steps: expected a whole number",
        ),
        ({"task": {"vocabulary": 3}}, "task.classes: missing"),
        ({"task": "syn-small", "record": {"what": ["speed"]}}, "what: 'speed' cannot be recorded"),
        ({"task": "syn-small", "record": {"evry": 3}}, "did you mean 'every'"),
        ({"task": "syn-small", "seeds": 0}, "seeds: expected at least 1"),
        ({"task": "syn-small", "dtype": "float16"}, "dtype"),
        ({"classes": "syn-small"}, "classes: was a field of version 0.1; now task"),
        ({"task": "syn-small", "engine": "flow"}, "engine: was a field of version 0.1; now"),
        ({"task": "syn-small", "save": {}}, "save: was a field of version 0.1; now record"),
        ({"task": "syn-small", "steps": 3}, "steps: was a field of version 0.1; now motion"),
        ([], "expected a mapping"),
    ],
)
def test_errors_in_documents_name_the_field(document, words):
    with pytest.raises(InputError) as raised:
        Simulation.from_document(document)
    assert words in str(raised.value)


@dataclass
class Loose(Task):
    vocab_size: int = 2
    length: int = 2


@dataclass
class LooseModel(Model):
    init, apply = Pairwise.init, Pairwise.apply


@dataclass(frozen=True)
class Listed(Task):
    vocab_size: int = 2
    length: int = 2
    matrix: object = None


@dataclass(frozen=True)
class Hiding(Task):
    vocab_size: int = 2
    length: int = 2
    batch: int = 3


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"task": Hiding()}, "task: the field 'batch' of Hiding hides a method of Task; rename"),
        ({"task": Loose()}, "task: Loose is not a frozen dataclass"),
        ({"model": LooseModel()}, "model: LooseModel is not a frozen dataclass"),
        ({"task": Listed(matrix=[1.0])}, "task: Listed has a field that cannot be hashed"),
        ({"model": None}, "model: expected a model for a task"),
        ({"task": Bowl()}, "model: expected a model for a task, and None for a learner"),
        ({"model": "transformr"}, "did you mean 'transformer'"),
        ({"motion": 3}, "motion: expected one of Steps, Flow, got 3"),
        ({"gradient": 64}, "gradient: expected one of Batches, Population, got 64"),
        ({"motion": Flow(1.0)}, "gradient: a flow needs Population"),
        ({"learning_rate": None}, "learning_rate: missing"),
        ({"learning_rate": -1.0}, "learning_rate: expected numbers of at least 0"),
        ({"loss": "mse"}, "loss: expected one of 'cross_entropy'"),
        ({"dtype": "float16"}, "dtype: expected one of 'float32'"),
        ({"precision": "low"}, "precision: expected one of"),
        ({"seeds": [1, 1]}, "seeds: expected different whole numbers"),
        ({"init": "uniform"}, "init: expected arrays by group"),
        ({"init": {"decoder": {"weights": np.zeros((3, 3))}}}, "init: expected shapes"),
        ({"init": {"readout": np.zeros(3)}}, "init: the groups are"),
        ({"task": Sequences("syn-small", length="inf")}, "length: a Transformer reads tokens"),
        (
            {"model": Transformer(dropout=0.1), "motion": Flow(1.0), **WHOLE},
            "dropout: a flow has no steps to draw it at",
        ),
        (
            {"record": Record(evaluate={"more": MarkovChains(3, 8)})},
            "evaluate: more has 3 tokens and 3 outputs, the model 2 and 2",
        ),
        (
            {"record": Record(evaluate={"long": MarkovChains(2, 16)})},
            "evaluate: long has 16 positions, the model learns 8",
        ),
    ],
)
def test_bad_runs_are_refused_when_made(fields, words):
    with pytest.raises(InputError) as raised:
        replace(CHAINS, **fields)
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"learning_rate": {"attention": 0.1}}, "learning_rate: missing for the group 'decoder'"),
        ({"learning_rate": {"query": 0.1}}, "learning_rate: the groups are"),
        ({"record": Record(what="atention")}, "what: 'atention' cannot be recorded; did you mean"),
        ({"record": Record(at=(0, 200))}, "at: 200 is after the last step 7"),
        ({"gradient": Population()}, "gradient: MarkovChains has no population"),
        ({"motion": Steps(2, {"attention": "adam"})}, "optimizer: missing for the group"),
        ({"motion": Steps(2, {"attn": "adam"})}, "optimizer: the groups are attention, decoder"),
        ({"motion": Steps(2, reset_moments=True)}, "reset_moments: MarkovChains has no passes"),
        ({"loss": "task"}, "loss: MarkovChains has no loss of its own"),
        ({"loss": "square"}, "loss: 'square' of outputs (8, 8, 2) takes targets (8, 8, 2), the"),
        ({"loss": "logistic"}, "the task has (8, 8); take another loss, or a model that predicts"),
        ({"task": Sequences("syn-small", length=8)}, "takes targets (8, 8), the task has (8,); t"),
    ],
)
def test_bad_runs_that_only_shapes_tell_are_refused_before_they_start(fields, words):
    with pytest.raises(InputError) as raised:
        attnlab.simulate(replace(CHAINS, **fields))
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"model": Extended(position=AlibiPosition(0.1)), **WHOLE}, "position: for T to infinity"),
        ({"model": Extended(attend_self=True), "motion": Flow()}, "attend_self: for T to infinity"),
        ({"model": Embedded(4), "init": np.zeros(34)}, "init: Embedded starts from 'zero'"),
        ({"loss": "square"}, "loss: targets of sequence classes are tokens"),
        ({"loss": "task"}, "loss: targets of sequence classes are tokens"),
        ({"init": "random"}, "init: expected 'zero', 'uniform' or logits"),
        ({"init": np.zeros(3)}, "init: logits must be finite, of shape"),
        ({"task": Sequences("syn-small", length=8), **WHOLE}, "gradient: the population of seq"),
        ({"learning_rate": {"query": 1.0}}, "learning_rate: the groups are decoder, attention"),
        ({"eta_y": None, "eta_z": None}, "learning_rate: no group moves"),
        ({"motion": Steps(3, {"decoder": "sgd"})}, "optimizer: missing for the group 'attention'"),
        ({"motion": Steps(3, {"value": "sgd"})}, "optimizer: the groups are decoder, attention"),
        ({"record": Record("weights")}, "what: 'weights' cannot be recorded"),
        ({"record": Record("parameters")}, "what: 'parameters' cannot be recorded; the exact path"),
        ({"record": Record(evaluate={"b": Sequences("syn-small")})}, "evaluate: the exact path"),
    ],
)
def test_bad_runs_of_sequence_classes_are_refused_when_made(fields, words):
    with pytest.raises(InputError) as raised:
        Simulation(fields.pop("task", "syn-small"), **fields)
    assert words in str(raised.value)


def momentum_sgd(rate):
    return optax.sgd(rate, momentum=0.9)


def halving(step):
    return 0.5 ** (step / 10)


def test_functions_are_named_in_documents_and_cannot_be_read_back():
    by_optimizer = Simulation(NAMED, **WHOLE, motion=Steps(3, momentum_sgd))
    assert by_optimizer.to_document()["motion"]["optimizer"]["name"].endswith("momentum_sgd")
    by_rate = Simulation(NAMED, **WHOLE, motion=Steps(3), eta_y=halving)
    assert by_rate.to_document()["eta_y"].endswith("halving")
    for run, words in ((by_optimizer, "momentum_sgd is a function"), (by_rate, "is a function")):
        result = attnlab.simulate(run)
        for read in (
            lambda run=run: Simulation.from_document(run.to_document()),
            lambda result=result: Simulation.of(result),
        ):
            with pytest.raises(InputError, match=words):
                read()


def test_the_value_imports_no_jax():
    code = """
import sys
import attnlab
from attnlab import (Batches, Embedded, Extended, Flow, MarkovChains, Optimizer, Piecewise,
                     Population, Record, Sequences, Simulation, Steps, Transformer)
from attnlab.simulation import as_simulation
run = Simulation("syn-small", Extended(heads=2), motion=Flow(3.0), eta_y=[1, 2])
run.digest, run.grid.points, Simulation.from_document(run.to_document())
as_simulation("syn-medium", optimizer="adam", length=64, batch_size=8, every=10, residual=True)
Simulation(MarkovChains(3, 8), Transformer(), learning_rate=Piecewise((0, 3), (1.0, 0.1))).digest
Simulation.from_document({"task": {"name": "markovchains"}, "model": "transformer",
                          "learning_rate": 0.1}).digest
print({"jax", "optax", "diffrax"} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "set()\n", done.stderr


@pytest.mark.parametrize("init", [{}, {"decoder": "x"}, {"decoder": [1, [2, 3]]}, ["a"], [[]]])
def test_a_start_that_is_not_logits_is_refused_in_words(init):
    with pytest.raises(InputError, match=r"^init(\[0\])?: "):
        Simulation.from_document({"task": "syn-small", "init": init})
    with pytest.raises(InputError, match="^init: "):
        Simulation("syn-small", init=init)
