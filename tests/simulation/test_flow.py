"""The gradient flow: its error, its limits, its records, and when it is given up."""

import jax
import numpy as np
import pytest
from bowl import Bowl
from plain import plain

import attnlab
from attnlab import Extended, Flow, Population, Record, SequenceClasses, Simulation, Steps, simulate
from attnlab.papers.scan_and_snap.classes import syn_small
from attnlab.simulation import groups, program
from attnlab.simulation.stopping import Pace

BOWL = Simulation(
    Bowl(), motion=Flow(4.0), learning_rate=1.0, dtype="float64", record=Record("parameters")
)
CLASSES = Simulation(syn_small(), motion=Flow(1e3), dtype="float64")


def final(result, name="attention"):
    return result[name].isel({attnlab.measures.clock_of(result): -1})


# -- limits -----------------------------------------------------------------------------------


def test_a_linear_flow_is_known():
    """With x fixed the second entry of y has no other force than its own: dy/dt = -y."""
    result = simulate(BOWL, learning_rate={"x": None, "y": 1.0}, time=3.0, at=(0.0, 3.0))
    result = result.isel(seed=0)
    np.testing.assert_array_equal(result["parameters.x"][1], result["parameters.x"][0])
    np.testing.assert_allclose(result["parameters.y"][1, 1], 0.5 * np.exp(-3.0), rtol=1e-7)


@pytest.mark.parametrize("solver", ["explicit", "implicit"])
def test_the_flow_is_the_limit_of_small_steps(solver):
    """The distance of gradient descent at learning rate h to the flow falls as h: slope 1."""
    flow = final(simulate(BOWL, solver=solver), "parameters.x")
    gaps = []
    for n in (400, 800):
        steps = simulate(BOWL, motion=Steps(n), learning_rate=4 / n, at=(n,))
        gaps.append(float(abs(final(steps, "parameters.x") - flow).max()))
    assert np.log2(gaps[0] / gaps[1]) == pytest.approx(1, abs=0.02)


def test_small_steps_approach_the_flow_of_sequence_classes_at_first_order():
    flow, errors, sizes = simulate(CLASSES, time=20.0), [], [0.4, 0.2, 0.1]
    for size in sizes:
        steps = plain(
            syn_small(),
            gradient=Population(),
            eta_y=size,
            eta_z=size,
            steps=round(20 / size),
            dtype="float64",
        )
        errors.append(float(abs(final(steps) - final(flow)).max()))
    slope = np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    assert 0.9 < slope < 1.1, (slope, errors)


def test_the_flow_reaches_very_late_times():
    result = simulate(CLASSES, time=1e9)
    assert bool(np.isfinite(result.attention).all())
    # the loss of a softmax decays as 1/t
    late = result.sel(time=slice(1e6, None))
    slope = np.polyfit(np.log(late.time), np.log(late.loss.isel(seed=0)), 1)[0]
    assert -1.05 < slope < -0.95
    single = simulate(CLASSES, time=1e9, dtype="float32")
    np.testing.assert_allclose(final(single), final(result), atol=1e-4)


def test_weight_decay_brings_flow_and_steps_to_the_same_rest():
    arguments = {"eta_y": 0.5, "eta_z": 0.5, "dtype": "float64", "what": ("attention", "loss")}
    steps = plain(
        syn_small(), gradient=Population(), steps=1500, at=[1500], weight_decay=0.05, **arguments
    )
    flow = simulate(syn_small(), time=1500, at=[1500], flow_weight_decay=0.05, **arguments)
    np.testing.assert_allclose(final(flow), final(steps), atol=1e-5)
    assert float(final(flow, "loss")[0]) > 0.1  # at rest, and not by fitting to the end


def test_the_error_follows_the_tolerance():
    def at_the_end(rtol):
        run = simulate(CLASSES, rtol=rtol, atol=1e-2 * rtol, what="logits", at=[1e3])
        return run.attention_logits.values

    exact, tolerances = at_the_end(1e-13), [1e-5, 1e-7, 1e-9]
    errors = [abs(at_the_end(rtol) - exact).max() for rtol in tolerances]
    assert all(error < 100 * rtol for error, rtol in zip(errors, tolerances, strict=True))
    assert errors == sorted(errors, reverse=True)


# -- records and progress -------------------------------------------------------------------------


def test_records_change_nothing():
    few, many = (
        simulate(CLASSES, time=1e4, what="logits", at=at)
        for at in ([0.0, 1e4], [0.0, 1.0, 7.0, 7.5, 300.0, 1e4])
    )
    np.testing.assert_array_equal(few.attention_logits, many.attention_logits.sel(time=few.time))


def test_progress_goes_to_the_end():
    seen = []
    simulate(CLASSES, time=1e9, progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == pytest.approx(1)
    assert len(seen) > 20


# -- given up -------------------------------------------------------------------------------------


def test_a_flow_that_does_not_end_is_given_up_and_the_others_go_on():
    with pytest.raises(
        attnlab.Diverged,
        match=r"^the flow was given up after 200 steps \(about \de\+\d+ left\) at time .*"
        r"eta_z = 1e\+12, seed 0\).*Flow.most_steps",
    ) as problem:
        simulate(
            syn_small(),
            most_steps=200,
            eta_y=1.0,
            eta_z=[1.0, 1e12],
            time=1e6,
            what="loss",
            at=[0.0, 1e-6, 1.0, 1e6],
        )
    result = problem.value.dataset
    time = result.diverged_step.values[:, 0]
    assert time[0] == -1
    assert 1e-6 < time[1] < 1
    assert np.isfinite(result.loss.isel(eta_z=0)).all()
    finite = np.isfinite(result.loss.isel(eta_z=1, seed=0)).values.tolist()
    assert finite == [True, True, False, False]


@pytest.mark.slow
def test_a_stiff_flow_needs_the_implicit_solver():
    stiff = {"task": Bowl(1e6), "time": 1e3, "most_steps": 50}
    with pytest.raises(attnlab.Diverged, match="given up after 50 steps"):
        simulate(BOWL, **stiff)
    result = simulate(BOWL, solver="implicit", **stiff | {"most_steps": 500})
    assert float(abs(final(result, "parameters.x")).max()) < 1e-6


def test_a_flow_without_a_velocity_is_given_up():
    uniform = SequenceClasses([[0.25] * 4] * 2, query=[0, 1], next_token=[2, 3])
    undefined = Extended(normalization="layer")  # of attention that is the same everywhere
    with pytest.raises(
        attnlab.Diverged, match="^the flow could take no further step in float32 at time 0"
    ):
        simulate(uniform, model=undefined, time=1e3)


def test_a_flow_keeps_the_order_of_its_groups():
    """The solver sums its error over the groups, decoder first as in version 0.1, so that the last
    digits stay as they were; JAX would sort them by their names."""
    with program.numbers(CLASSES):
        ((stack,),) = groups.stacks(CLASSES)
        group = groups.Flowing(stack, next(stack.groups()), Pace())
        group.begin()
    decoder, attention = group.state.params
    assert CLASSES.grid.moving == ("decoder", "attention")
    states = group.states().params
    for name, of in (("decoder", decoder), ("attention", attention)):
        shapes = [leaf.shape for leaf in jax.tree.leaves(states[name])]
        assert [leaf.shape for leaf in jax.tree.leaves(of)] == shapes
