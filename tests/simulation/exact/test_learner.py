"""The exact path against the general one, and limits of its runs against each other."""

import json
from dataclasses import dataclass, replace

import brute
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from plain import plain

from attnlab import (
    AlibiPosition,
    Embedded,
    Extended,
    Flow,
    Pairwise,
    Population,
    Record,
    SequenceClasses,
    Sequences,
    Simulation,
    Steps,
    measures,
    simulate,
)
from attnlab.files.errors import InputError
from attnlab.papers.scan_and_snap.classes import syn_medium, syn_small
from attnlab.simulation import Optimizer
from attnlab.simulation.program import base_keys, on_device
from attnlab.tasks import Batch, Task
from attnlab.tasks.classes import single_common, zipf

DOUBLE = {"dtype": "float64"}
MAPS = Record("attention")
# Next token 0 belongs to two queries, the prior is not uniform, and query 4 is drawn as context.
CLASSES = SequenceClasses(
    probs=[
        [0.4, 0.3, 0.2, 0, 0.1, 0, 0, 0],
        [0.2, 0, 0.5, 0.3, 0, 0, 0, 0],
        [0, 0.6, 0, 0.4, 0, 0, 0, 0],
    ],
    query=[4, 5, 5],
    next_token=[0, 0, 3],
    prior=[0.5, 0.2, 0.3],
)
M, LENGTH = CLASSES.vocab_size, 7


def final(result, name="attention"):
    return result[name].isel({measures.clock_of(result): -1})


# -- the general path, which computes with tokens and automatic differentiation ------------------


def by_group(model, logits):
    """Return the start of the general path: Y = 0 and z(0), (head, query, token)."""
    z = np.zeros((model.heads, M, M))
    z[:, CLASSES.queries] = logits
    if isinstance(model, Pairwise):
        return {"attention": z[0]}
    distances = LENGTH - 1 if model.position is not None else 0
    return {"attention": {"z": z, "bias": np.tile(model.start_bias(distances), (model.heads, 1))}}


def logits_of(model):
    of_heads = np.linspace(-1, 1, model.heads * 2 * M).reshape(model.heads, 2, M) ** 3
    return of_heads if model.heads > 1 else of_heads[0]


def assert_same_run(exact, general, model):
    found = general["attention_logits"].isel(query=CLASSES.queries)
    if isinstance(model, Embedded):  # every token has an embedding; others are not trained
        found = found.isel(token=CLASSES.in_play)
        exact = exact.isel(token=CLASSES.in_play)
    close = {"rtol": 0, "atol": 1e-5}
    np.testing.assert_allclose(found, exact["attention_logits"], **close)
    np.testing.assert_allclose(general["loss"], exact["loss"], **close)
    moved = exact["attention_logits"].isel({measures.clock_of(exact): [0, -1]})
    assert float(abs(moved.diff(measures.clock_of(exact))).max()) > 0.1


@pytest.mark.slow
@pytest.mark.parametrize("motion", [Steps(40), Flow(30.0)], ids=["steps", "flow"])
@pytest.mark.parametrize(
    "model",
    [
        Pairwise(),
        Embedded(12),
        Extended(residual=True),
        Extended(normalization="rms", heads=3),
        Extended(normalization="none", residual=True),
        Extended(normalization="layer", residual=True, heads=2, combine="concatenate"),
    ],
    ids=str,
)
def test_the_general_path_gives_the_same_numbers_without_a_length(model, motion):
    embedded = isinstance(model, Embedded)
    last = motion.last
    run = Simulation(
        CLASSES,
        model,
        motion=motion,
        gradient=Population(),
        eta_y=[0.5, 2.0],
        eta_z=1.0,
        seeds=2,
        init="zero" if embedded else logits_of(model),
        record=Record(("loss", "logits", "attention"), at=(0, last / 2, last)),
        **DOUBLE,
    )
    what = ("loss", "attention_logits", "attention")
    general = simulate(
        run, exact=False, what=what, init="zero" if embedded else by_group(model, logits_of(model))
    )
    exact = simulate(run)
    assert_same_run(exact, general, model)
    attention = general["attention"].rename(sequence="sequence_class")
    attention = attention.transpose(*exact["attention"].dims)
    np.testing.assert_allclose(attention, exact["attention"], rtol=0, atol=1e-5)


@dataclass(frozen=True)
class Written(Task):
    """A training set that is written down: tokens (N, T), the query last, and next tokens."""

    tokens: tuple[tuple[int, ...], ...]
    next_tokens: tuple[int, ...]
    vocab_size: int = M
    length: int = LENGTH

    @property
    def distances(self):
        return self.length - 1

    def population(self, data):
        return Batch(jnp.asarray(self.tokens), jnp.asarray(self.next_tokens))


def training_set(run, seed):
    """Return the sequences that the exact path draws for a seed, as a task."""
    learned = replace(run, model=Extended(position="learned"), init="zero")  # keeps their order
    learner = learned.learner
    with jax.enable_x64(True):
        key = base_keys(jnp.asarray([seed], jnp.uint32), None)[0]
        tables = on_device(learner.tables(learned)[0], "float64")
        rows = learner.draw_with(tables, jax.random.fold_in(key, learner.uses.data))
    where = learner.laid_out(learned)[0].where
    tokens = where.tokens[np.argsort(where.position)][np.asarray(rows.places)]
    query = CLASSES.queries[np.asarray(rows.query)]
    target = np.unique(CLASSES.next_token)[np.asarray(rows.target)]
    whole = np.concatenate([tokens, query[:, None]], axis=1)
    return Written(tuple(map(tuple, whole.tolist())), tuple(target.tolist()))


@pytest.mark.slow
@pytest.mark.parametrize("motion", [Steps(40), Flow(30.0)], ids=["steps", "flow"])
@pytest.mark.parametrize(
    "model",
    [
        Extended(position=AlibiPosition(0.3), attend_self=True),
        Extended(
            residual=True,
            normalization="layer",
            heads=2,
            combine="concatenate",
            position="learned",
            attend_self=True,
        ),
    ],
    ids=["alibi", "everything"],
)
def test_the_general_path_gives_the_same_numbers_on_the_same_sequences(model, motion):
    run = Simulation(
        Sequences(CLASSES, length=LENGTH, training_set=5),
        model,
        motion=motion,
        gradient=Population(),
        eta_y=0.5,
        eta_z=0.5,
        seeds=[11],
        init=logits_of(model),
        record=Record(("loss", "logits"), at=(0, motion.last)),
        **DOUBLE,
    )
    if run.clock == "step":
        run = replace(run, motion=Steps(40, optimizer=Optimizer(momentum=0.9)))
    exact = simulate(run)
    general = simulate(
        replace(run, task=training_set(run, 11), init=by_group(model, logits_of(model))),
        what=("loss", "attention_logits", "parameters"),
    )
    assert_same_run(exact, general, model)
    if model.learns_bias:
        bias = general["parameters.attention.bias"]
        np.testing.assert_allclose(bias, exact["position_bias"], rtol=0, atol=1e-5)


# -- limits against each other --------------------------------------------------------------------


@pytest.mark.parametrize(
    "classes",
    [syn_small(), zipf(2_000, 4, bands=40), single_common(3), syn_medium(num_last=2)],
    ids=lambda c: c.origin.split(":")[0],
)
@pytest.mark.parametrize("optimizer", [Optimizer(momentum=0.0), Optimizer("adam")], ids=str)
def test_lumped_is_full(classes, optimizer):
    run = Simulation(
        classes,
        motion=Steps(60, optimizer),
        gradient=Population(),
        eta_y=0.5,
        eta_z=0.3,
        record=Record(at=[0, 7, 60]),
        **DOUBLE,
    )
    lumped, full = (simulate(run, lump=lump) for lump in (True, False))
    for name in ("attention", "attention_logits", "loss", "entropy", "distinct_entropy"):
        np.testing.assert_allclose(lumped[name], full[name], rtol=0, atol=1e-10)


def test_outputs_that_are_never_a_target_may_be_one_column():
    """Against the dense M x M brute force, step by step from zero."""
    classes = SequenceClasses(
        [[0.5, 0.3, 0.2, 0, 0, 0, 0], [0.5, 0, 0.1, 0.4, 0, 0, 0]], query=[4, 4], next_token=[5, 6]
    )
    Y, Z = np.zeros((7, 7)), np.zeros((7, 7))
    # T to infinity: a sequence whose token frequencies are exactly P
    sequences = [(np.repeat([0, 1, 2], [5, 3, 2]), 4, 5), (np.repeat([0, 2, 3], [5, 1, 4]), 4, 6)]
    for _ in range(25):
        dY, dZ = brute.lemma_1(Y, Z, sequences)
        Y, Z = Y + 0.8 * dY, Z + 0.6 * dZ
    result = plain(classes, gradient=Population(), eta_y=0.8, eta_z=0.6, steps=25, **DOUBLE)
    np.testing.assert_allclose(final(result, "attention_logits")[0, 0], Z[4], atol=1e-12)
    assert float(final(result, "loss")[0]) == pytest.approx(brute.loss(Y, Z, sequences), rel=1e-12)


@pytest.mark.slow
def test_long_sequences_approach_the_limit_at_first_order():
    """E|q|^2 is off by O(1/T): so is the mean trajectory, with noise averaged out by the batch."""
    errors = []
    limit = plain(syn_small(), gradient=Population(), steps=30)
    for length in (65, 257):
        finite = plain(syn_small(), length=length, batch_size=4096, steps=30, seeds=4, record=MAPS)
        errors.append(float(abs(final(finite).mean("seed") - final(limit).isel(seed=0)).max()))
    assert errors[1] < errors[0] / 2
    assert errors[1] < 2e-3


def test_batches_of_classes_average_to_the_expected_gradient():
    rates = {"eta_y": 0.2, "eta_z": 0.2, "steps": 50}
    expected = plain(syn_small(), gradient=Population(), **rates)
    drawn = plain(syn_small(), length="inf", batch_size=64, seeds=32, record=MAPS, **rates)
    np.testing.assert_allclose(final(drawn).mean("seed"), final(expected)[0], atol=1e-3)


def test_sets_of_classes_of_one_size_may_have_different_layouts():
    def classes(a, b):
        probs = [[0.4, a, b, 0, 0, 0], [0.4, 0, 0, a, b, 0]]
        return SequenceClasses(probs=probs, query=[5, 5], next_token=[0, 1])

    sets = [classes(0.1, 0.5), classes(0.3, 0.3), classes(0.2, 0.4)]  # the second can be lumped
    together = plain(sets, gradient=Population(), steps=10)
    for i, each in enumerate(sets):
        alone = plain(each, gradient=Population(), steps=10)
        np.testing.assert_allclose(
            together.attention.isel(setting=i), alone.attention, rtol=1e-5, atol=1e-6
        )


# -- starts -------------------------------------------------------------------------------------


def test_given_logits_are_a_prior():
    classes = syn_small()
    prior = np.zeros((2, classes.vocab_size))
    prior[0, 12] = 2.0
    start = xr.DataArray(prior, dims=("query", "token"), coords={"query": classes.queries})
    for init in (prior, start):
        result = plain(classes, gradient=Population(), steps=200, init=init)
        np.testing.assert_allclose(result.attention_logits[0, 0], prior, atol=1e-7)
        # Theorem 3: the token with the largest P exp(z(0)) wins, here 12 and not 19
        assert int(final(result)[0, 0].argmax("token")) == 12
        assert int(final(result)[0, 1].argmax("token")) == 29


def test_uniform_start_has_its_bounds_and_moments():
    classes = syn_medium(num_last=3)
    result = plain(
        classes, gradient=Population(), steps=1, init="uniform", seeds=30, what="logits", at=[0]
    )
    z = result.attention_logits.isel(step=0, token=classes.in_play).values
    moved = np.stack([(classes.probs[classes.query_index == q] > 0).any(0) for q in range(3)])
    z = z[:, moved[:, classes.in_play]] * np.sqrt(classes.vocab_size)
    assert z.min() >= -1
    assert z.max() <= 1
    assert abs(z.mean()) < 0.05
    assert z.var() == pytest.approx(1 / 3, abs=0.03)


# -- results --------------------------------------------------------------------------------------


def test_labels_and_provenance():
    classes = syn_medium(num_last=2)
    result = plain(
        classes, length=32, batch_size=16, eta_y=[1.0, 2.0], eta_z=0.5, steps=10, seeds=3
    )
    assert result.attention.dims == ("eta_y", "seed", "step", "sequence_class", "token")
    assert result.attention_logits.dims == ("eta_y", "seed", "step", "query", "token")
    assert result.loss.dims == ("eta_y", "seed", "step")
    np.testing.assert_array_equal(result["query"], classes.queries)
    np.testing.assert_array_equal(result.query_token, classes.query)
    np.testing.assert_array_equal(result.next_token, classes.next_token)
    np.testing.assert_allclose(result.attention.sum("token"), 1, atol=1e-5)
    np.testing.assert_allclose(
        result.attention.isel(eta_y=0, seed=0, step=0), classes.probs, atol=1e-7
    )
    spec = json.loads(result.attrs["spec"])
    assert spec["task"]["length"] == 32
    assert spec["task"]["classes"]["digest"] == classes.digest
    assert spec["gradient"] == {"name": "batches", "size": 16}
    assert spec["seeds"] == 3
    assert json.loads(result.attrs["versions"])["jax"] == jax.__version__


def test_statistics_on_the_device_are_the_measures():
    for classes, init in ((syn_medium(num_last=2), "uniform"), (syn_small(), "zero")):
        for data in ({"gradient": Population()}, {"length": 32, "batch_size": 16}):
            result = plain(
                classes, steps=20, init=init, what=("attention", "statistics"), **data, **DOUBLE
            )
            for name in ("entropy", "distinct_entropy", "common_mass", "effective_tokens"):
                measured = getattr(measures, name)(result)
                np.testing.assert_allclose(result[name], measured, rtol=1e-10, err_msg=name)


def test_only_what_was_asked_is_recorded():
    result = plain(syn_small(), gradient=Population(), steps=3, what="loss")
    assert set(result.data_vars) == {"loss"}
    result = plain(syn_small(), gradient=Population(), steps=3, what="logits")
    assert set(result.data_vars) == {"attention_logits", "probability"}


# -- rounding -------------------------------------------------------------------------------------


def test_learning_rates_at_which_rounding_decides_are_named():
    """With P = 1e-300 all attention is on one token and its gradient is zero; what is left of it is
    rounding, which a learning rate of 1e19 makes larger than the logits."""
    classes = SequenceClasses(
        probs=[{0: 1.0, 1: 1e-300}, {0: 0.5, 2: 0.5}],
        query=[0, 0],
        next_token=[3, 4],
        prior=[0.5, 0.5],
        vocab_size=5,
    )
    run = Simulation(classes, gradient=Population(), motion=Steps(5), record=MAPS, **DOUBLE)
    with pytest.warns(UserWarning, match=r"eta_y = 2, eta_z = 3e\+19: from step 2 on") as warned:
        result = plain(run, eta_y=[1.0, 2.0], eta_z=[1.0, 3e19])
    assert result.attrs["rounding"] == str(warned[-1].message)
    with pytest.warns(UserWarning, match="decided by rounding"):
        plain(run, eta_y=1e20, eta_z=1e-22, weight_decay=10.0)


@pytest.mark.filterwarnings("error:.*rounding")
def test_ordinary_learning_rates_give_no_warning():
    for dtype, most in (("float32", 1e3), ("float64", 1e7)):
        result = plain(
            syn_small(), gradient=Population(), eta_y=most, eta_z=most, steps=5, dtype=dtype
        )
        assert "rounding" not in result.attrs
    simulate(syn_small(), time=2.0)


# -- memory ---------------------------------------------------------------------------------------

MANY = 10**12
WIDE = SequenceClasses([{0: 1.0}], query=[1], next_token=[2], vocab_size=10**6)


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"model": Embedded(10**9)}, "dim"),
        ({"model": Embedded(10**30)}, "dim"),
        ({"heads": MANY, "what": "loss"}, "heads"),
        ({"batch_size": MANY}, "batch_size"),
        ({"training_set": MANY}, "training_set"),
        ({"length": 2**31 - 1, "batch_size": 10**6, "position": "learned"}, "length"),
        ({"length": "inf", "batch_size": MANY}, "batch_size"),
        ({"seeds": 10**11}, "seeds"),
        ({"seeds": 10**40}, "seeds"),
        ({"eta_y": [1.0] * 10**5, "eta_z": [1.0] * 10**6}, "eta_y, eta_z"),
        ({"steps": 2**31 - 1, "seeds": 1000, "every": 1}, "every"),
        ({"time": 1e30, "every": 1}, "every"),
        ({"geometric": 10**15}, "geometric"),
        ({"task": WIDE, "seeds": 10**5}, "record"),
        ({"task": [zipf(2 * 10**5, 2000, queries=2000)] * 100, "what": "loss"}, "classes"),
    ],
)
def test_a_run_that_does_not_fit_names_the_field_that_asks_for_it(settings, field):
    settings = dict(settings)
    with pytest.raises(InputError, match=f"^{field}: would need .*; this machine has .*B"):
        simulate(settings.pop("task", "syn-small"), **settings)
