"""predict() for any run: facts as the trainer draws them, and datasets that align with it."""

import subprocess
import sys
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

import attnlab
from attnlab import Batches, Flow, Learner, MarkovChains, Piecewise, Record, Simulation, Steps
from attnlab.files.errors import InputError
from attnlab.models import Transformer
from attnlab.simulation.learner import leaves_of
from attnlab.theory import Facts, Hypothesis, Theory
from attnlab.theory.facts import facts_of
from attnlab.theory.relation import AT_MOST


@dataclass(frozen=True)
class Paraboloid(Learner):
    """L = sum_i h_i (w_i - c_i)^2 / 2 + (b - 1)^2 / 2, with h, c and w(0) drawn by seed."""

    size: int = 3
    labels: ClassVar = {"parameters.w": ("axis",)}

    def draw(self, key):
        h, c = jax.random.split(key)
        return {
            "h": jax.random.uniform(h, (self.size,), minval=0.5, maxval=2.0),
            "c": jax.random.normal(c, (self.size,)),
        }

    def init(self, key, data):
        return {"w": jax.random.normal(key, (self.size,)), "b": jnp.zeros(())}

    def loss(self, data, params, batch, key):
        bend = jnp.sum(data["h"] * (params["w"] - data["c"]) ** 2)
        return (bend + (params["b"] - 1) ** 2) / 2


class Descent(Theory):
    """The closed form of its flow, or of its steps."""

    name, times, infinite = "descent", ("half_time",), True

    def check(self, run):
        if not isinstance(run.task, Paraboloid):
            raise InputError("task: the theory is about Paraboloid()")

    def assumptions(self, facts):
        fastest = facts.learning_rates["w"] * facts.data["h"].max()
        return (Hypothesis("here", "steps are stable: eta h", float(fastest), AT_MOST, 2.0),)

    def predict(self, facts, t):
        h, c, w = (np.float64(of) for of in (facts.data["h"], facts.data["c"], facts.start["w"]))
        eta = facts.learning_rates["w"]
        if facts.run.clock == "time":
            left = np.exp(-eta * h * t[:, None])
        else:
            left = (1 - eta * h) ** t[:, None]
        return {
            "parameters.w": (("time", "axis"), c + left * (w - c)),
            "half_time": (("axis",), np.log(2) / (eta * h)),
        }


RUNS = {
    "flow": {"motion": Flow(3.0), "dtype": "float64"},
    "steps": {"motion": Steps(20, optimizer="sgd"), "dtype": "float64"},
    "independent": {"motion": Flow(3.0), "dtype": "float64", "independent": True},
}


def bowl(name):
    rates = {"w": [0.1, 0.2], "b": [0.3, 0.4, 0.5]}
    record = Record(("parameters", "loss"))
    return Simulation(Paraboloid(), learning_rate=rates, seeds=[4, 9], record=record, **RUNS[name])


@pytest.mark.parametrize("name", RUNS)
def test_a_closed_form_aligns_with_training_and_subtracts(name):
    run = bowl(name)
    trained, predicted = (
        attnlab.simulate(run, progress=False),
        attnlab.predict(run, theory=Descent()),
    )
    xr.align(trained, predicted, join="exact")
    w = "parameters.w"
    dims = (*run.grid.dims(), run.clock, "axis")
    assert trained[w].dims == predicted[w].dims == dims
    for coord in trained.coords:
        xr.testing.assert_equal(trained.coords[coord], predicted.coords[coord])
    assert float(abs(predicted[w] - trained[w]).max()) < 1e-8
    assert (
        float(abs(trained[w].isel({run.clock: -1}) - trained[w].isel({run.clock: 0})).max()) > 0.1
    )
    assert predicted["half_time"].dims == (*dims[:3], "axis")
    assert predicted["assumption_holds"].dims == (*dims[:3], "assumption")
    assert predicted.attrs["theory"] == "descent" and Simulation.of(predicted) == run


def test_the_limit_of_infinite_time():
    run = bowl("flow")
    at = attnlab.predict(run, theory=Descent(), at=[0.0, np.inf])
    data = {seed: facts.data for (_, seed), facts in facts_of(run)}
    for seed, of in data.items():
        end = at["parameters.w"].isel(seed=seed, time=-1, learning_rate_w=0, learning_rate_b=0)
        np.testing.assert_array_equal(end, np.float64(of["c"]))
    assert at["time"].values.tolist() == [0.0, np.inf]
    assert attnlab.predict(run, theory=Descent(), at=np.inf).sizes["time"] == 1
    with pytest.raises(InputError, match="^at: expected increasing times"):
        attnlab.predict("syn-small", time=1.0, at=[0.0, np.inf])


@pytest.mark.parametrize("independent", [False, True])
def test_facts_are_what_the_trainer_draws(independent):
    """The start is the first record, and the data give its loss; cells differ where asked to."""
    run = bowl("independent" if independent else "flow")
    trained = attnlab.simulate(run, progress=False).isel(time=0)
    trained = trained.stack(point=run.grid.swept.dims)
    starts = {}
    for (point, seed), facts in facts_of(run):
        assert isinstance(facts, Facts) and isinstance(facts.data["h"], np.ndarray)
        assert facts.seed == (4, 9)[seed]
        here = trained.isel(point=point, seed=seed)
        np.testing.assert_array_equal(facts.start["w"], here["parameters.w"])
        h, c, w = facts.data["h"], facts.data["c"], facts.start["w"]
        assert float(here["loss"]) == pytest.approx((h @ (w - c) ** 2 + 1) / 2, rel=1e-12)
        assert facts.learning_rates == {
            "w": float(here["learning_rate_w"]),
            "b": float(here["learning_rate_b"]),
        }
        starts[point, seed] = facts.start["w"].tolist()
    assert len(starts) == 12
    assert len({tuple(of) for of in starts.values()}) == (12 if independent else 2)


def test_facts_of_a_task_and_a_model():
    task = MarkovChains(vocab_size=3, length=6)
    model = Transformer(layers=1, dim=4)
    run = Simulation(
        task,
        model,
        learning_rate=Piecewise([0, 2], [0.1, 0.2]),
        motion=Steps(3),
        gradient=Batches(4),
        record=Record(("parameters", "loss")),
    )
    first = attnlab.simulate(run, progress=False).isel(step=0, seed=0)
    ((where, facts),) = facts_of(run)
    assert where == (0, 0) and facts.learning_rates == {}  # a schedule is not one number
    for name, of in leaves_of(facts.start).items():
        np.testing.assert_array_equal(of, first[name])


class Wrong(Descent):
    """Return the theory with another answer."""

    def __init__(self, said):
        self.said = said

    def predict(self, facts, t):
        return {name: (dims, make(t)) for name, (dims, make) in self.said.items()}


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            {"parameters.w": (("time", "x"), lambda t: np.zeros((t.size, 3)))},
            r"parameters.w: expected dims \('time', 'axis'\), got",
        ),
        (
            {"parameters.w": (("time", "axis"), lambda t: np.zeros((t.size, 2)))},
            r"parameters.w: expected the shape \(time: 101, axis: 3\)",
        ),
        ({"x": (("seed",), lambda t: t)}, "x: expected dims among"),
        ({"x": (("own", "time"), lambda t: t[None])}, "x: expected dims among .* time first"),
        ({"learning_rate_w": ((), lambda t: 1.0)}, "learning_rate_w: the name is taken"),
    ],
)
def test_an_answer_that_does_not_fit_the_run_is_refused(said, words):
    with pytest.raises(InputError, match=f"^theory 'descent': {words}"):
        attnlab.predict(bowl("flow"), theory=Wrong(said))


def test_runs_that_a_theory_does_not_cover_are_refused():
    with pytest.raises(InputError, match=r"^task: the theory is about Paraboloid"):
        attnlab.predict("syn-small", theory=Descent())
    with pytest.raises(InputError, match="^task: expected sequence classes, got Paraboloid"):
        attnlab.predict(bowl("flow"), theory="sgd")
    with pytest.raises(InputError, match="^theories: descent is not a ClassTheory"):
        attnlab.audit("syn-small", theories=[Descent()])


@pytest.mark.slow
def test_predictions_of_sequence_classes_do_not_import_jax():
    """Other theories are given what the trainer draws: data and start of each seed."""
    code = (
        "import sys, attnlab\n"
        "from attnlab.papers.joma.model import Joint\n"
        "run = attnlab.Simulation('syn-small', eta_y=[1.0, 2.0], motion=attnlab.Flow(10.0))\n"
        "for theory in ('printed', 'corrected', 'sgd'):\n"
        "    attnlab.predict(run, theory=theory)\n"
        "attnlab.predict('syn-small', steps=10, theory='sgd')\n"
        "free = attnlab.Extended(normalization='none')\n"
        "attnlab.predict(run, model=free, theory='polarisation-class')\n"
        "joint = attnlab.Simulation('joma-toy:classes=6', Joint(scale=0.0), motion=run.motion)\n"
        "for theory in ('joma-stationary', 'joma', 'joma-moving'):\n"
        "    attnlab.predict(joint, theory=theory)\n"
        "print(sorted({'jax', 'jaxlib', 'optax', 'diffrax', 'torch'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
