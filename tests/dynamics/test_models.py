"""A model, an engine's data and an optimiser of one's own: everything works for them too."""

from dataclasses import dataclass, field, replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import xarray as xr

import attnlab
from attnlab import Diverged, Embedded, Extended, Flow, Limit, Pairwise, Sampled, Save, Simulation
from attnlab.dynamics import (
    Parameters,
    RowSource,
    decode,
    dense_block,
    dense_parameters,
    sequence_rows,
)
from attnlab.dynamics.layout import Sizes
from attnlab.dynamics.models.base import _numbers_at_the_start
from attnlab.files.errors import InputError
from attnlab.files.recipe import plain

CLASSES = attnlab.SequenceClasses(
    [{0: 0.5, 1: 0.3, 2: 0.2}, {0: 0.5, 3: 0.5}, {0: 0.4, 1: 0.3, 4: 0.3}],
    query=[5, 5, 6], next_token=[7, 8, 9], vocab_size=10, prior=[0.5, 0.3, 0.2],
)  # fmt: skip


@dataclass(frozen=True)
class Heated(attnlab.Model):
    """The paper's model with attention logits z / temperature, written as its outputs alone."""

    temperature: float = 1.0

    def begin(self, layout, start, random, key):
        shapes = (layout.num_shared, layout.num_outputs), (layout.num_queries, layout.num_shared)
        Y, z = (jnp.zeros(shape, layout.prior.dtype) for shape in shapes)
        return jnp.asarray(self.temperature, layout.prior.dtype), Parameters(Y, z)

    def outputs(self, layout, rows, trained, fixed):
        return decode(layout, rows, dense_parameters(layout, trained.Y, trained.Z / fixed))

    def attention_logits(self, layout, trained, fixed):
        return dense_block(layout, trained.Z / fixed)

    def extras(self, layout, trained, fixed):
        return {"decoder_norm": jnp.sqrt(jnp.sum(trained.Y**2, axis=0))}

    def extra_dims(self):
        return {"decoder_norm": ("output",)}

    def extra_coords(self, sizes):
        return {"output": np.arange(sizes["output"])}


ENGINES = {
    "sampled": Sampled(8, 16),
    "training set": Sampled(8, 4, sequences=10),
    "limit": Limit(),
    "drawn": Limit(8),
    "flow": Flow(),
}


@pytest.mark.parametrize("name", ENGINES)
def test_outputs_alone_make_a_model(name):
    """At temperature 1 it is the paper's, whose gradient is in closed form and lumped."""
    fields = dict(eta_y=1.0, eta_z=[0.5, 2.0], steps=20, seeds=2, dtype="float64")
    fields["save"] = Save(geometric=4)
    ours = attnlab.simulate(CLASSES, ENGINES[name], model=Heated(), **fields)
    paper = attnlab.simulate(CLASSES, ENGINES[name], model=Pairwise(), **fields)
    close = {"rtol": 1e-5, "atol": 1e-7} if name == "flow" else {"rtol": 1e-10, "atol": 1e-12}
    xr.testing.assert_allclose(ours[list(paper)], paper, **close)
    assert ours["decoder_norm"].dims[-1] == "output"
    assert ours.sizes["output"] == CLASSES.vocab_size


def test_it_is_told_apart_written_and_read_back(tmp_path):
    simulation = Simulation(CLASSES, Limit(), model=Heated(2.0), steps=5)
    assert simulation != replace(simulation, model=Heated())
    assert Simulation.from_document(simulation.to_document()) == simulation
    attnlab.save(attnlab.simulate(simulation), tmp_path / "run.nc")
    assert Simulation.of(attnlab.load(tmp_path / "run.nc")) == simulation


def test_hot_attention_moves_less():
    runs = [
        attnlab.simulate(CLASSES, Limit(), model=Heated(t), steps=50, save=Save("attention"))
        for t in (1.0, 4.0)
    ]
    runs = [run["attention"].isel(seed=0) for run in runs]
    moved = [abs(c.isel(step=-1) - c.isel(step=0)).max().item() for c in runs]
    assert moved[0] > 2 * moved[1] > 0


def test_its_divergence_is_found_to_the_step():
    with pytest.raises(Diverged) as raised:
        attnlab.simulate(
            CLASSES, Sampled(8, 4), model=Heated(), eta_y=[1.0, 1e25], eta_z=1e25, steps=40, seeds=2
        )
    found = raised.value.dataset
    first, loss = found["diverged_step"], found["loss"]
    assert (first > 0).any() and (first < 40).all()
    assert loss.isnull().where((first > 0) & (loss["step"] >= first), True).all()
    assert loss.where(loss["step"] < first.where(first > 0, 40) - 1, 0.0).notnull().all()


def test_sets_of_classes_run_together():
    other = CLASSES.with_prior([0.2, 0.3, 0.5])
    together = attnlab.simulate([CLASSES, other], Limit(), model=Heated(), steps=5)
    alone = attnlab.simulate(other, Limit(), model=Heated(), steps=5)
    np.testing.assert_allclose(together["loss"].isel(setting=1), alone["loss"], rtol=1e-5)


def test_a_start_that_a_model_cannot_have_is_refused():
    for model in (Heated(), Embedded(4)):
        with pytest.raises(InputError, match=f"init: {type(model).__name__} starts from"):
            Simulation(CLASSES, model=model, init=np.zeros(10))


def test_a_class_that_is_no_frozen_dataclass_is_named():
    class Loose(attnlab.Engine):
        def source(self, classes, where, position):
            return None

    @dataclass
    class Melting(attnlab.Model):
        begin, outputs, attention_logits = Heated.begin, Heated.outputs, Heated.attention_logits

    for field_name, value in (("engine", Loose()), ("model", Melting())):
        with pytest.raises(InputError, match=f"{field_name}: .*frozen dataclass"):
            Simulation(CLASSES, **{field_name: value})


@pytest.mark.parametrize("model", [Pairwise(), Extended(heads=3, combine="concatenate")])
def test_numbers_are_those_that_it_begins_with(model):
    sizes = Sizes.expected(CLASSES, symmetric_start=True)
    assert (sizes.outputs, sizes.shared) == (4, 5)
    told = sum(model.numbers(sizes).values())
    begins = _numbers_at_the_start(model, sizes)
    assert told <= begins <= told + sizes.queries  # the places of the queries' own tokens
    needed = "model: would need .*; take a smaller one"
    with pytest.raises(InputError, match=needed):
        attnlab.simulate(CLASSES, model=Huge(10**14))


@dataclass(frozen=True)
class Huge(Heated):
    """It asks for much that stays fixed."""

    size: int = 1

    def __init__(self, size):
        object.__setattr__(self, "size", size)

    def begin(self, layout, start, random, key):
        return jnp.zeros(self.size), super().begin(layout, start, random, key)[1]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class NoisyRows(RowSource):
    noise: np.float32
    batch_size: int = field(metadata={"static": True})

    def draw(self, layout, key, kept):
        keys = jax.random.split(key, 3)
        log_prior, size = jnp.log(layout.prior), (self.batch_size,)
        seen, other = (jax.random.categorical(k, log_prior, shape=size) for k in keys[:2])
        wrong = jax.random.uniform(keys[2], size) < self.noise
        rows = sequence_rows(layout, seen, layout.shared_log_prob[seen])
        return rows._replace(target=layout.target[jnp.where(wrong, other, seen)])


@dataclass(frozen=True)
class Noisy(attnlab.Engine):
    """Infinite sequences, some of which are followed by the next token of another class."""

    noise: float = 0.0
    batch_size: int = 64

    def source(self, classes, where, position):
        return NoisyRows(np.float32(self.noise), self.batch_size)

    def rows_per_step(self, num_classes):
        return self.batch_size


@pytest.mark.parametrize("model", [Pairwise(), Extended(), Heated(), Embedded(12)])
def test_an_engine_is_what_draws_its_rows(model):
    save = Save("loss", at=[0, 200])
    fields = dict(model=model, eta_y=1.0, eta_z=1.0, steps=200, save=save)
    noisy, clean = (
        attnlab.simulate(CLASSES, Noisy(noise), **fields)["loss"].isel(seed=0, step=-1).item()
        for noise in (0.5, 0.0)
    )
    assert clean < 0.05 and noisy > 0.3
    simulation = Simulation(CLASSES, Noisy(0.5), **fields)
    assert simulation.to_document()["engine"] == {"name": "noisy", "noise": 0.5}
    assert Simulation.from_document(simulation.to_document()) == simulation


def plain_sgd(rate):
    return optax.sgd(rate, momentum=0.9)


def scheduled(rate):
    return optax.sgd(optax.exponential_decay(rate, transition_steps=1, decay_rate=0.5))


def injected(rate):
    return optax.inject_hyperparams(optax.sgd)(learning_rate=rate)


def test_an_optimiser_is_any_optax_transformation():
    fields = dict(eta_y=[0.5, 1.0], eta_z=1.0, steps=10, seeds=2)
    ours = attnlab.simulate(CLASSES, Limit(), optimizer=plain_sgd, **fields)
    theirs = attnlab.simulate(CLASSES, Limit(), optimizer="sgd", momentum=0.9, **fields)
    xr.testing.assert_identical(ours.drop_attrs(), theirs.drop_attrs())
    kept = attnlab.simulate(CLASSES, Limit(), optimizer=injected, **fields)  # rates in its memory
    theirs = attnlab.simulate(CLASSES, Limit(), optimizer="sgd", momentum=0.0, **fields)
    xr.testing.assert_allclose(kept.drop_attrs(), theirs.drop_attrs())
    slow = attnlab.simulate(CLASSES, Limit(), optimizer=scheduled, **fields)
    assert (slow["loss"].isel(step=-1) > kept["loss"].isel(step=-1)).all()


def test_an_optimiser_of_ones_own_stands_in_documents_by_its_name():
    simulation = Simulation(CLASSES, Limit(), optimizer=plain_sgd, steps=3)
    written = simulation.to_document()
    assert written["optimizer"] == {"name": f"{__name__}.plain_sgd"}
    assert "function" not in plain(simulation.optimizer)
    assert simulation != replace(simulation, optimizer=scheduled)
    result = attnlab.simulate(simulation)
    for read in (lambda: Simulation.from_document(written), lambda: Simulation.of(result)):
        with pytest.raises(InputError, match="optimizer: .*plain_sgd is a function"):
            read()


@pytest.mark.parametrize(
    ("optimizer", "engine", "words"),
    [
        (lambda rate: optax.sgd(rate), Limit(), "defined in a module"),
        (3, Limit(), "optimizer: expected one of"),
        (plain_sgd, Flow(), "plain gradient descent"),
    ],
)
def test_optimisers_that_cannot_be_told_or_followed_are_refused(optimizer, engine, words):
    with pytest.raises(InputError, match=words):
        Simulation(CLASSES, engine, optimizer=optimizer)
