"""The smallest setting of each paper of the atlas runs on the trainer.

Each task, model or learner is written as a paper would bring it, in under 40 lines.
"""

import inspect
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.optimize import nnls

from attnlab.models import Model, Transformer
from attnlab.simulation import (
    Batches,
    Flow,
    Learner,
    Piecewise,
    Population,
    Record,
    Simulation,
    Steps,
    simulate,
)
from attnlab.simulation.program import base_keys
from attnlab.tasks import Batch, MarkovChains, Task

pytestmark = pytest.mark.slow


def trained(task, model=None, *, learning_rate=1.0, **fields):
    return simulate(Simulation(task, model, learning_rate=learning_rate, **fields), progress=False)


# Max-margin token selection: fixed values, logistic loss, normalised gradient descent.


@dataclass(frozen=True)
class Selection(Task):
    """n sequences of T unit vectors with a query and a label; equal scores but for one token."""

    sequences: int = 4
    length: int = 5
    vocab_size: int = 8

    def draw(self, key):
        n, T, d = self.sequences, self.length, self.vocab_size
        x, z, v, y, best = jax.random.split(key, 5)

        def unit(key, *shape):
            of = jax.random.normal(key, (*shape, d))
            return of / jnp.linalg.norm(of, axis=-1, keepdims=True)

        x, z, v = unit(x, n, T), unit(z, n), unit(v)
        y = jax.random.rademacher(y, (n,)).astype(x.dtype)
        best = jax.random.randint(best, (n,), 0, T)
        score = jnp.where(jnp.arange(T) == best[:, None], 0.6, 0.1) * y[:, None]
        x = x + (score - x @ v)[..., None] * v
        return {"x": x, "z": z, "v": v, "y": y, "best": best}

    def population(self, data):
        v = jnp.broadcast_to(data["v"], data["z"].shape)
        return Batch((data["x"], data["z"], v), data["y"])


@dataclass(frozen=True)
class FixedValues(Model):
    """f = v^T X^T softmax(X W z), v fixed."""

    dims: ClassVar = {"attention": ("sequence", "token")}

    def init(self, key, task, data):
        return {"attention": jnp.zeros((task.vocab_size,) * 2)}

    def apply(self, params, inputs, *, key=None):
        x, z, v = inputs
        s = jax.nn.softmax(jnp.einsum("ntd,de,ne->nt", x, params["attention"], z))
        return jnp.einsum("nt,ntd,nd->n", s, x, v), {"attention": s}


def normalised(rate):
    return optax.chain(optax.normalize_by_update_norm(eps=2.2e-16), optax.scale(-rate))


def margin_direction(data):
    """The shortest W with (x_best - x_t)^T W z >= 1, by nonnegative least squares."""
    x, z, best = (np.asarray(data[name]) for name in ("x", "z", "best"))
    rows = [
        np.outer(x[i, best[i]] - x[i, t], z[i]).ravel()
        for i in range(len(z))
        for t in range(x.shape[1])
        if t != best[i]
    ]
    system = np.vstack([np.asarray(rows).T, np.ones(len(rows))])
    u, _ = nnls(system, np.append(np.zeros(len(system) - 1), 1.0))
    r = system @ u - np.append(np.zeros(len(system) - 1), 1.0)
    return r[:-1] / np.linalg.norm(r[:-1]) * -np.sign(r[-1])


def test_max_margin():
    """Equal scores: every sequence selects its best token, W goes to the max-margin direction."""
    result = trained(
        Selection(),
        FixedValues(),
        motion=Steps(800, normalised),
        gradient=Population(),
        learning_rate=0.1,
        loss="logistic",
        seeds=3,
        dtype="float64",
        record=Record(what=("loss", "attention", "parameters"), at=(0, 800)),
    )
    last = result.isel(step=-1)
    assert (last["attention"].max("token") > 0.99).all()
    assert np.all(result["loss"].isel(step=-1) < result["loss"].isel(step=0))
    with jax.enable_x64(True):
        for seed, W in enumerate(last["parameters.attention"].values):
            key = base_keys(jnp.asarray([seed], jnp.uint32), None)[0]
            data = Selection().draw(jax.random.fold_in(key, Learner.uses.data))
            expected = margin_direction(data)
            assert W.ravel() @ expected / np.linalg.norm(W) > 0.99


# Polarisation: softmax times a trained value matrix, no inputs: a learner of its own.


@dataclass(frozen=True)
class ValueSoftmax(Learner):
    """L = log(1 + exp(-beta . V softmax(a))), with beta = e_1."""

    tokens: int = 8
    labels: ClassVar = {"weights": ("token",)}

    def init(self, key, data):
        n = self.tokens
        return {"value": 0.1 * jax.random.normal(key, (n, n)), "attention": jnp.zeros(n)}

    def loss(self, data, params, batch, key):
        return jax.nn.softplus(-params["value"][0] @ jax.nn.softmax(params["attention"]))

    def capture(self, data, params, probe):
        return {"weights": jax.nn.softmax(params["attention"]), "u": params["value"][0]}


def test_polarisation():
    """The winner is the largest u_0 and takes 0.976 by t = 1e5 (sd 0.003)."""
    result = trained(
        ValueSoftmax(),
        motion=Flow(1e5, solver="implicit"),
        seeds=4,
        dtype="float64",
        record=Record(geometric=20),
    )
    weights, u = result["weights"], result["u"].isel(time=0)
    np.testing.assert_array_equal(weights.isel(time=-1).argmax("token"), u.argmax(u.dims[-1]))
    np.testing.assert_allclose(weights.isel(time=-1).max("token"), 0.976, atol=0.012)


# In-context regression with linear attention: the population loss is one of moments.


@dataclass(frozen=True)
class SeparateHeads(Learner):
    """L(A) = tr Lambda - 2 tr(Lambda^2 A) + tr(Lambda A^T Lambda Gamma A), A = sum_i v_i k_i q_i^T.

    In the eigenbasis of Lambda; the flow takes half of the gradient.
    """

    heads: int = 5
    context: int = 31
    spectrum: tuple[float, ...] = (0.4, 0.3, 0.2, 0.1)
    std: float = 0.01

    @property
    def gamma(self):
        lam, N = np.asarray(self.spectrum), self.context
        return (1 + 1 / N) * lam + lam.sum() / N

    def init(self, key, data):
        H, D = self.heads, len(self.spectrum)
        shapes = {"value": (H,), "key": (H, D), "query": (H, D)}
        keys = jax.random.split(key, 3)
        return {
            name: self.std * jax.random.normal(of, shape)
            for of, (name, shape) in zip(keys, shapes.items(), strict=True)
        }

    def loss(self, data, params, batch, key):
        lam = jnp.asarray(self.spectrum)
        A = jnp.einsum("h,hd,he->de", params["value"], params["key"], params["query"])
        read = (lam * self.gamma)[:, None] * A**2 * lam
        return lam.sum() - 2 * (lam**2 * jnp.diag(A)).sum() + read.sum()


def test_linear_icl():
    """The loss visits the levels of Eq. 19 in order and ends on the last."""
    learner = SeparateHeads()
    result = trained(
        learner,
        motion=Flow(3e4),
        learning_rate=0.5,
        seeds=2,
        dtype="float64",
        record=Record(geometric=400),
    )
    lam = np.asarray(learner.spectrum)
    levels = lam.sum() - np.cumsum(lam / (1 + (1 + lam.sum() / lam) / learner.context))
    np.testing.assert_allclose(levels, [0.64057971, 0.37737216, 0.2098046, 0.13599507], atol=1e-7)
    for run in result["loss"].values:
        assert np.all(np.abs(run[:, None] - levels).min(0) < 2e-3)
    np.testing.assert_allclose(result["loss"].isel(time=-1), levels[-1], atol=1e-4)


# Statistical induction heads: a two-layer attention-only transformer on Markov chains.


def test_statistical_induction():
    model = Transformer(
        layers=2, heads=1, dim=16, positions="relative", scheme="normal", scale=0.02
    )
    result = trained(
        MarkovChains(vocab_size=3, length=50),
        model,
        motion=Steps(150, "adamw"),
        gradient=Batches(64),
        learning_rate=3e-3,
        record=Record(every=50, probe=64, evaluate={"two": MarkovChains(3, 20)}),
    )
    last = result.isel(step=-1, seed=0)
    assert last["unigram_kl"] < last["uniform_kl"]  # the first stage
    assert last["loss"] < 1.05
    assert result["induction_mass"].dims == ("seed", "step", "layer", "head")


@dataclass(frozen=True)
class Minimal(Model):
    """z_s = sum_r softmax(v_{s-r}) e_r; logits_t = sum_s (e_t^T W z_s) e_s."""

    def init(self, key, task, data):
        k = task.vocab_size
        return {"second": jnp.full((k, k), 0.01), "first": jnp.zeros(task.length)}

    def apply(self, params, inputs, *, key=None):
        W, v = params["second"], params["first"]
        e = jax.nn.one_hot(inputs, len(W))
        lag = jnp.arange(inputs.shape[1])[:, None] - jnp.arange(inputs.shape[1])
        c = jax.nn.softmax(jnp.where(lag >= 0, v[jnp.maximum(lag, 0)], -jnp.inf))
        score = jnp.einsum("bta,ac,bsc->bts", e, W, jnp.einsum("sr,brc->bsc", c, e))
        return jnp.where(lag >= 0, score, 0.0) @ e, {"lag": jax.nn.softmax(v)[:4]}


def test_minimal_induction():
    """The first layer gets no gradient at the start; later lag 1 wins."""
    result = trained(
        MarkovChains(3, 50),
        Minimal(),
        motion=Steps(100),
        gradient=Batches(64),
        learning_rate={"second": 0.02, "first": 10.0},
        record=Record(what=("lag", "parameters"), at=(0, 1, 100)),
    )
    lag = result["lag"].isel(seed=0).values
    np.testing.assert_allclose(lag[1], 1 / 50, atol=1e-5)
    assert lag[2].argmax() == 1 and lag[2, 1] > 0.3


# Active and dormant heads: the reparametrised sink flow, contexts that differ.


@dataclass(frozen=True)
class SinkAndDrain(Learner):
    """Logits log p_v + (e^alpha_v beta + W_m) / (e^alpha_v + N) of query v in context m."""

    tokens: int = 8
    visible: int = 100
    contexts: int = 48

    def draw(self, key):
        rows, counts = jax.random.split(key)
        P = jax.random.dirichlet(rows, jnp.ones(self.tokens), (self.tokens,))
        pi = jnp.linalg.matrix_power(P, 1024)[0]
        drawn = jax.random.choice(counts, self.tokens, (self.contexts, self.visible), p=pi)
        return P, pi, jax.nn.one_hot(drawn, self.tokens).sum(1)  # W_m with xi = 1

    def init(self, key, data):
        return {"sink": jnp.zeros(self.tokens), "value": jnp.zeros(self.tokens)}

    def loss(self, data, params, batch, key):
        P, pi, W = data
        e = jnp.exp(params["sink"])[:, None, None]
        delta = (e * params["value"] + W) / (e + self.visible)  # query context output
        delta = delta - jnp.einsum("vy,vmy->vm", P, delta)[..., None]  # cancels; exact late
        excess = jnp.log1p(jnp.einsum("vy,vmy->vm", P, jnp.expm1(delta)))
        return jnp.einsum("v,vm->", pi, excess) / self.contexts

    def capture(self, data, params, probe):
        e = jnp.exp(params["sink"])
        return {"sink_mass": e / (e + self.visible), "size": jnp.linalg.norm(params["value"])}


def test_active_dormant():
    """48 contexts: |beta| rises, then drains as alpha grows like 1/2 log t; sink 0.998 at 1e9."""
    result = trained(
        SinkAndDrain(),
        motion=Flow(1e9, solver="implicit", rtol=1e-8, atol=1e-10),
        dtype="float64",
        record=Record(what=("sink_mass", "size", "parameters"), at=(0, 1e5, 1e7, 1e8, 1e9)),
    )
    run = result.isel(seed=0)
    assert run["sink_mass"].isel(time=1).mean() < 0.1
    assert (run["sink_mass"].isel(time=-1) > 0.99).all()
    assert run["size"].isel(time=1) > 1 and run["size"].isel(time=-1) < 0.01
    alpha = run["parameters.sink"]
    np.testing.assert_allclose(alpha[4] - alpha[3], 0.5 * np.log(10), atol=0.08)
    np.testing.assert_allclose(
        run["parameters.value"].sum("parameters.value_0"), 0, atol=1e-6
    )  # conserved


# Causal structure: a hidden forest of positions, the reduced two-layer model, two stages.


@dataclass(frozen=True)
class HiddenForest(Task):
    """Positions have hidden parents; each sequence has its own transition matrix."""

    vocab_size: int = 3
    length: int = 10
    parents: tuple[int, ...] = (-1, 0, 1, 2, 3, 4, 5, 6, 7)  # a chain; -1 is a root

    def batch(self, data, key, step, size):
        S, T = self.vocab_size, self.length
        keys = jax.random.split(key, T + 1)
        P = jax.random.dirichlet(keys[T], jnp.ones(S), (size, S))
        mu = jnp.linalg.matrix_power(P, 256)[:, 0]
        s = []
        for i, parent in enumerate(self.parents):
            law = mu if parent < 0 else P[jnp.arange(size), s[parent]]
            s.append(jax.random.categorical(keys[i], jnp.log(law)))
        s.append(jax.random.randint(keys[T - 1], (size,), 0, S))
        return Batch(jnp.stack(s, 1), P[jnp.arange(size), s[-1]])

    def loss(self, data, outputs, batch):
        return -(batch.target * jnp.log(outputs + 0.05)).sum(-1)


@dataclass(frozen=True)
class TwoMatrices(Model):
    """z_i = softmax(A1_i) e_s; f = softmax_i(e_{s_T}^T A2 z_i) e_s."""

    dims: ClassVar = {"first_attention": ("query", "key")}

    def init(self, key, task, data):
        return {"first": jnp.zeros((task.length,) * 2), "second": jnp.eye(task.vocab_size)}

    def apply(self, params, inputs, *, key=None):
        e = jax.nn.one_hot(inputs, len(params["second"]))
        seen = jnp.tri(len(params["first"]), dtype=bool)
        first = jax.nn.softmax(jnp.where(seen, params["first"], -jnp.inf))
        z = jnp.einsum("ij,bjs->bis", first, e)
        a = jax.nn.softmax(jnp.einsum("bs,sr,bir->bi", e[:, -1], params["second"], z))
        return jnp.einsum("bi,bis->bs", a, e), {"first_attention": first}


def test_causal_structure():
    """Stage 1 finds the tree: attention to parents 0.93 after 20 steps at learning rate 5 T S."""
    rates = {"first": Piecewise((0, 30), (150.0, 0.0)), "second": Piecewise((0, 30), (0.0, 5.0))}
    result = trained(
        HiddenForest(),
        TwoMatrices(),
        motion=Steps(40),
        gradient=Batches(512),
        learning_rate=rates,
        loss="task",
        seeds=2,
        record=Record(at=(0, 30, 40)),
    )
    first = result["first_attention"].isel(step=1).values
    parents = np.asarray(HiddenForest().parents)
    children = np.flatnonzero(parents >= 0)
    np.testing.assert_array_equal(first[:, children].argmax(-1), np.tile(parents[children], (2, 1)))
    assert first[:, children, parents[children]].mean() > 0.85
    still = result["first_attention"].isel(step=2)
    np.testing.assert_array_equal(still, first)  # the second stage leaves it alone


@pytest.mark.parametrize(
    "kind",
    [
        Selection,
        FixedValues,
        ValueSoftmax,
        SeparateHeads,
        Minimal,
        SinkAndDrain,
        HiddenForest,
        TwoMatrices,
    ],
)
def test_a_paper_brings_little(kind):
    assert len(inspect.getsource(kind).splitlines()) <= 40
