"""Exact models: a model of one's own, tasks of one's own, and the original parameterisation."""

from dataclasses import dataclass, replace
from pkgutil import resolve_name
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from plain import plain

import attnlab
from attnlab import (
    Batches,
    Diverged,
    Embedded,
    Extended,
    Flow,
    Optimizer,
    Pairwise,
    Population,
    Record,
    Sequences,
    Simulation,
    Steps,
    simulate,
)
from attnlab.files.errors import InputError
from attnlab.models import SequenceModel
from attnlab.papers.scan_and_snap.classes import syn_small
from attnlab.simulation.exact.gradient import Parameters, decode, dense_block, dense_parameters
from attnlab.simulation.exact.layout import Sizes
from attnlab.simulation.exact.learner import ExactLearner
from attnlab.simulation.exact.model import ExactModel
from attnlab.simulation.program import on_device
from attnlab.tasks import Batch, Task
from attnlab.tasks.classes import random
from attnlab.tasks.sequences import Mixture

CLASSES = attnlab.SequenceClasses(
    [{0: 0.5, 1: 0.3, 2: 0.2}, {0: 0.5, 3: 0.5}, {0: 0.4, 1: 0.3, 4: 0.3}],
    query=[5, 5, 6],
    next_token=[7, 8, 9],
    vocab_size=10,
    prior=[0.5, 0.3, 0.2],
)
MAPS = Record("attention")


def final(result, name="attention"):
    return result[name].isel(step=-1)


# -- a model of one's own -------------------------------------------------------------------------


@dataclass(frozen=True)
class Heated(SequenceModel):
    """The paper's model with attention logits z / temperature."""

    exact: ClassVar[str] = f"{__name__}:ExactHeated"

    temperature: float = 1.0

    def extra_dims(self):
        return {"decoder_norm": ("output",)}


@dataclass(frozen=True)
class ExactHeated(ExactModel):
    """Its outputs alone: loss, gradient and attention follow from them."""

    def begin(self, layout, start, random, key):
        shapes = (layout.num_shared, layout.num_outputs), (layout.num_queries, layout.num_shared)
        Y, z = (jnp.zeros(shape, layout.prior.dtype) for shape in shapes)
        return jnp.asarray(self.of.temperature, layout.prior.dtype), Parameters(Y, z)

    def outputs(self, layout, rows, trained, fixed):
        return decode(layout, rows, dense_parameters(layout, trained.Y, trained.Z / fixed))

    def attention_logits(self, layout, trained, fixed):
        return dense_block(layout, trained.Z / fixed)

    def extras(self, layout, trained, fixed):
        return {"decoder_norm": jnp.sqrt(jnp.sum(trained.Y**2, axis=0))}

    def numbers(self, sizes):
        return {"model": (sizes.outputs + sizes.queries) * sizes.tokens}


RUNS = {
    "batches": Simulation(Sequences(CLASSES, length=8), gradient=Batches(16)),
    "training set": Simulation(Sequences(CLASSES, length=8, training_set=10), gradient=Batches(4)),
    "population": Simulation(CLASSES, gradient=Population()),
    "batches of classes": Simulation(Sequences(CLASSES, length="inf"), gradient=Batches(8)),
    "flow": Simulation(CLASSES, motion=Flow(20.0)),
}
POPULATION = RUNS["population"]


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_outputs_alone_make_a_model(name):
    """At temperature 1 it is the paper's, whose gradient is in closed form and lumped."""
    run = replace(
        RUNS[name], eta_z=[0.5, 2.0], seeds=2, dtype="float64", record=Record(geometric=4)
    )
    if name != "flow":
        run = replace(run, motion=Steps(20))
    ours, paper = (simulate(run, model=model) for model in (Heated(), Pairwise()))
    close = {"rtol": 1e-5, "atol": 1e-7} if name == "flow" else {"rtol": 1e-10, "atol": 1e-12}
    xr.testing.assert_allclose(ours[list(paper)], paper, **close)
    assert ours["decoder_norm"].dims[-1] == "output"
    assert ours.sizes["output"] == CLASSES.vocab_size
    learner = replace(run, model=Heated()).learner
    assert learner == ExactLearner(ExactHeated(Heated()), random=False)


def test_its_settings_are_part_of_the_value_written_and_read_back(tmp_path):
    run = replace(POPULATION, model=Heated(2.0), motion=Steps(5))
    assert run != replace(run, model=Heated())
    assert Simulation.from_document(run.to_document()) == run
    attnlab.save(simulate(run), tmp_path / "run.nc")
    assert Simulation.of(attnlab.load(tmp_path / "run.nc")) == run


def test_hot_attention_moves_less():
    moved = []
    for temperature in (1.0, 4.0):
        run = simulate(POPULATION, model=Heated(temperature), steps=50, record=MAPS)
        moved.append(float(abs(final(run) - run["attention"].isel(step=0)).max()))
    assert moved[0] > 2 * moved[1] > 0


def test_its_divergence_is_found_to_the_step():
    with pytest.raises(Diverged) as raised:
        simulate(
            RUNS["batches"],
            model=Heated(),
            eta_y=[1.0, 1e25],
            eta_z=1e25,
            steps=40,
            seeds=2,
            batch_size=4,
        )
    found = raised.value.dataset
    first, loss = found["diverged_step"], found["loss"]
    assert (first > 0).any() and (first < 40).all()
    assert loss.isnull().where((first > 0) & (loss["step"] >= first), True).all()
    assert loss.where(loss["step"] < first.where(first > 0, 40) - 1, 0.0).notnull().all()


def test_sets_of_classes_run_together():
    other = CLASSES.with_prior([0.2, 0.3, 0.5])
    together, alone = (
        simulate(sets, gradient=Population(), model=Heated(), steps=5)["loss"]
        for sets in ([CLASSES, other], other)
    )
    np.testing.assert_allclose(together.isel(setting=1), alone, rtol=1e-5)


def test_a_start_that_a_model_cannot_have_is_refused():
    for model in (Heated(), Embedded(4)):
        with pytest.raises(InputError, match=f"init: {type(model).__name__} starts from"):
            Simulation(CLASSES, model, init=np.zeros(10))


def test_a_model_without_a_general_path_says_so():
    with pytest.raises(InputError, match="exact: Heated has only the exact path; leave it on"):
        simulate(POPULATION, model=Heated(), exact=False)


# -- memory ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model", [Pairwise(), Embedded(6), Extended(heads=3, combine="concatenate"), Heated()], ids=str
)
def test_numbers_are_those_that_it_begins_with(model):
    run = replace(RUNS["batches"], model=model)
    learner, (tables,) = run.learner, run.tables
    layout = on_device(tables.layout, "float32")
    exact = resolve_name(model.exact)(model)
    assert learner.model == exact
    begun = jax.eval_shape(lambda: exact.begin(layout, tables.start, False, jax.random.key(0)))
    begins = sum(leaf.size for leaf in jax.tree.leaves(begun))
    numbers = sum(exact.numbers(layout.sizes).values())
    if isinstance(model, Embedded):  # counts the Y and Z that its weights make too
        sizes = layout.sizes
        numbers -= (sizes.outputs + sizes.queries) * sizes.tokens
        begins -= model.dim * (sizes.tokens + sizes.queries)  # rows of U once more
    # beside them: places of the queries' own tokens, a bias by distance, a temperature
    assert numbers <= begins <= numbers + layout.sizes.queries + run.task.distances


def test_sizes_are_known_before_there_is_a_layout():
    sizes = Sizes.expected(CLASSES, symmetric_start=True)
    assert (sizes.outputs, sizes.shared) == (4, 5)
    assert sizes == replace(POPULATION, model=Extended()).tables[0].layout.sizes


@dataclass(frozen=True)
class Huge(Heated):
    """A model with many numbers that stay fixed."""

    exact: ClassVar[str] = f"{__name__}:ExactHuge"

    size: int = 10**14


class ExactHuge(ExactHeated):
    def numbers(self, sizes):
        return {"model": self.of.size}


def test_a_model_that_does_not_fit_is_refused():
    with pytest.raises(InputError, match="model: would need .*; take a smaller one"):
        simulate(CLASSES, model=Huge())


# -- a task of one's own, by the general path -----------------------------------------------------


@dataclass(frozen=True)
class Noisy(Task):
    """Infinite sequences, some of which are followed by the next token of another class."""

    noise: float = 0.0
    vocab_size: int = CLASSES.vocab_size
    length: int = 2

    def batch(self, data, key, step, size):
        keys = jax.random.split(key, 3)
        log_prior = jnp.log(jnp.asarray(CLASSES.prior))
        seen, other = (jax.random.categorical(k, log_prior, shape=(size,)) for k in keys[:2])
        wrong = jax.random.uniform(keys[2], (size,)) < self.noise
        probs, query, next_token = (
            jnp.asarray(of) for of in (CLASSES.probs, CLASSES.query, CLASSES.next_token)
        )
        inputs = Mixture(probs[seen], query[seen])
        return Batch(inputs, next_token[jnp.where(wrong, other, seen)])


@pytest.mark.parametrize("model", [Pairwise(), Extended(), Embedded(12)], ids=str)
def test_models_of_sequence_classes_learn_what_a_task_draws(model):
    run = Simulation(
        Noisy(0.5),
        model,
        gradient=Batches(64),
        motion=Steps(200, Optimizer(momentum=0.9)),
        eta_y=1.0,
        eta_z=1.0,
        record=Record("loss", at=(0, 200)),
    )
    noisy, clean = (final(simulate(run, noise=noise), "loss").item() for noise in (0.5, 0.0))
    assert clean < 0.05 and noisy > 0.3
    assert run.to_document()["task"] == {"name": "noisy", "noise": 0.5}
    assert Simulation.from_document(run.to_document()) == run


# -- the original parameterisation ----------------------------------------------------------------


def test_embedding_approaches_the_pairwise_dynamics():
    """With an error of order 1/scale^4: slope -4."""
    classes = random(12, 3, overlap=0.4)
    run = Simulation(
        classes,
        gradient=Population(),
        motion=Steps(40),
        eta_y=0.5,
        eta_z=0.5,
        record=MAPS,
        dtype="float64",
    )
    pairwise, errors, scales = plain(run), [], [4.0, 16.0]
    for scale in scales:
        embedded = plain(run, model=Embedded(classes.vocab_size, scale))
        errors.append(float(abs(final(embedded) - final(pairwise)).max()))
    slope = np.polyfit(np.log(scales), np.log(errors), 1)[0]
    assert -4.4 < slope < -3.6, (slope, errors)


def test_embedding_trains_with_fewer_dimensions_than_tokens():
    result = plain(
        syn_small(),
        length=64,
        batch_size=32,
        steps=100,
        model=Embedded(16),
        init="uniform",
        seeds=2,
        what="loss",
    )
    assert float(final(result, "loss").max()) < 0.5 * float(result.loss.isel(step=0).min())


@pytest.mark.parametrize(("options", "field"), [({"dim": 0}, "dim"), ({"scale": 0}, "scale")])
def test_embeddings_are_checked_when_made(options, field):
    with pytest.raises(InputError, match=f"^{field}"):
        Embedded(**options)
