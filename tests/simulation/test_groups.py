"""Groups of runs: divergence to its step, and programs that are compiled once."""

import jax
import numpy as np
import pytest
import xarray as xr
from bowl import Bowl

import attnlab
from attnlab import (
    Batches,
    Diverged,
    Extended,
    Flow,
    MarkovChains,
    Population,
    Record,
    Simulation,
    Steps,
    Transformer,
    simulate,
)
from attnlab.papers.scan_and_snap.classes import syn_small
from attnlab.tasks.classes import single_common

# momentum carries Y past the largest float32 although the loss is long zero
WILD = Simulation(syn_small(), gradient=Population(), eta_y=1e38, motion=Steps(400))


# -- divergence -----------------------------------------------------------------------------------


def test_divergence_names_step_array_and_learning_rates_and_keeps_the_record():
    message = r"Z became non-finite at step \d+ .eta_y = 1e\+38, eta_z = 1, seed 0.*"
    with pytest.raises(Diverged, match=message + "Try smaller learning rates") as problem:
        simulate(WILD, every=1)
    result = problem.value.dataset
    step = int(result.diverged_step.item())
    assert result.step.values.tolist() == list(range(step))
    assert bool(np.isfinite(result.attention_logits).all())
    # a run that stops one step earlier is finite; one that reaches it is not
    simulate(WILD, steps=step - 1, what="loss")
    with pytest.raises(Diverged):
        simulate(WILD, steps=step, what="loss")


def test_one_run_may_diverge_while_the_others_go_on():
    with pytest.raises(Diverged, match=r"eta_y = 1e\+38") as problem:
        simulate(WILD, eta_y=[1.0, 1e38], steps=50)
    result = problem.value.dataset
    assert result.step.values[-1] == 50
    good = simulate(WILD, eta_y=1.0, steps=50)
    np.testing.assert_allclose(result.attention.sel(eta_y=1.0), good.attention, rtol=1e-5)
    assert result.diverged_step.sel(eta_y=1.0).item() == -1
    assert bool(np.isnan(result.loss.sel(eta_y=1e38).isel(step=-1)).all())


def test_one_of_several_sets_of_classes_may_diverge():
    sets = [single_common(2, 2, p, vocab_size=20) for p in (0.1, 0.2)]
    with pytest.raises(Diverged, match=r"common_prob=0.*, eta_y = 1e\+38") as problem:
        simulate(sets, gradient=Population(), eta_y=[1.0, 1e38], steps=40)
    diverged = problem.value.dataset["diverged_step"]
    assert diverged.dims == ("setting", "eta_y", "seed")
    assert (diverged.sel(eta_y=1e38) > 0).all() and (diverged.sel(eta_y=1.0) == -1).all()
    with pytest.raises(ValueError, match="classes: sets that run together have the same numbers"):
        simulate([sets[0], "syn-small"])
    with pytest.raises(ValueError, match=r"take one set of classes, \.isel\(setting=0\)"):
        attnlab.measures.distinct_entropy(problem.value.dataset)


def test_heads_that_diverge_keep_their_dim():
    model = Extended(heads=2, combine="concatenate")
    with pytest.raises(Diverged, match="the decoder Y became non-finite at step") as problem:
        simulate(WILD, model=model, steps=60)
    assert problem.value.dataset.attention.dims[2] == "head"
    assert bool(np.isfinite(problem.value.dataset.attention).all())


def test_a_learner_diverges_to_the_step_in_its_group():
    run = Simulation(
        Bowl(),
        motion=Steps(2000),
        learning_rate={"x": [0.1, 1e3], "y": 0.1},
        record=Record(every=5),
    )
    message = r"x became non-finite at step \d+ .learning_rate_x = 1000, learning_rate_y = 0.1, s"
    with pytest.raises(Diverged, match=message) as problem:
        simulate(run)
    kept = problem.value.dataset
    step = float(kept["diverged_step"].sel(learning_rate_x=1e3, seed=0))
    of_run = kept["loss"].sel(learning_rate_x=1e3, seed=0)
    assert np.isfinite(of_run.sel(step=slice(0, step - 6))).all()
    assert np.isnan(of_run.sel(step=slice(step, None))).all()
    assert np.isfinite(kept["loss"].sel(learning_rate_x=0.1)).all()
    assert kept["diverged_step"].sel(learning_rate_x=0.1).item() == -1


def test_the_step_of_divergence_does_not_depend_on_the_records():
    steps = set()
    for every in (1, 7, 100):
        with pytest.raises(Diverged) as problem:
            simulate(WILD, every=every, eta_y=[1.0, 1e38], steps=100)
        steps.add(problem.value.dataset.diverged_step.sel(eta_y=1e38).item())
    assert len(steps) == 1


# -- programs and progress ------------------------------------------------------------------------


@pytest.fixture
def compilations():
    """Collect the names of compiled functions while a test runs."""
    names = []

    def listen(event, duration, fun_name=None, **_):
        if event == "/jax/core/compile/backend_compile_duration":
            names.append(fun_name)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield names
    jax.monitoring.unregister_event_duration_listener(listen)


@pytest.mark.parametrize("motion", [Steps(9), Flow(9.0)], ids=["steps", "flow"])
def test_each_program_is_compiled_once_for_all_learning_rates(motion, compilations):
    # a shape that no other test has compiled
    run = Simulation(
        single_common(num_classes=3, distinct=5, common_prob=0.3, vocab_size=37),
        gradient=Population(),
        eta_y=0.5,
        motion=motion,
    )
    first = simulate(run, progress=False)
    flow = motion.clock == "time"
    assert compilations.count("jit(begin)") == 1 + flow
    assert compilations.count("jit(advance)") == compilations.count("jit(record)") == 1
    compilations.clear()
    again = simulate(run, eta_y=0.6, progress=False)
    assert compilations == []
    assert not first.equals(again)
    xr.testing.assert_equal(first, simulate(run, progress=False))


@pytest.mark.parametrize(
    "run",
    [
        Simulation("syn-small", gradient=Population(), motion=Steps(50)),
        Simulation(
            MarkovChains(2, 8),
            Transformer(layers=1, dim=4),
            motion=Steps(20),
            gradient=Batches(4),
            learning_rate=[0.1, 0.2],
            seeds=3,
        ),
    ],
    ids=["sequence classes", "transformer"],
)
def test_progress_can_be_followed(run):
    seen = []
    simulate(run, progress=seen.append)
    assert seen[-1] == pytest.approx(1.0)
    assert seen == sorted(seen)
