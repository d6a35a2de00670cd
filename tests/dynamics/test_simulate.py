"""simulate(): limits against each other, labels, starts, records, divergence."""

import json

import jax
import numpy as np
import pytest
import xarray as xr
from plain import plain

import attnlab
from attnlab import (
    Embedded,
    Extended,
    Flow,
    Limit,
    Optimizer,
    Sampled,
    Save,
    SequenceClasses,
    simulate,
)
from attnlab.data import random, single_common, zipf
from attnlab.dynamics import driving
from attnlab.dynamics.stepping import SteppingBatch
from attnlab.papers.scan_and_snap.classes import syn_medium, syn_small

DOUBLE = {"dtype": "float64"}
# Only what is looked at: the loss of a record draws a batch, which takes long to compile.
MAPS = Save("attention")


def final(result, name="attention"):
    return result[name].isel({attnlab.measures.clock_of(result): -1})


# -- limits against each other ----------------------------------------------------------------


@pytest.mark.parametrize(
    "classes",
    [syn_small(), zipf(2_000, 4, bands=40), single_common(3), syn_medium(num_last=2)],
    ids=lambda c: c.origin.split(":")[0],
)
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_lumped_is_full(classes, optimizer):
    runs = [
        plain(
            classes, Limit(), eta_y=0.5, eta_z=0.3, steps=60, optimizer=optimizer, lump=lump,
            save=Save(at=[0, 7, 60]), **DOUBLE,
        )
        for lump in (True, False)
    ]  # fmt: skip
    for name in ("attention", "attention_logits", "loss", "entropy", "distinct_entropy"):
        np.testing.assert_allclose(runs[0][name], runs[1][name], rtol=0, atol=1e-10)


def test_columns_that_are_no_target_may_be_one_column():
    """Against the dense M x M brute force, step by step from zero."""
    import brute

    classes = SequenceClasses(
        [[0.5, 0.3, 0.2, 0, 0, 0, 0], [0.5, 0, 0.1, 0.4, 0, 0, 0]], query=[4, 4], next_token=[5, 6]
    )
    M = classes.vocab_size
    Y, Z = np.zeros((M, M)), np.zeros((M, M))
    # T to infinity: a sequence whose token frequencies are exactly P
    sequences = [
        (np.repeat([0, 1, 2], [5, 3, 2]), 4, 5),
        (np.repeat([0, 2, 3], [5, 1, 4]), 4, 6),
    ]
    for _ in range(25):
        dY, dZ = brute.lemma_1(Y, Z, sequences)
        Y, Z = Y + 0.8 * dY, Z + 0.6 * dZ
    result = plain(classes, Limit(), eta_y=0.8, eta_z=0.6, steps=25, **DOUBLE)
    np.testing.assert_allclose(final(result, "attention_logits")[0, 0], Z[4], atol=1e-12)
    assert float(final(result, "loss")[0]) == pytest.approx(brute.loss(Y, Z, sequences), rel=1e-12)


def test_batched_is_looped():
    ratio = xr.DataArray([1.0, 4.0], dims="ratio", coords={"ratio": [1.0, 4.0]})
    eta_z = xr.DataArray([0.5, 1.0, 2.0], dims="eta_z", coords={"eta_z": [0.5, 1.0, 2.0]})
    save = Save("attention", at=[0, 12])
    common = {"steps": 12, "momentum": 0.9, "init": "uniform", "save": save}
    engine, classes = Sampled(16, 8), syn_small()
    grid = simulate(classes, engine, eta_y=ratio * eta_z, eta_z=eta_z, seeds=[3, 5], **common)
    assert grid.attention.dims == ("ratio", "eta_z", "seed", "step", "sequence_class", "token")
    for cell in ({"ratio": 4.0, "eta_z": 2.0, "seed": 5}, {"ratio": 1.0, "eta_z": 0.5, "seed": 3}):
        single = simulate(
            classes, engine, eta_y=cell["ratio"] * cell["eta_z"], eta_z=cell["eta_z"],
            seeds=[cell["seed"]], **common,
        )  # fmt: skip
        np.testing.assert_allclose(
            grid.attention.sel(cell), single.attention.isel(seed=0), rtol=2e-5, atol=1e-7
        )


def test_batches_of_any_size_give_the_same(monkeypatch):
    arguments = {
        "eta_y": [0.5, 1.0, 2.0], "eta_z": 1.0, "steps": 5, "seeds": 5, "init": "uniform",
        "save": Save(("attention", "loss")),
    }  # fmt: skip
    whole = plain(syn_small(), Sampled(16, 8), **arguments)
    monkeypatch.setitem(attnlab.dynamics.stack.WORKING_BYTES, "cpu", 200_000)
    pieces = plain(syn_small(), Sampled(16, 8), **arguments)
    for name in ("attention", "loss"):
        np.testing.assert_allclose(whole[name], pieces[name], rtol=2e-5, atol=1e-7)


def test_cells_may_draw_data_of_their_own_whatever_they_run_with():
    common = {"eta_z": 1.0, "steps": 5, "seeds": 5, "save": MAPS}
    nearly = [1.0, 1.0 + 1e-6]
    shared = plain(syn_small(), Sampled(16, 8), eta_y=nearly, **common).attention
    np.testing.assert_allclose(shared[0], shared[1], atol=1e-5)
    sets = [syn_small(), syn_small().with_prior([0.6, 0.4])]
    own = plain(sets, Sampled(16, 8), eta_y=nearly, independent=True, **common).attention
    assert abs(own[0, 0] - own[0, 1]).max("token")[:, -1].min() > 1e-3  # in every seed and class
    alone = plain(
        syn_small(), Sampled(16, 8), eta_y=nearly[1], independent=True, **common
    ).attention
    np.testing.assert_allclose(own[0, 1], alone, rtol=2e-5, atol=1e-7)


@pytest.mark.parametrize(
    "engine, changes",
    [
        (Limit(), {}),
        (Sampled(16, 8), {"init": "uniform"}),
        (Flow(), {"dtype": "float64"}),  # whose solver is exact to less than is compared
        (Limit(4), {"model": Embedded(20)}),
        (Sampled(16, 8), {"model": Extended(position="learned", heads=2), "init": "uniform"}),
    ],
)
def test_sets_of_classes_together_are_each_alone(engine, changes):
    # more than 16 runs: two batches side by side, the second filled up
    sets = [single_common(2, 3, p, vocab_size=20) for p in (0.1, 0.2, 0.3, 0.4, 0.5)]
    arguments = {"eta_y": [0.5, 1.0], "eta_z": 1.0, "steps": 10, "seeds": 2, **changes}
    together = plain(sets, engine, **arguments)
    for i in (0, 3, 4):
        alone = plain(sets[i], engine, **arguments)
        same = together.isel(setting=i)
        assert set(same.variables) == set(alone.variables)
        for name in alone.variables:
            assert same[name].dims == alone[name].dims
            np.testing.assert_allclose(same[name], alone[name], rtol=1e-5, atol=1e-6)


def test_sets_of_classes_of_one_size_are_laid_out_each_in_its_way():
    def classes(a, b):
        probs = [[0.4, a, b, 0, 0, 0], [0.4, 0, 0, a, b, 0]]
        return SequenceClasses(probs=probs, query=[5, 5], next_token=[0, 1])

    sets = [classes(0.1, 0.5), classes(0.3, 0.3), classes(0.2, 0.4)]  # the second can be lumped
    together = plain(sets, Limit(), eta_y=1.0, eta_z=1.0, steps=10)
    for i, each in enumerate(sets):
        alone = plain(each, Limit(), eta_y=1.0, eta_z=1.0, steps=10)
        np.testing.assert_allclose(
            together.attention.isel(setting=i), alone.attention, rtol=1e-5, atol=1e-6
        )


def test_one_of_several_sets_diverges():
    sets = [single_common(2, 2, p, vocab_size=20) for p in (0.1, 0.2)]
    arguments = {"eta_y": [1.0, 1e38], "eta_z": 1.0, "steps": 40, "momentum": 0.9}
    with pytest.raises(attnlab.Diverged, match=r"common_prob=0.*, eta_y = 1e\+38") as raised:
        simulate(sets, Limit(), **arguments)
    diverged = raised.value.dataset["diverged_step"]
    assert diverged.dims == ("setting", "eta_y", "seed")
    assert (diverged.sel(eta_y=1e38) > 0).all() and (diverged.sel(eta_y=1.0) == -1).all()
    with pytest.raises(ValueError, match="classes: sets that run together have the same numbers"):
        simulate([sets[0], "syn-small"])
    with pytest.raises(ValueError, match=r"take one set of classes, \.isel\(setting=0\)"):
        attnlab.measures.distinct_entropy(raised.value.dataset)


def test_small_steps_approach_the_flow_at_first_order():
    time, errors, sizes = 20.0, [], [0.4, 0.2, 0.1]
    flow = simulate(syn_small(), Flow(), eta_y=1.0, eta_z=1.0, steps=time, **DOUBLE)
    for size in sizes:
        steps = plain(
            syn_small(), Limit(), eta_y=size, eta_z=size, steps=round(time / size), **DOUBLE
        )
        errors.append(float(abs(final(steps) - final(flow)).max()))
    slope = np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    assert 0.9 < slope < 1.1, (slope, errors)


def test_long_sequences_approach_the_limit_at_first_order():
    """E|q|^2 is off by O(1/T): so is the mean trajectory, with noise averaged out by the batch."""
    lengths, errors = [65, 257], []
    limit = plain(syn_small(), Limit(), eta_y=1.0, eta_z=1.0, steps=30)
    for length in lengths:
        finite = plain(
            syn_small(), Sampled(length, 4096), eta_y=1.0, eta_z=1.0, steps=30, seeds=4, save=MAPS
        )
        errors.append(float(abs(final(finite).mean("seed") - final(limit).isel(seed=0)).max()))
    assert errors[1] < errors[0] / 2
    assert errors[1] < 2e-3


def test_batches_of_classes_average_to_the_expected_gradient():
    expected = plain(syn_small(), Limit(), eta_y=0.2, eta_z=0.2, steps=50)
    drawn = plain(syn_small(), Limit(64), eta_y=0.2, eta_z=0.2, steps=50, seeds=32, save=MAPS)
    np.testing.assert_allclose(final(drawn).mean("seed"), final(expected)[0], atol=1e-3)


def test_flow_reaches_very_late_times():
    result = simulate(syn_small(), Flow(), eta_y=1.0, eta_z=1.0, steps=1e9, **DOUBLE)
    assert bool(np.isfinite(result.attention).all())
    # the loss of a softmax decays as 1/t
    late = result.sel(time=slice(1e6, None))
    slope = np.polyfit(np.log(late.time), np.log(late.loss.isel(seed=0)), 1)[0]
    assert -1.05 < slope < -0.95
    single = simulate(syn_small(), Flow(), eta_y=1.0, eta_z=1.0, steps=1e9)
    np.testing.assert_allclose(final(single), final(result), atol=1e-4)


def test_embedding_approaches_the_pairwise_dynamics():
    classes = random(12, 3, overlap=0.4)
    arguments = {"eta_y": 0.5, "eta_z": 0.5, "steps": 40, "save": MAPS, **DOUBLE}
    pairwise = plain(classes, Limit(), **arguments)
    errors, scales = [], [4.0, 16.0]
    for scale in scales:
        embedded = plain(classes, Limit(), model=Embedded(classes.vocab_size, scale), **arguments)
        errors.append(float(abs(final(embedded) - final(pairwise)).max()))
    slope = np.polyfit(np.log(scales), np.log(errors), 1)[0]
    assert -4.4 < slope < -3.6, (slope, errors)


def test_embedding_trains_with_fewer_dimensions_than_tokens():
    result = plain(
        syn_small(), Sampled(64, 32), eta_y=1.0, eta_z=1.0, steps=100, model=Embedded(16),
        init="uniform", seeds=2, save=Save("loss"),
    )  # fmt: skip
    assert float(final(result, "loss").max()) < 0.5 * float(result.loss.isel(step=0).min())


# -- optimisers -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "decay"), [("sgd", 0.05), ("adam", 0.0), ("adam", 0.05), ("adamw", 0.05)]
)
def test_momentum_adam_and_weight_decay_are_the_textbook_rules(name, decay):
    """Recomputed by hand from the plain gradients of the brute-force model."""
    import brute

    classes = SequenceClasses(
        [[0.5, 0.5, 0, 0, 0], [0.5, 0, 0.5, 0, 0]], query=[3, 3], next_token=[3, 4]
    )
    sequences = [(np.array([0, 1]), 3, 3), (np.array([0, 2]), 3, 4)]
    W = [np.zeros((5, 5)), np.zeros((5, 5))]
    first, second = [0.0, 0.0], [0.0, 0.0]
    for t in range(1, 16):
        slopes = [-g for g in brute.lemma_1(*W, sequences)]
        for i, rate in enumerate((0.3, 0.1)):
            decoupled = decay * W[i] if name == "adamw" else 0.0
            slope = slopes[i] + (0.0 if name == "adamw" else decay * W[i])
            if name == "sgd":
                first[i] = 0.9 * first[i] + slope
                W[i] = W[i] - rate * first[i]
            else:
                first[i] = 0.9 * first[i] + 0.1 * slope
                second[i] = 0.999 * second[i] + 0.001 * slope**2
                root = np.sqrt(second[i] / (1 - 0.999**t))
                W[i] = W[i] - rate * (first[i] / (1 - 0.9**t) / (root + 1e-8) + decoupled)
    result = simulate(
        classes, Limit(), eta_y=0.3, eta_z=0.1, steps=15,
        optimizer=Optimizer(name, momentum=0.9 * (name == "sgd"), weight_decay=decay), **DOUBLE,
    )  # fmt: skip
    np.testing.assert_allclose(final(result, "attention_logits")[0, 0], W[1][3], atol=1e-9)


def test_weight_decay_has_its_default_by_name():
    assert Optimizer("adamw").weight_decay == 0.01
    assert Optimizer("sgd").weight_decay == Optimizer("adam").weight_decay == 0.0


def test_weight_decay_brings_flow_and_steps_to_the_same_rest():
    optimizer = Optimizer(momentum=0.0, weight_decay=0.05)
    arguments = {"eta_y": 0.5, "eta_z": 0.5, "optimizer": optimizer, **DOUBLE}
    save = Save(("attention", "loss"), at=[1500])
    steps = simulate(syn_small(), Limit(), steps=1500, save=save, **arguments)
    flow = simulate(syn_small(), Flow(), steps=1500, save=save, **arguments)
    np.testing.assert_allclose(final(flow), final(steps), atol=1e-5)
    assert float(final(flow, "loss")[0]) > 0.1  # at rest, and not by fitting to the end


# -- starts -----------------------------------------------------------------------------------


def test_given_logits_are_a_prior():
    classes = syn_small()
    prior = np.zeros((2, classes.vocab_size))
    prior[0, 12] = 2.0
    start = xr.DataArray(prior, dims=("query", "token"), coords={"query": classes.queries})
    for init in (prior, start):
        result = plain(classes, Limit(), eta_y=1.0, eta_z=1.0, steps=200, init=init)
        np.testing.assert_allclose(result.attention_logits[0, 0], prior, atol=1e-7)
        # Theorem 3: the token with the largest P exp(z(0)) wins, here 12 and not 19
        assert int(final(result)[0, 0].argmax("token")) == 12
        assert int(final(result)[0, 1].argmax("token")) == 29


def test_uniform_start_has_its_bounds_and_moments():
    classes = syn_medium(num_last=3)
    result = plain(
        classes, Limit(), eta_y=1.0, eta_z=1.0, steps=1, init="uniform", seeds=30,
        save=Save("logits", at=[0]),
    )  # fmt: skip
    z = result.attention_logits.isel(step=0, token=classes.in_play).values
    moved = np.stack([(classes.probs[classes.query_index == q] > 0).any(0) for q in range(3)])
    z = z[:, moved[:, classes.in_play]] * np.sqrt(classes.vocab_size)
    assert z.min() >= -1
    assert z.max() <= 1
    assert abs(z.mean()) < 0.05
    assert z.var() == pytest.approx(1 / 3, abs=0.03)


# -- records ----------------------------------------------------------------------------------


def test_labels_and_provenance():
    classes = syn_medium(num_last=2)
    result = plain(classes, Sampled(32, 16), eta_y=[1.0, 2.0], eta_z=0.5, steps=10, seeds=3)
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
    engine = {"name": "sampled", "length": 32, "batch_size": 16, "sequences": None}
    assert spec["engine"] == engine
    assert spec["classes"]["digest"] == classes.digest
    assert spec["seeds"] == [0, 1, 2]
    assert json.loads(result.attrs["versions"])["jax"] == jax.__version__


def test_statistics_on_the_device_are_the_measures():
    from attnlab import measures

    for classes, init in ((syn_medium(num_last=2), "uniform"), (syn_small(), "zero")):
        for engine in (Limit(), Sampled(32, 16)):
            result = plain(
                classes, engine, eta_y=1.0, eta_z=1.0, steps=20, init=init,
                save=Save(("attention", "statistics")), **DOUBLE,
            )  # fmt: skip
            for name in ("entropy", "distinct_entropy", "common_mass", "effective_tokens"):
                measured = getattr(measures, name)(result)
                np.testing.assert_allclose(result[name], measured, rtol=1e-10, err_msg=name)


def test_save_says_when():
    def steps(save, count=20):
        result = plain(syn_small(), Limit(), eta_y=1.0, eta_z=1.0, steps=count, save=save)
        return result.step.values.tolist()

    assert steps(Save("loss", every=8)) == [0, 8, 16, 20]
    assert steps(Save("loss", at=[0, 3, 4])) == [0, 3, 4]
    assert steps(Save("loss", geometric=4)) == [0, 1, 3, 7, 20]
    assert steps(None) == list(range(21))
    assert len(steps(Save("loss"), count=100_000)) == 101


def test_only_what_was_asked_is_recorded():
    result = plain(syn_small(), Limit(), eta_y=1.0, eta_z=1.0, steps=3, save=Save("loss"))
    assert set(result.data_vars) == {"loss"}
    result = plain(syn_small(), Limit(), eta_y=1.0, eta_z=1.0, steps=3, save=Save("logits"))
    assert set(result.data_vars) == {"attention_logits", "probability"}


def test_the_same_seed_gives_the_same_run_and_another_seed_another():
    arguments = {"eta_y": 1.0, "eta_z": 1.0, "steps": 8, "save": MAPS}
    first, again = (plain(syn_small(), Sampled(16, 4), seeds=[7], **arguments) for _ in range(2))
    np.testing.assert_array_equal(first.attention, again.attention)
    other = plain(syn_small(), Sampled(16, 4), seeds=[8], **arguments)
    assert float(abs(first.attention - other.attention.values).max()) > 1e-3


def test_what_is_compiled_is_not_run_to_be_compiled_again(monkeypatch):
    calls = []
    call = SteppingBatch.call
    monkeypatch.setattr(driving, "PACES", {})
    monkeypatch.setattr(
        SteppingBatch, "call", lambda batch, count: calls.append(count) or call(batch, count)
    )
    first = simulate("syn-small", Limit(), eta_y=0.5, eta_z=0.5, steps=9, progress=False)
    assert calls[0] == 0
    calls.clear()
    again = simulate("syn-small", Limit(), eta_y=0.5, eta_z=0.5, steps=9, progress=False)
    assert 0 not in calls
    assert sum(calls) == 9
    xr.testing.assert_equal(first, again)


def test_precision_is_the_callers_and_only_for_the_call():
    assert not jax.config.jax_enable_x64
    result = plain(syn_small(), Limit(), eta_y=1.0, eta_z=1.0, steps=2, **DOUBLE)
    assert result.attention.dtype == np.float64
    assert not jax.config.jax_enable_x64
    assert plain(syn_small(), Limit(), eta_y=1.0, eta_z=1.0, steps=2).loss.dtype == np.float32


def test_progress_can_be_followed():
    seen = []
    plain(syn_small(), Limit(), eta_y=1.0, eta_z=1.0, steps=50, progress=seen.append)
    assert seen[-1] == pytest.approx(1.0)
    assert seen == sorted(seen)


# -- divergence -------------------------------------------------------------------------------


def test_divergence_names_step_array_and_rates_and_keeps_the_record():
    # momentum carries Y past the largest float32 although the loss is long zero
    wild = {"eta_y": 1e38, "eta_z": 1.0, "momentum": 0.9}
    message = r"became non-finite at step \d+ .*eta_y = 1e\+38"
    with pytest.raises(attnlab.Diverged, match=message) as e:
        simulate(syn_small(), Limit(), **wild, steps=400, save=Save(every=1))
    result = e.value.dataset
    step = int(result.diverged_step.item())
    assert result.step.values.tolist() == list(range(step))
    assert bool(np.isfinite(result.attention_logits).all())
    # a run that stops one step earlier is finite; one that reaches it is not
    simulate(syn_small(), Limit(), **wild, steps=step - 1, save=Save("loss"))
    with pytest.raises(attnlab.Diverged):
        simulate(syn_small(), Limit(), **wild, steps=step, save=Save("loss"))


def test_one_run_may_diverge_while_the_others_go_on():
    with pytest.raises(attnlab.Diverged, match="eta_y = 1e\\+38") as e:
        simulate(syn_small(), Limit(), eta_y=[1.0, 1e38], eta_z=1.0, steps=50, momentum=0.9)
    result = e.value.dataset
    assert result.step.values[-1] == 50
    good = simulate(syn_small(), Limit(), eta_y=1.0, eta_z=1.0, steps=50, momentum=0.9)
    np.testing.assert_allclose(result.attention.sel(eta_y=1.0), good.attention, rtol=1e-5)
    assert result.diverged_step.sel(eta_y=1.0).item() == -1
    assert bool(np.isnan(result.loss.sel(eta_y=1e38).isel(step=-1)).all())


# -- bad input --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"eta_y": -1.0}, "eta_y"),
        ({"eta_z": float("nan")}, "eta_z"),
        ({"steps": 0}, "steps"),
        ({"steps": 1.5}, "steps"),
        ({"optimizer": "sdg"}, "optimizer"),
        ({"momentum": 1.0}, "momentum"),
        ({"optimizer": "adam", "momentum": 0.9}, "momentum"),
        ({"init": "ones"}, "init"),
        ({"init": np.zeros(3)}, "init"),
        ({"seeds": 0}, "seeds"),
        ({"seeds": [1, 1]}, "seeds"),
        ({"dtype": "float16"}, "dtype"),
        ({"engine": "limit"}, "engine"),
        ({"engine": Flow(), "momentum": 0.9}, "optimizer"),
        ({"save": Save(at=[0, 200])}, "at"),
        ({"save": Save(at=[0.5])}, "at"),
    ],
)
def test_bad_input_names_the_field(change, field):
    arguments = {"engine": Limit(), "eta_y": 1.0, "eta_z": 1.0, "steps": 10, **change}
    with pytest.raises(ValueError, match=f"^{field}"):
        simulate(syn_small(), **arguments)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Sampled(length=1), "length"),
        (lambda: Sampled(batch_size=0), "batch_size"),
        (lambda: Limit(0), "batch_size"),
        (lambda: Save("weights"), "what"),
        (lambda: Save(every=0), "every"),
        (lambda: Save(every=2, at=[1]), "every, geometric, at"),
        (lambda: Save(at=[3, 2]), "at"),
        (lambda: Optimizer(weight_decay=-0.1), "weight_decay"),
        (lambda: Embedded(0), "dim"),
        (lambda: Embedded(2, scale=0), "scale"),
    ],
)
def test_values_are_checked_where_they_are_made(make, field):
    with pytest.raises(ValueError, match=f"^{field}"):
        make()


def test_rates_at_which_rounding_decides_are_named():
    """With P = 1e-300 all attention is on one token and its gradient is zero; what is left of it is
    rounding, which a rate of 1e19 makes larger than the logits."""
    classes = SequenceClasses(
        probs=[{0: 1.0, 1: 1e-300}, {0: 0.5, 2: 0.5}], query=[0, 0], next_token=[3, 4],
        prior=[0.5, 0.5], vocab_size=5,
    )  # fmt: skip
    rates = {"eta_y": [1.0, 2.0], "eta_z": [1.0, 3e19], "steps": 5}
    with pytest.warns(UserWarning, match=r"eta_y = 2, eta_z = 3e\+19: from step 2 on") as said:
        result = plain(classes, Limit(), **rates, **DOUBLE, save=MAPS)
    assert result.attrs["rounding"] == str(said[0].message)
    decay = Optimizer("sgd", 0.0, weight_decay=10.0)
    with pytest.warns(UserWarning, match="decided by rounding"):
        simulate(classes, Limit(), eta_y=1e20, eta_z=1e-22, steps=5, optimizer=decay, **DOUBLE)


@pytest.mark.filterwarnings("error:.*rounding")
def test_of_ordinary_rates_nothing_is_said_of_rounding():
    for dtype, most in (("float32", 1e3), ("float64", 1e7)):
        result = plain(syn_small(), Limit(), eta_y=most, eta_z=most, steps=5, dtype=dtype)
        assert "rounding" not in result.attrs
    plain(syn_small(), Flow(), eta_y=1.0, eta_z=1.0, steps=2)
