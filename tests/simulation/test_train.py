"""The trainer: vectorised, resumed, stopped and diverged runs; flow and exact path as oracles."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from interrupts import Keyboard

import attnlab
from attnlab.dynamics.divergence import Diverged
from attnlab.dynamics.stopping import Interrupted
from attnlab.files.errors import InputError
from attnlab.models import Model, Transformer
from attnlab.simulation import (
    Batches,
    Flow,
    Learner,
    Piecewise,
    Population,
    Record,
    Run,
    Steps,
    train_run,
)
from attnlab.simulation import train as trainer
from attnlab.tasks import Batch, MarkovChains, Task

SMALL = Run(
    MarkovChains(2, 8), Transformer(layers=1, dim=4, dropout=0.1),
    Steps(12, [0.1, 0.5], "adam"), Batches(4), seeds=2, dtype="float64",
    record=Record(what=("loss", "entropy", "parameters"), every=4),
)  # fmt: skip


@dataclass(frozen=True)
class Bowl(Learner):
    """L = sum_i c_i (x_i - y)^2 / 2 + |y|^2 / 2, with c drawn by seed."""

    curvature: float = 1.0

    def draw(self, key):
        return self.curvature * (1 + jax.random.uniform(key, (3,)))

    def init(self, key, data):
        return {"x": jnp.ones(3), "y": jnp.full(2, 0.5)}

    def batch(self, data, key, step, size):
        return jax.random.normal(key, (size,)).mean()

    def loss(self, data, params, batch, key):
        noise = batch if not isinstance(batch, tuple) else 0.0
        x, y = params["x"], params["y"]
        return (data * (x - y[0]) ** 2).sum() / 2 + (y**2).sum() / 2 + noise * x.sum()

    def capture(self, data, params, probe):
        return {"distance": jnp.abs(params["x"] - params["y"][0]).max()}


def result_of(run, **options):
    return train_run(run, progress=False, **options)


@pytest.fixture(scope="module")
def small():
    return result_of(SMALL)


def test_runs_together_are_runs_one_by_one(small):
    for seed in (0, 1):
        for rate in (0.1, 0.5):
            one = replace(SMALL, seeds=[seed], motion=Steps(12, rate, "adam"))
            alone = result_of(one).isel(seed=0)
            together = small.sel(seed=seed, learning_rate=rate)
            for name in alone.data_vars:
                np.testing.assert_allclose(together[name], alone[name], rtol=1e-9, atol=1e-11)


def test_the_dataset_is_labelled(small):
    assert small["loss"].dims == ("learning_rate", "seed", "step")
    assert small["entropy"].dims == ("learning_rate", "seed", "step", "layer", "head")
    np.testing.assert_array_equal(small["step"], [0, 4, 8, 12])
    assert small.attrs["digest"] == SMALL.digest and small.attrs["dtype"] == "float64"
    assert small["parameters.attention.query"].shape == (2, 2, 4, 1, 4, 4)


def stopped_after(run, folder, monkeypatch, calls, **options):
    """Ctrl-C after so many calls into compiled code."""
    keyboard, advance = Keyboard(monkeypatch), trainer.Trainer._record
    seen = []

    def press(self):
        advance(self)
        seen.append(1)
        if len(seen) == calls:
            keyboard.press()

    monkeypatch.setattr(trainer.Trainer, "_record", press)
    with pytest.raises(Interrupted) as stopped:
        result_of(run, out=folder, **options)
    monkeypatch.undo()
    return stopped.value


def test_a_stopped_run_goes_on_bit_identically(small, tmp_path, monkeypatch):
    stopped = stopped_after(SMALL, tmp_path / "run", monkeypatch, 2)
    assert "stopped at step 4 of 12" in str(stopped)
    assert stopped.dataset.sizes["step"] == 2
    np.testing.assert_array_equal(stopped.dataset["loss"], small["loss"][:, :, :2])
    again = result_of(SMALL, out=tmp_path / "run")
    for name in small.data_vars:
        np.testing.assert_array_equal(again[name], small[name])
    kept = result_of(SMALL, out=tmp_path / "run")  # from the file
    np.testing.assert_array_equal(kept["loss"], small["loss"])


def test_a_stopped_flow_goes_on_bit_identically(tmp_path, monkeypatch):
    run = Run(Bowl(), None, Flow(20.0, solver="implicit"), Population(), dtype="float64",
              record=Record(what=("parameters", "loss"), at=(0.0, 1.0, 5.0, 20.0)))  # fmt: skip
    whole = result_of(run)
    stopped_after(run, tmp_path / "run", monkeypatch, 2)
    again = result_of(run, out=tmp_path / "run")
    for name in whole.data_vars:
        np.testing.assert_array_equal(again[name], whole[name])


def test_another_run_is_refused_in_the_folder(tmp_path):
    result_of(SMALL, out=tmp_path / "run")
    with pytest.raises(InputError, match="holds another run .gradient"):
        result_of(replace(SMALL, gradient=Batches(5)), out=tmp_path / "run")


@pytest.mark.parametrize("solver", ["explicit", "implicit"])
def test_the_flow_is_the_limit_of_small_steps(solver):
    """The gap of gradient descent at rate h to the flow falls as h: slope 1."""
    at = Record(what="parameters", at=(4.0,))
    flow = result_of(Run(Bowl(), None, Flow(4.0, solver=solver), Population(), record=at,
                         dtype="float64"))  # fmt: skip
    gaps = []
    for n in (400, 800):
        steps = Run(Bowl(), None, Steps(n, 4 / n), Population(), dtype="float64",
                    record=Record(what="parameters", at=(n,)))  # fmt: skip
        found = result_of(steps)["parameters.x"].values - flow["parameters.x"].values
        gaps.append(np.abs(found).max())
    assert np.log2(gaps[0] / gaps[1]) == pytest.approx(1, abs=0.02)


def test_a_linear_flow_is_known():
    """From x = y = 1 / 2 in both, only y moves with x fixed: dy/dt = -dL/dy."""
    run = Run(Bowl(), None, Flow(3.0, {"x": None, "y": 1.0}), Population(), dtype="float64",
              record=Record(what="parameters", at=(0.0, 3.0)))  # fmt: skip
    result = result_of(run).isel(seed=0)
    np.testing.assert_array_equal(result["parameters.x"][1], result["parameters.x"][0])
    expected = 0.5 * np.exp(-3.0)  # the second entry of y has no other force
    np.testing.assert_allclose(result["parameters.y"][1, 1], expected, rtol=1e-7)


@dataclass(frozen=True)
class Classes(Task):
    """Sequence classes for T to infinity, one example each."""

    probs: tuple[tuple[float, ...], ...]
    prior: tuple[float, ...]

    def population(self, data):
        P = jnp.asarray(self.probs)
        return Batch(P, jnp.arange(len(P)), weight=jnp.asarray(self.prior))


@dataclass(frozen=True)
class OneQuery(Model):
    """c ~ P(l|n) e^z, f = c / |c|, logits Y^T f (Eqs. 1 and 2)."""

    def init(self, key, task, data):
        M = len(task.probs[0])
        return {"decoder": jnp.zeros((M, M)), "attention": jnp.zeros(M)}

    def apply(self, params, inputs, *, key=None):
        c = inputs * jnp.exp(params["attention"])
        c = c / c.sum(-1, keepdims=True)
        f = c / jnp.linalg.norm(c, axis=-1, keepdims=True)
        return f @ params["decoder"], {"attention": c}


@pytest.mark.parametrize("engine", ["limit", "flow"])
def test_the_general_path_is_the_exact_path(engine, syn_small):
    prior = np.asarray([0.4, 0.6])
    classes = attnlab.SequenceClasses(syn_small, [0, 0], [0, 1], prior)
    of = attnlab.Limit() if engine == "limit" else attnlab.Flow()
    exact = attnlab.simulate(
        classes, of, eta_y=2.0, eta_z=[1.0, 4.0], steps=60, momentum=0.0, dtype="float64",
        save=attnlab.Save(at=(0, 20, 60)), progress=False,
    )  # fmt: skip
    rates = {"decoder": 2.0, "attention": [1.0, 4.0]}
    motion = Steps(60, rates) if engine == "limit" else Flow(60.0, rates)
    task = Classes(tuple(map(tuple, syn_small.tolist())), tuple(prior.tolist()))
    general = result_of(Run(task, OneQuery(), motion, Population(), dtype="float64",
                            record=Record(what=("loss", "attention"), at=(0, 20, 60))))  # fmt: skip
    for name in ("loss", "attention"):
        found, expected = general[name].values, exact[name].values
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-8)


def test_divergence_names_step_and_cause_and_keeps_what_was_recorded():
    motion = Steps(2000, {"x": [0.1, 1e3], "y": 0.1})
    run = Run(Bowl(), None, motion, Population(), record=Record(every=5))
    with pytest.raises(
        Diverged, match=r"became non-finite at step \d+ .learning_rate_x = 1000, seed 0"
    ) as lost:
        result_of(run)
    kept = lost.value.dataset
    step = float(kept["diverged_step"].sel(learning_rate_x=1e3, seed=0))
    run_of = kept["loss"].sel(learning_rate_x=1e3, seed=0)
    assert np.isfinite(run_of.sel(step=slice(0, step - 6))).all()
    assert np.isnan(run_of.sel(step=slice(step + 5, None))).all()
    assert np.isfinite(kept["loss"].sel(learning_rate_x=0.1)).all()
    assert kept["diverged_step"].sel(learning_rate_x=0.1).item() == -1


def test_a_flow_out_of_steps_is_given_up():
    run = Run(Bowl(1e6), None, Flow(1e3, most_steps=50), Population())
    with pytest.raises(Diverged, match="given up after 50 steps"):
        result_of(run)


def test_learning_rates_by_group_schedule_and_clip():
    """Fixed x; y at 0.1 and then 0.2, its gradient clipped to length 0.1."""
    motion = Steps(4, {"x": None, "y": Piecewise((0, 2), (0.1, 0.2))}, clip=0.1)
    result = result_of(Run(Bowl(), None, motion, Population(), dtype="float64",
                           record=Record(what="parameters", every=1)))  # fmt: skip
    y = result["parameters.y"].isel(seed=0).values
    lengths = np.linalg.norm(np.diff(y, axis=0), axis=-1)
    np.testing.assert_allclose(lengths, [0.01, 0.01, 0.02, 0.02], rtol=1e-9)
    assert (result["parameters.x"] == 1).all()


def test_decay_and_optimizers_by_group():
    optimizer = {"x": attnlab.Optimizer("adamw", weight_decay=0.5), "y": "sgd"}
    run = Run(Bowl(), None, Steps(1, 0.1, optimizer), Population(), dtype="float64",
              record=Record(what="parameters", every=1), init={"x": np.full(3, 0.5)})  # fmt: skip
    result = result_of(run).isel(seed=0, step=-1)
    np.testing.assert_allclose(result["parameters.x"], 0.5 - 0.1 * 0.5 * 0.5, rtol=1e-6)
    np.testing.assert_allclose(result["parameters.y"], 0.45)


def optax_adam(rate):
    return optax.adam(rate)


def test_any_optax_transformation():
    ours, theirs = (
        result_of(Run(Bowl(), None, Steps(5, 0.1, of), Batches(4), dtype="float64"))
        for of in ("adam", optax_adam)
    )
    np.testing.assert_allclose(ours["loss"], theirs["loss"], rtol=1e-12)


def test_values_are_equal_by_content():
    same = replace(SMALL, seeds=(0, 1))
    assert same == SMALL and hash(same) == hash(SMALL)
    assert replace(SMALL, seeds=3) != SMALL
    starts = [Run(Bowl(), None, Steps(1), Population(), init={"y": np.full(2, v)}) for v in (1, 2)]
    assert starts[0] != starts[1]


@dataclass
class Loose(Task):
    vocab_size: int = 2
    length: int = 2


@pytest.mark.parametrize("fields, words", [
    ({"task": Loose()}, "task: Loose is not a frozen dataclass"),
    ({"motion": Steps(2, {"attention": 0.1})}, "learning_rate: missing for the group 'decoder'"),
    ({"motion": Steps(2, {"query": 0.1})}, "learning_rate: the groups are"),
    ({"record": Record(what="atention")}, "did you mean 'attention'"),
    ({"gradient": Population()}, "MarkovChains has no population"),
    ({"motion": Flow(1.0)}, "a flow needs Population"),
    ({"init": {"decoder": {"weights": np.zeros((3, 3))}}}, "init: expected shapes"),
    ({"init": {"readout": np.zeros(3)}}, "init: the groups are"),
    ({"model": None}, "model: expected a model for a task"),
    ({"loss": "mse"}, "loss: expected one of"),
])  # fmt: skip
def test_bad_runs_are_refused_when_made(fields, words):
    with pytest.raises(InputError, match=words):
        replace(SMALL, **fields)


def test_bad_motions_are_refused():
    for make, words in (
        (lambda: Steps(0), "steps"), (lambda: Steps(1, -1.0), "learning_rate"),
        (lambda: Steps(1, None), "nothing would move"), (lambda: Steps(1, clip=0), "clip"),
        (lambda: Flow(-1.0), "time"), (lambda: Flow(1.0, solver="stiff"), "solver"),
        (lambda: Piecewise((1, 2), (0.1, 0.2)), "at: expected increasing"),
        (lambda: Batches(0), "size"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=words):
            make()


def test_too_many_runs_are_refused_by_field():
    run = replace(SMALL, model=Transformer(dim=4096), seeds=100_000, record=Record(what="loss"))
    with pytest.raises(InputError, match="seeds: would need"):
        result_of(run)
