"""Steps of an optimizer: the rules by name, any optax transformation, clipping, groups."""

import brute
import numpy as np
import optax
import pytest
import xarray as xr
from bowl import Bowl

import attnlab
from attnlab import (
    Batches,
    Flow,
    Optimizer,
    Piecewise,
    Population,
    Record,
    SequenceClasses,
    Simulation,
    Steps,
    simulate,
)
from attnlab.files.errors import InputError

CLASSES = SequenceClasses(
    [[0.5, 0.5, 0, 0, 0], [0.5, 0, 0.5, 0, 0]], query=[3, 3], next_token=[3, 4]
)
BOWL = Simulation(
    Bowl(),
    motion=Steps(4),
    learning_rate=0.1,
    dtype="float64",
    record=Record("parameters", every=1),
)


@pytest.mark.parametrize(
    ("name", "decay"), [("sgd", 0.05), ("adam", 0.0), ("adam", 0.05), ("adamw", 0.05)]
)
def test_momentum_adam_and_weight_decay_are_the_textbook_rules(name, decay):
    """Recomputed by hand from the plain gradients of the brute-force model."""
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
        CLASSES,
        gradient=Population(),
        eta_y=0.3,
        eta_z=0.1,
        steps=15,
        dtype="float64",
        optimizer=Optimizer(name, momentum=0.9 * (name == "sgd"), weight_decay=decay),
    )
    found = result.attention_logits.isel(seed=0, step=-1, query=0)
    np.testing.assert_allclose(found, W[1][3], atol=1e-9)


def test_weight_decay_and_momentum_have_their_defaults():
    assert Optimizer("adamw").weight_decay == 0.01
    assert Optimizer("sgd").weight_decay == Optimizer("adam").weight_decay == 0.0
    assert Simulation(CLASSES).momentum == 0.9  # of sequence classes
    assert Simulation(CLASSES, motion=Steps(3, Optimizer(momentum=0.0))).momentum == 0.0
    assert BOWL.momentum == 0.0 and Simulation(CLASSES, motion=Flow()).momentum == 0.0


def test_momentum_is_that_of_all_groups_that_move():
    def momentum(**groups):
        chosen = {name: Optimizer(momentum=of) for name, of in groups.items()}
        return Simulation(CLASSES, motion=Steps(5, chosen)).momentum

    assert momentum(decoder=0.5, attention=0.5) == 0.5
    assert momentum(decoder=0.5, attention=0.0) == 0.0


def test_optimizers_by_group():
    optimizer = {"x": Optimizer("adamw", weight_decay=0.5), "y": "sgd"}
    run = simulate(BOWL, steps=1, optimizer=optimizer, init={"x": np.full(3, 0.5)})
    last = run.isel(seed=0, step=-1)
    # x and y start at the same place: x has no gradient, and y only that of |y|^2 / 2
    np.testing.assert_allclose(last["parameters.x"], 0.5 - 0.1 * 0.5 * 0.5, rtol=1e-6)
    np.testing.assert_allclose(last["parameters.y"], 0.45)


def test_a_fixed_group_a_schedule_and_clipping():
    """Fixed x; y at 0.1 and then 0.2, its gradient clipped to length 0.1."""
    rates = {"x": None, "y": Piecewise((0, 2), (0.1, 0.2))}
    result = simulate(BOWL, learning_rate=rates, clip=0.1)
    y = result["parameters.y"].isel(seed=0).values
    lengths = np.linalg.norm(np.diff(y, axis=0), axis=-1)
    np.testing.assert_allclose(lengths, [0.01, 0.01, 0.02, 0.02], rtol=1e-9)
    assert (result["parameters.x"] == 1).all()


def test_clipping_takes_the_length_over_all_groups():
    result = simulate(BOWL, clip=0.1, learning_rate={"x": 1.0, "y": 1.0}).isel(seed=0)
    moved = [np.diff(result[f"parameters.{name}"], axis=0) for name in ("x", "y")]
    lengths = np.linalg.norm(np.concatenate(moved, axis=1), axis=1)
    np.testing.assert_allclose(lengths, 0.1, rtol=1e-9)


def momentum_sgd(rate):
    return optax.sgd(rate, momentum=0.9)


def decaying_sgd(rate):
    return optax.sgd(optax.exponential_decay(rate, transition_steps=1, decay_rate=0.5))


def injected_sgd(rate):
    return optax.inject_hyperparams(optax.sgd)(learning_rate=rate)


def optax_adam(rate):
    return optax.adam(rate)


@pytest.mark.slow
def test_an_optimizer_is_any_optax_transformation():
    run = Simulation(CLASSES, gradient=Population(), eta_y=[0.5, 1.0], motion=Steps(10), seeds=2)
    ours, theirs = (
        simulate(run, optimizer=of) for of in (momentum_sgd, Optimizer("sgd", momentum=0.9))
    )
    xr.testing.assert_identical(ours.drop_attrs(), theirs.drop_attrs())
    # learning rates are in its memory
    kept, theirs = (simulate(run, optimizer=of) for of in (injected_sgd, Optimizer(momentum=0.0)))
    xr.testing.assert_allclose(kept.drop_attrs(), theirs.drop_attrs())
    slow = simulate(run, optimizer=decaying_sgd)
    assert (slow["loss"].isel(step=-1) > kept["loss"].isel(step=-1)).all()
    ours, theirs = (
        simulate(BOWL, optimizer=of, gradient=Batches(4), what="loss")["loss"]
        for of in ("adam", optax_adam)
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Steps(0), "steps"),
        (lambda: Steps(1.5), "steps"),
        (lambda: Steps(2**31), "steps"),
        (lambda: Steps(float("nan")), "steps"),
        (lambda: Steps(1, clip=0), "clip"),
        (lambda: Steps(1, "sdg"), "optimizer"),
        (lambda: Steps(1, 3), "optimizer"),
        (lambda: Steps(1, lambda rate: optax.sgd(rate)), "optimizer: expected a function that is"),
        (lambda: Batches(0), "batch_size"),
        (lambda: Optimizer(momentum=1.0), "momentum"),
        (lambda: Optimizer("adam", momentum=0.9), "momentum"),
        (lambda: Optimizer(weight_decay=-0.1), "weight_decay"),
        (lambda: attnlab.simulate(BOWL, optimizer=momentum_sgd, momentum=0.5), "momentum: set it"),
        (lambda: attnlab.simulate(BOWL, optimizer=momentum_sgd, beta_1=0.5), "beta_1: set it in"),
        (lambda: Flow(-1.0), "time"),
        (lambda: Flow(float("inf")), "time"),
        (lambda: Flow(1.0, solver="stiff"), "solver"),
        (lambda: Flow(rtol=1e-300), r"rtol: expected a number of at least 2.2e-15 in float64"),
        (lambda: Flow(rtol=float("nan")), "rtol"),
        (lambda: Flow(atol=0.0), "atol: expected a number of at least 2.2e-308"),
        (lambda: Flow(most_steps=0), "most_steps"),
        (lambda: Flow(weight_decay=-1.0), "weight_decay"),
        (
            lambda: Simulation(CLASSES, motion=Flow(rtol=1e-9)),
            "rtol: expected a number of at least 1.2e-06 in float32",
        ),
        (
            lambda: Simulation(CLASSES, motion=Flow(1e39)),
            "time: expected a positive number, finite in float32",
        ),
    ],
)
def test_bad_settings_are_refused_when_made(make, field):
    with pytest.raises(InputError, match=f"^{field}"):
        make()
